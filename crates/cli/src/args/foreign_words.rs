//! Words of other tools (scp, rsync, cp, rclone, ls, du, sha256sum) that mean nothing here, and what to write
//! instead: many users write them without thinking.
//!
//! Always true: no word stands here that its verb knows.

use std::ffi::OsString;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;

/// Options of other tools, for these verbs, each line with what to write instead.
type ForeignOptions = (&'static [&'static str], &'static [(&'static [&'static str], &'static str)]);

const OPTIONS: &[ForeignOptions] = &[
    (
        &["cp", "sync", "submit"],
        &[
            (
                &["-a", "--archive"],
                "directories, links, modes and times are always kept; -X, -A, --specials and --devices keep more; \
                 --owner and --group keep owners and groups",
            ),
            (
                &["-t", "--times", "--perms", "--links", "-H", "-E", "--executability"],
                "it is not needed: symbolic and hard links, modes and times are always kept",
            ),
            (
                &["-g"],
                "write --group to keep groups, --owner to keep owners: without them what arrives belongs to the user at \
                 the destination",
            ),
            (&["-D"], "write --specials --devices"),
            (
                &["-z", "--compress"],
                "farhaul does not compress; -C lets ssh compress what travels inside SSH",
            ),
            (&["-n", "--no-clobber"], "rsync's -n is --dry-run here, and cp's -n is --overwrite never"),
            (
                &["-u", "--update"],
                "write --overwrite older: it replaces a file if it is older than the source",
            ),
            (&["--ignore-existing"], "write --overwrite never"),
            (&["-I", "--ignore-times"], "write --overwrite always, or -c to compare by content"),
            (&["--size-only"], "write -c to compare by content; size alone does not tell files apart"),
            (
                &["--progress", "--info", "--stats", "--human-readable", "--itemize-changes"],
                "progress is shown on a terminal, and figures at the end; -v prints a line for each file, --json \
                 and --events are for programs",
            ),
            (
                &["--partial", "--partial-dir", "--append", "--append-verify", "--resume", "--continue"],
                "it is not needed: run the same command again after a stop, and it sends only what is missing",
            ),
            (
                &["--bwlimit", "--limit-rate", "--max-rate"],
                "write --rate, in bits a second, such as --rate 80M",
            ),
            (&["-e", "--rsh"], "-S names a program to use instead of ssh, -P a port, -o an option of ssh"),
            (&["--rsync-path"], "write --remote-program"),
            (&["--port"], "write -P"),
            (&["--timeout", "--contimeout"], "--answer-wait says how long to wait for the far end's answer"),
            (&["--sparse"], "it is not needed: holes in files stay holes"),
            (
                &["-R", "--relative"],
                "names of --files-from are relative to the source and keep their directories",
            ),
            (
                &["--transfers", "--checkers", "--streams", "--parallel"],
                "it is not needed: many files travel at a time; --flows is for hosts with many cores",
            ),
            (
                &["--remove-source-files"],
                "nothing is deleted at the source; a watch does that: `farhaul watch add --after delete`",
            ),
            (
                &["--copy-dest"],
                "write --link-dest, which takes no room for what has not changed; a file of another mode or time is copied from there",
            ),
            (
                &["-k", "--copy-dirlinks", "--copy-unsafe-links", "--munge-links"],
                "-L takes what every link leads to; --safe-links skips links that lead out of what is copied",
            ),
            (
                &["-m", "--prune-empty-dirs"],
                "directories are made also where nothing in them is taken; --files-from takes a list of names",
            ),
            (&["--mkpath"], "make the directories above the destination first: only the last one is made"),
            (
                &["--existing", "--ignore-non-existing"],
                "write --files-from with the names of what the destination has",
            ),
            (&["--log-file"], "--json and --events are for programs, -v prints a line for each file"),
            (
                &["--delay-updates", "--temp-dir"],
                "it is not needed: a file gets its name when all of it is there, and is written beside that",
            ),
            (&["--force"], "a directory makes room for a file only in `farhaul sync --delete`"),
            (&["-U", "--atimes", "--crtimes"], "only modification times are kept"),
            (
                &["--ignore-errors"],
                "nothing is deleted if a part of the source could not be listed: exclude that part",
            ),
            (
                &["-s", "--protect-args", "--secluded-args", "--old-args", "--iconv"],
                "it is not needed: names travel as the bytes that they are",
            ),
            (
                &["--super", "--fake-super"],
                "what the user at the destination may do is done: as root with --owner, --devices and the like",
            ),
            (
                &["--cvs-exclude"],
                "write --exclude-from with a file of patterns (-C is an option of ssh here)",
            ),
            (
                &["--no-owner", "--no-group", "--no-o", "--no-g", "--no-D"],
                "it is not needed: owners, groups and devices are kept only with --owner, --group and --devices",
            ),
            (&["--no-p"], "write --no-perms"),
            (&["--no-t"], "write --no-times"),
            (&["--list-only"], "`farhaul ls -lR` lists what is there, and --dry-run -v what would be copied"),
            (
                &["--ignore-missing-args", "--delete-missing-args"],
                "a source that is not there fails by itself, and the others arrive",
            ),
            (&["--checksum-choice", "--block-size", "--skip-compress"], "it is not needed"),
            (&["--chmod"], "modes are those of the source; --mask of a daemon takes permissions off"),
            (&["-T", "-O"], "it is not needed: farhaul starts itself on the far end"),
            (
                &["-3"],
                "name two daemons as fh://HOST/PATH: one sends to the other, and no content passes through this host",
            ),
        ],
    ),
    (
        &["cp"],
        &[(
            &[
                "--delete",
                "--del",
                "--delete-after",
                "--delete-before",
                "--delete-during",
                "--delete-excluded",
            ],
            "`farhaul sync --delete` deletes what the source does not have",
        )],
    ),
    (
        &["sync"],
        &[(&["-y", "--fuzzy"], "write --detect-renames: it takes a file that has another name there")],
    ),
    (
        &["ls"],
        &[
            (&["-1"], "it is not needed: each name has a line of its own"),
            (&["-t", "-r", "--sort"], "lines are sorted by name; --json is for programs that sort otherwise"),
            (&["-A", "--almost-all"], "write -a: . and .. are never listed"),
        ],
    ),
    (
        &["du"],
        &[
            (&["-c", "--total"], "there is one line for each location, and no line for all of them"),
            (&["-a", "--all"], "`farhaul ls -lR` lists files"),
        ],
    ),
    (&["stat"], &[(&["-c", "--format", "--printf"], "--json has every field")]),
    (
        &["cat"],
        &[
            (&["-c", "--bytes"], "--range A-B writes a part of a file; -500 are the last 500 bytes"),
            (&["-n", "--number"], "the bytes are written as they are: pipe them through your own cat -n"),
        ],
    ),
    (
        &["sum"],
        &[
            (
                &["-a", "--sha256", "--md5", "--blake3", "--xxh3"],
                "write --algorithm sha256, blake3, md5 or xxh3",
            ),
            (&["-c", "--check"], "`farhaul verify LIST DIRECTORY` compares files with a list of digests"),
        ],
    ),
];

/// Verbs of other tools.
const VERBS: &[(&[&str], &str)] = &[
    (&["copy", "put", "get", "push", "pull", "upload", "download", "send", "scp"], "farhaul cp"),
    (&["mirror", "rsync", "bisync"], "farhaul sync"),
    (&["move", "rename", "ren"], "farhaul mv"),
    (&["delete", "remove", "del", "rmdir", "unlink"], "farhaul rm"),
    (&["md"], "farhaul mkdir"),
    (&["head", "tail"], "farhaul cat --range"),
    (&["find", "dir", "lsl", "lsf", "tree"], "farhaul ls -R"),
    (&["size"], "farhaul du"),
    (&["md5sum", "sha256sum", "b3sum", "hashsum", "checksum", "digest"], "farhaul sum"),
    (&["check"], "farhaul verify"),
    (&["ps", "status", "list", "queue"], "farhaul jobs"),
    (&["kill", "stop", "abort"], "farhaul cancel"),
    (&["server", "daemon", "start"], "farhaul serve"),
    (&["version"], "farhaul --version"),
];

/// What to write instead of what the parser has refused; empty if nobody knows.
pub fn hints(words: &[OsString], refused: &clap::Error) -> Vec<String> {
    let named = |kind| match refused.get(kind) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };
    match refused.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = named(ContextKind::InvalidSubcommand);
            let known = VERBS.iter().find(|(verbs, _)| verbs.contains(&word));
            known.map(|(_, instead)| format!("instead of {word}, use {instead}")).into_iter().collect()
        }
        ErrorKind::UnknownArgument => {
            let verb = words.get(1).and_then(|verb| verb.to_str()).unwrap_or_default();
            let option = named(ContextKind::InvalidArg);
            let option = option.split('=').next().unwrap_or_default();
            let mut hints: Vec<(String, &str)> = Vec::new();
            for option in std::iter::once(option.to_string()).chain(beside(verb, option, words)) {
                match (instead_of(verb, &option), hints.last_mut()) {
                    (Some(text), Some((options, last))) if *last == text => {
                        *options += &format!(", {option}")
                    }
                    (Some(text), _) => hints.push((option, text)),
                    (None, _) => {}
                }
            }
            hints.into_iter().map(|(options, text)| format!("{options}: {text}")).collect()
        }
        _ => Vec::new(),
    }
}

fn instead_of(verb: &str, option: &str) -> Option<&'static str> {
    let lines = OPTIONS.iter().filter(|(verbs, _)| verbs.contains(&verb)).flat_map(|(_, lines)| *lines);
    lines.into_iter().find(|(options, _)| options.contains(&option)).map(|(_, instead)| *instead)
}

/// Options behind a short one in the same word, as in `-avz`, that the verb does not know either.
fn beside(verb: &str, option: &str, words: &[OsString]) -> Vec<String> {
    let [b'-', first] = option.as_bytes() else { return Vec::new() };
    let words = words.iter().filter_map(|word| word.to_str()?.strip_prefix('-'));
    let cluster = words.filter(|word| !word.starts_with('-')).find(|word| word.as_bytes().contains(first));
    let Some((_, behind)) = cluster.and_then(|word| word.split_once(char::from(*first))) else {
        return Vec::new();
    };
    behind.chars().filter(|&letter| !knows(verb, letter)).map(|letter| format!("-{letter}")).collect()
}

fn knows(verb: &str, letter: char) -> bool {
    let program = Cli::command();
    program.find_subcommand(verb).is_some_and(|verb| {
        let options: Vec<char> = verb.get_arguments().filter_map(clap::Arg::get_short).collect();
        options.contains(&letter)
    })
}

#[cfg(test)]
mod tests {
    use clap::{Command, Parser as _};

    use super::*;

    fn hints_for(line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        hints(&words, &Cli::try_parse_from(&words).unwrap_err())
    }

    fn verb_of(program: &Command, name: &str) -> Command {
        let mut verb = program.find_subcommand(name).unwrap_or_else(|| panic!("no verb {name}")).clone();
        verb.build();
        verb
    }

    #[test]
    fn no_verb_knows_what_is_foreign_to_it() {
        let program = Cli::command();
        for (verbs, lines) in OPTIONS {
            for name in *verbs {
                let verb = verb_of(&program, name);
                for option in lines.iter().flat_map(|(options, _)| *options) {
                    let is_known = verb.get_arguments().any(|known| {
                        let longs = known.get_long_and_visible_aliases().unwrap_or_default();
                        known.get_short().is_some_and(|short| *option == format!("-{short}"))
                            || longs.iter().any(|long| *option == format!("--{long}"))
                    });
                    assert!(!is_known, "farhaul {name} {option}");
                }
            }
        }
        for foreign in VERBS.iter().flat_map(|(verbs, _)| *verbs) {
            assert!(program.find_subcommand(foreign).is_none(), "{foreign}");
        }
    }

    /// An option that a hint names must exist.
    #[test]
    fn what_is_to_be_written_instead_is_known() {
        let program = Cli::command();
        for (verbs, lines) in OPTIONS {
            for (_, instead) in *lines {
                let words = instead.split(|c: char| c.is_whitespace() || ";:,`".contains(c));
                for word in words.filter(|word| word.starts_with("--")) {
                    let of_others = ["--delete", "--after", "--mask"];
                    let is_known = |name: &&str| {
                        verb_of(&program, name)
                            .get_arguments()
                            .any(|known| known.get_long().is_some_and(|long| word == format!("--{long}")))
                    };
                    assert!(of_others.contains(&word) || verbs.iter().all(is_known), "{word} in {instead:?}");
                }
            }
        }
        for (_, instead) in VERBS {
            let verb = instead.split_whitespace().nth(1).unwrap().trim_end_matches(':');
            assert!(verb == "--version" || program.find_subcommand(verb).is_some(), "{instead}");
        }
    }

    #[test]
    fn each_option_of_a_word_has_its_hint() {
        let hints = hints_for("farhaul sync -avzn src host:dst");
        assert_eq!(hints.len(), 3, "{hints:?}");
        assert!(
            hints[0].starts_with("-a: ") && hints[1].starts_with("-z: ") && hints[2].contains("--dry-run")
        );
        let of_both = hints_for("farhaul ls -lrt a");
        assert!(of_both.len() == 1 && of_both[0].starts_with("-r, -t: "), "{of_both:?}");
        assert!(hints_for("farhaul cp --bwlimit=10M a b")[0].contains("--rate"));
        assert!(hints_for("farhaul sync -y a b")[0].contains("--detect-renames"));
        assert!(hints_for("farhaul cp --no-owner a b")[0].contains("not needed"));
        assert_eq!(hints_for("farhaul tail a"), ["instead of tail, use farhaul cat --range"]);
    }

    #[test]
    fn nothing_is_made_up() {
        for line in [
            "farhaul cp --frobnicate a b",
            "farhaul cp -9 a b",
            "farhaul frobnicate",
            "farhaul cp",
            "farhaul",
        ] {
            assert_eq!(hints_for(line), [""; 0], "{line}");
        }
    }
}
