//! Users see the help texts, so each change of one shows up as a change of a golden file. `GOLDEN=write cargo
//! test -p farhaul-cli --test help` writes the golden files and docs/reference/options.md.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn farhaul(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    // Variables of whoever runs the tests could change the width of the help, and what is logged.
    command.args(arguments).env_clear().env("LANG", "C.UTF-8").stdin(Stdio::null());
    command.output().expect("the binary was built for this test")
}

#[test]
fn help_is_what_the_golden_files_say() {
    for verb in [
        "",
        "cp",
        "sync",
        "verify",
        "ls",
        "stat",
        "cat",
        "du",
        "sum",
        "clean",
        "receipt",
        "receipt verify",
        "serve",
        "top",
        "watch",
        "watch add",
        "watch files",
        "keygen",
        "config",
        "config show",
        "config check",
        "audit",
        "audit check",
        "lab",
        "lab run",
        "lab up",
        "lab set",
        "lab exec",
        "bench",
        "bench cpu",
        "bench disk",
        "bench link",
        "bench transfer",
        "bench read",
        "doctor",
        "doctor explain",
    ] {
        let arguments: Vec<&str> = verb.split_whitespace().chain(["--help"]).collect();
        let output = farhaul(&arguments);
        assert_eq!(output.status.code(), Some(0), "{verb}");
        let help = String::from_utf8(output.stdout).unwrap();
        let name = if verb.is_empty() { "farhaul".to_string() } else { verb.replace(' ', "-") };
        let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
        farhaul_vectors::compare_text(&golden, &help);
        assert!(
            !help.contains("--fault") && !help.contains("endpoint"),
            "the help of '{verb}' shows a hidden option or verb"
        );
    }
}

/// Returns the verbs that this verb's help lists, except `help` itself.
fn verbs_below(help: &str) -> Vec<&str> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // The text of a verb may continue in lines with a larger indent.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).filter(|&name| name != "help").collect()
}

/// Adds a verb and all verbs below it: to `list` a line for each, to `texts` the help of each.
fn add_verb(verb: &[&str], list: &mut String, texts: &mut String) {
    let output = farhaul(&[verb, &["--help"]].concat());
    assert_eq!(output.status.code(), Some(0), "{verb:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let name = [&["farhaul"], verb].concat().join(" ");
    // The exit codes are the same for all verbs, and the page has a link to them.
    let text = help.split("\nExit codes: ").next().unwrap_or_default().trim_end();
    let (indent, mark) = ("  ".repeat(verb.len().saturating_sub(1)), "#".repeat(2.max(verb.len() + 1)));
    list.push_str(&format!("{indent}- [`{name}`](#{})\n", name.replace(' ', "-")));
    texts.push_str(&format!("\n{mark} {name}\n\n```text\n{text}\n```\n"));
    for below in verbs_below(&help) {
        add_verb(&[verb, &[below]].concat(), list, texts);
    }
}

#[test]
fn the_page_of_options_has_the_help_of_every_verb() {
    let (mut list, mut texts) = (String::new(), String::new());
    add_verb(&[], &mut list, &mut texts);
    assert!(list.contains("`farhaul bench cpu`") && texts.contains("--one-file-system"), "{list}");
    let page = format!(
        "# Options

Every verb, with what `farhaul VERB --help` prints, but for the exit codes at its end. [The guide](../README.md#guide) says how options work together. All
verbs end with the same [exit codes](errors.md#exit-codes).

A test makes this page: `GOLDEN=write cargo test -p farhaul-cli --test help`.

{list}{texts}"
    );
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/options.md");
    farhaul_vectors::compare_text(&path, &page);
}

#[test]
fn wrong_usage_is_code_two_and_one_line_of_error() {
    for arguments in [
        &["cp", "a"][..],
        &["cp", "h:a", "h:b"],
        &["cp", "fh://[x/y", "."],
        &["cp", "--flows", "17", "a", "h:"],
        &["cp", "--filter", "x y", "a", "h:"],
        &["cp", "--filter", ": .rules", "a", "h:"],
        &["cp", "--exclude-from", "/nonexistent", "a", "h:"],
        &["cp", "--files-from", "/nonexistent", "a", "h:"],
        &["cp", "--files-from", "/dev/null", "a", "b", "h:"],
        &["cp", "--min-size", "2", "--max-size", "1", "a", "h:"],
        &["cp", "--min-age", "yesterday", "a", "h:"],
        &["cp", "--min-age", "2d", "--max-age", "1d", "a", "h:"],
        &["sync", "a"],
        &["sync", "a", "b", "h:"],
        &["sync", "-", "h:"],
        &["sync", "h:", "-"],
        &["sync", "zero:1", "h:"],
        &["sync", "--max-delete", "1", "a", "h:"],
        &["sync", "--delete", "--max-delete", "few", "a", "h:"],
        &["sync", "--checksum", "--overwrite", "never", "a", "h:"],
        &["sync", "--delete", "--files-from", "/dev/null", "a", "h:"],
        &["config", "show", "--config", "/nonexistent"],
        &["audit", "check"],
        &["lab", "run", "--hosts", "0", "--", "true"],
        &["lab", "run", "--link", "loss=2", "--", "true"],
        &["lab", "set"],
        &["lab", "world", "x"],
        &["bench", "disk", "/dev/null"],
        &["bench", "disk", "/"],
        &["bench", "disk", "--write", "/dev/null"],
        &["bench", "cpu", "--seconds", "0"],
        &["bench", "link", "fh://host"],
        &["bench", "link", "host:path"],
        &["bench", "link", "--flows", "17", "host"],
        &["bench", "transfer", "--dry-run", "host"],
        // There is no terminal to draw on.
        &["top"],
    ] {
        let output = farhaul(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("error: "), "{arguments:?}: {stderr}");
    }
}

#[test]
fn options_of_other_tools_get_a_hint() {
    let output = farhaul(&["sync", "-az", "--bwlimit=10M", "a", "h:"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines[0], "error: unexpected argument '-a' found");
    assert!(lines[1].starts_with("hint: -a: ") && lines[2].starts_with("hint: -z: "), "{stderr}");
    assert_eq!(lines.len(), 3, "{stderr}");
}

#[test]
fn a_refused_job_answers_in_json_when_asked() {
    let output = farhaul(&["cp", "--json", "h:a", "h:b"]);
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert_eq!(report["schema"], 1);
    assert!(report["error"].as_str().unwrap().contains("remote"));
}

#[test]
fn a_reader_that_leaves_early_ends_the_process_as_sigpipe_does() {
    let refused = &["cp", "--json", "h:a", "h:b"];
    for (arguments, code) in
        [(&["completions", "bash"][..], 141), (&["man"], 141), (&["--help"], 141), (refused, 2)]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(code == 2 || stderr.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn completions_know_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let output = farhaul(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("keygen"), "{shell}");
    }
}
