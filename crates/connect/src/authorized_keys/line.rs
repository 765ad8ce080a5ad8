//! Parses one line of an authorized-keys file: options, the key's type, the key, and a comment.
//!
//! Always true: a line gives no more than its bounds. An option that is not understood makes the whole line
//! invalid, as its author wanted to allow less than the rest of the line says.
//! From: sshd(8), "AUTHORIZED_KEYS FILE FORMAT". Differs: the case of names matters, and options only take
//! rights away, but for `diagnose`, `tunnel` and `tunnel-listen`, which are about no files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_session::options::RATE_MIN_BPS;
use farhaul_text::printable;
use farhaul_words::amounts;

use super::super::identity::KEY_TYPE;
use super::super::principal::{AuthenticatedPeer, Principal, PrincipalId};
use super::super::rights::{Access, Rights};
use super::super::tunnel_rules::{TunnelRule, TunnelRules};

/// The length of an Ed25519 SubjectPublicKeyInfo: a fixed head (RFC 8410 section 4) and 32 bytes.
const SPKI_LEN: usize = 44;
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The least memory that a key may be limited to: enough for one transfer with few flows.
const MEMORY_MIN: u64 = 64 << 20;
/// The most characters of a wrong part of a line that are shown.
const SHOWN_MAX: usize = 80;

/// The rights of a key whose line has no options. No line gives more.
#[derive(Debug, Clone, Default)]
pub struct KeyBounds {
    /// The names of the served directory: first the one without links, then the one that was given. Empty if
    /// no files are served.
    pub root: Vec<PathBuf>,
    /// All other rights.
    pub rights: Rights,
}

/// Why a line lets nobody in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("this is no farhaul public key")]
    NoKey,
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("a comma has no option before or behind it")]
    Empty,
    #[error(
        "there is no option '{0}', only root=, read-only, write-only, no-overwrite, no-delete, no-cipher-none, max-rate=, memory=, diagnose, tunnel=, tunnel-listen="
    )]
    Unknown(String),
    #[error("{0} stands twice")]
    Twice(&'static str),
    #[error("root= stands twice: a key has one root; name the directory above both, or make a key for each")]
    SecondRoot,
    #[error("{0} needs a value: {0}={1}")]
    NoValue(&'static str, &'static str),
    #[error("{0} takes no value")]
    Value(&'static str),
    #[error("{name}={value}: {wanted}")]
    Wrong { name: &'static str, value: String, wanted: &'static str },
    #[error("root={0} does not lie in {1}, which `root` names")]
    Outside(String, String),
    #[error("the key stands in line {0}, too, and that line counts")]
    KeyTwice(usize),
    #[error("read-only and write-only together leave nothing")]
    Nothing,
    #[error("{0} leaves nothing where all is {1}")]
    NothingHere(&'static str, &'static str),
}

/// Reads a line; `None` if it is empty or a comment.
pub(super) fn parse(line: &[u8], bounds: &KeyBounds) -> Result<Option<AuthenticatedPeer>, LineError> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let (word, rest) = first_word(line)?;
    let (options, rest) = match word == KEY_TYPE.as_bytes() {
        true => (None, rest),
        false => {
            let (kind, rest) = first_word(rest)?;
            if kind != KEY_TYPE.as_bytes() {
                return Err(LineError::NoKey);
            }
            (Some(word), rest)
        }
    };
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let spki = STANDARD.decode(&rest[..end]).map_err(|_| LineError::NoKey)?;
    if spki.len() != SPKI_LEN || !spki.starts_with(&SPKI_HEAD) {
        return Err(LineError::NoKey);
    }
    let rights = match options {
        Some(options) => Options::parse(options)?.within(bounds)?,
        None => bounds.rights.clone(),
    };
    let principal =
        Principal { id: PrincipalId::Ed25519(spki), comment: printable(rest[end..].trim_ascii(), SHOWN_MAX) };
    Ok(Some(AuthenticatedPeer { principal, rights }))
}

/// Splits off the first word, which ends at white space outside of quotes.
fn first_word(line: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let end = unquoted(line, |byte| byte.is_ascii_whitespace())?.unwrap_or(line.len());
    Ok((&line[..end], line[end..].trim_ascii_start()))
}

/// The position of the first such byte outside of quotes. In quotes, `\"` is a quote that belongs to the
/// value.
fn unquoted(text: &[u8], is_it: impl Fn(u8) -> bool) -> Result<Option<usize>, LineError> {
    let (mut is_quoted, mut at) = (false, 0);
    while at < text.len() {
        match text[at] {
            b'\\' if is_quoted && text.get(at + 1) == Some(&b'"') => at += 1,
            b'"' => is_quoted = !is_quoted,
            byte if !is_quoted && is_it(byte) => return Ok(Some(at)),
            _ => {}
        }
        at += 1;
    }
    if is_quoted { Err(LineError::OpenQuote) } else { Ok(None) }
}

/// The options in front of a key.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    root: Option<PathBuf>,
    read_only: bool,
    write_only: bool,
    no_overwrite: bool,
    no_delete: bool,
    no_cipher_none: bool,
    max_rate: Option<u64>,
    memory: Option<u64>,
    diagnose: bool,
    tunnel: TunnelRules,
    /// The option that a further part belongs to, as a list goes on behind a comma (`tunnel=a:1,b:2`).
    list: Option<List>,
}

/// An option with a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Targets,
    Listens,
}

impl Options {
    fn parse(mut text: &[u8]) -> Result<Options, LineError> {
        let mut options = Options::default();
        loop {
            let comma = unquoted(text, |byte| byte == b',')?;
            options.add(&text[..comma.unwrap_or(text.len())])?;
            match comma {
                Some(comma) => text = &text[comma + 1..],
                None => return Ok(options),
            }
        }
    }

    fn add(&mut self, option: &[u8]) -> Result<(), LineError> {
        let equals = option.iter().position(|&byte| byte == b'=');
        let name = &option[..equals.unwrap_or(option.len())];
        let value = equals.map(|equals| &option[equals + 1..]);
        // No option has such a name: the list of the option before goes on.
        let goes_on =
            value.is_none() && !name.is_empty() && (name.contains(&b':') || name[0].is_ascii_digit());
        if let Some(list) = self.list.filter(|_| goes_on) {
            return self.add_list(list, name);
        }
        self.list = None;
        match name {
            b"" => return Err(LineError::Empty),
            b"root" if self.root.is_some() => return Err(LineError::SecondRoot),
            b"root" => self.root = Some(root(&valued(value, "root", "DIR")?)?),
            b"read-only" => set(&mut self.read_only, value, "read-only")?,
            b"write-only" => set(&mut self.write_only, value, "write-only")?,
            b"no-overwrite" => set(&mut self.no_overwrite, value, "no-overwrite")?,
            b"no-delete" => set(&mut self.no_delete, value, "no-delete")?,
            b"no-cipher-none" => set(&mut self.no_cipher_none, value, "no-cipher-none")?,
            b"diagnose" => set(&mut self.diagnose, value, "diagnose")?,
            b"tunnel" => self.add_list(List::Targets, &valued(value, "tunnel", "HOST:PORT")?)?,
            b"tunnel-listen" => self.add_list(List::Listens, &valued(value, "tunnel-listen", "PORT")?)?,
            b"max-rate" => {
                let value = valued(value, "max-rate", "RATE")?;
                let wanted = "write bits a second, 8k or more, such as 800M or 2G";
                let bps = amounts::rate(&String::from_utf8_lossy(&value)).filter(|&bps| bps >= RATE_MIN_BPS);
                put(&mut self.max_rate, bps, "max-rate", &value, wanted)?;
            }
            b"memory" => {
                let value = valued(value, "memory", "SIZE")?;
                let wanted = "write bytes, 64M or more, such as 512M or 4G";
                let bytes =
                    amounts::size(&String::from_utf8_lossy(&value)).filter(|&bytes| bytes >= MEMORY_MIN);
                put(&mut self.memory, bytes, "memory", &value, wanted)?;
            }
            unknown => return Err(LineError::Unknown(shown(unknown))),
        }
        Ok(())
    }

    /// Adds the rules of a list, or of a part of it.
    fn add_list(&mut self, list: List, text: &[u8]) -> Result<(), LineError> {
        self.list = Some(list);
        for rule in text.split(|&byte| byte == b',') {
            let parsed = std::str::from_utf8(rule).ok();
            let added = match list {
                List::Targets => parsed.and_then(TunnelRule::target).map(|rule| self.tunnel.add_target(rule)),
                List::Listens => parsed.and_then(TunnelRule::listen).map(|rule| self.tunnel.add_listen(rule)),
            };
            let (name, wanted) = match list {
                List::Targets => (
                    "tunnel",
                    "write HOST:PORT, such as db:5432, 10.1.0.0/16:443 or [2001:db8::/32]:8000-8099, at most 256",
                ),
                List::Listens => (
                    "tunnel-listen",
                    "write a port of the loopback interface, or ADDRESS:PORT, such as 8080 or 10.0.0.5:8080, at most 256",
                ),
            };
            if added != Some(true) {
                return Err(LineError::Wrong { name, value: shown(rule), wanted });
            }
        }
        Ok(())
    }

    /// The rights that the options leave of the bounds.
    fn within(self, bounds: &KeyBounds) -> Result<Rights, LineError> {
        let own = match (self.read_only, self.write_only) {
            (true, true) => return Err(LineError::Nothing),
            (true, false) => Access::ReadOnly,
            (false, true) => Access::WriteOnly,
            (false, false) => Access::ReadWrite,
        };
        let access = match (bounds.rights.access.and(own), own) {
            (Some(access), _) => access,
            (None, Access::ReadOnly) => return Err(LineError::NothingHere("read-only", "write-only")),
            (None, _) => return Err(LineError::NothingHere("write-only", "read-only")),
        };
        let root = match &self.root {
            Some(root) => beneath(root, bounds)?,
            None => bounds.rights.root.clone(),
        };
        let least = |own: Option<u64>, bound: Option<u64>| own.into_iter().chain(bound).min();
        Ok(Rights {
            root,
            access,
            overwrites: bounds.rights.overwrites && !self.no_overwrite,
            deletes: bounds.rights.deletes && !self.no_delete,
            cipher_none: bounds.rights.cipher_none && !self.no_cipher_none,
            rate_max_bps: least(self.max_rate, bounds.rights.rate_max_bps),
            memory_max: least(self.memory, bounds.rights.memory_max),
            diagnose: bounds.rights.diagnose || self.diagnose,
            tunnel: if self.tunnel.is_empty() { bounds.rights.tunnel.clone() } else { Arc::new(self.tunnel) },
            errand: None,
        })
    }
}

fn set(flag: &mut bool, value: Option<&[u8]>, name: &'static str) -> Result<(), LineError> {
    match (value, std::mem::replace(flag, true)) {
        (Some(_), _) => Err(LineError::Value(name)),
        (None, true) => Err(LineError::Twice(name)),
        (None, false) => Ok(()),
    }
}

fn put(
    place: &mut Option<u64>,
    number: Option<u64>,
    name: &'static str,
    value: &[u8],
    wanted: &'static str,
) -> Result<(), LineError> {
    let number = number.ok_or_else(|| LineError::Wrong { name, value: shown(value), wanted })?;
    match place.replace(number) {
        Some(_) => Err(LineError::Twice(name)),
        None => Ok(()),
    }
}

/// The value of an option that needs one, without its quotes.
fn valued(value: Option<&[u8]>, name: &'static str, example: &'static str) -> Result<Vec<u8>, LineError> {
    let value = value.filter(|value| !value.is_empty() && *value != b"\"\"");
    let value = value.ok_or(LineError::NoValue(name, example))?;
    let wrong = || LineError::Wrong {
        name,
        value: shown(value),
        wanted: "quotes stand around a whole value, and a quote in it is written \\\"",
    };
    let Some(quoted) = value.strip_prefix(b"\"") else {
        return if value.contains(&b'"') { Err(wrong()) } else { Ok(value.to_vec()) };
    };
    let quoted = quoted.strip_suffix(b"\"").ok_or_else(wrong)?;
    let (mut plain, mut bytes) = (Vec::with_capacity(quoted.len()), quoted.iter());
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' if bytes.as_slice().first() == Some(&b'"') => plain.extend(bytes.next()),
            b'"' => return Err(wrong()),
            byte => plain.push(byte),
        }
    }
    Ok(plain)
}

/// Checks the root: an absolute path without `..`.
fn root(value: &[u8]) -> Result<PathBuf, LineError> {
    let path = Path::new(OsStr::from_bytes(value));
    let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || value.contains(&0) || !path.components().all(is_plain) {
        let wanted = "write the whole path of a directory, without ..";
        return Err(LineError::Wrong { name: "root", value: shown(value), wanted });
    }
    // Joined again from its parts: without doubled slashes, single dots and a slash at the end.
    Ok(path.components().collect())
}

/// The part of `root` below the served directory.
fn beneath(root: &Path, bounds: &KeyBounds) -> Result<PathBuf, LineError> {
    let shown = |path: &Path| shown(path.as_os_str().as_bytes());
    let Some(first) = bounds.root.first() else {
        let wanted = "no files are served here";
        return Err(LineError::Wrong { name: "root", value: shown(root), wanted });
    };
    // Joined part by part, as an empty part would leave a slash.
    let whole =
        |name: &PathBuf| name.components().chain(bounds.rights.root.components()).collect::<PathBuf>();
    let rest = bounds.root.iter().find_map(|name| root.strip_prefix(whole(name)).ok());
    let rest = rest.ok_or_else(|| LineError::Outside(shown(root), shown(&whole(first))))?;
    Ok(bounds.rights.root.join(rest))
}

/// Text of a line, made safe for a log.
fn shown(bytes: &[u8]) -> String {
    printable(bytes, SHOWN_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> String {
        let spki = [&SPKI_HEAD[..], &[7; 32]].concat();
        format!("{KEY_TYPE} {}", STANDARD.encode(spki))
    }

    fn bounds() -> KeyBounds {
        KeyBounds { root: vec!["/srv".into(), "/link/to/srv".into()], rights: Rights::default() }
    }

    fn rights(options: &str) -> Result<Rights, LineError> {
        let line = format!("{options} {}", key());
        parse(line.as_bytes(), &bounds()).map(|made| made.expect("a key").rights)
    }

    fn tunnels(targets: &[&str], listens: &[&str]) -> Rights {
        let mut tunnel = TunnelRules::default();
        targets.iter().for_each(|text| assert!(tunnel.add_target(TunnelRule::target(text).unwrap())));
        listens.iter().for_each(|text| assert!(tunnel.add_listen(TunnelRule::listen(text).unwrap())));
        Rights { tunnel: Arc::new(tunnel), ..Rights::default() }
    }

    #[test]
    fn options_are_what_they_say() {
        let all = Rights::default;
        for (options, expected) in [
            ("", all()),
            ("read-only", Rights { access: Access::ReadOnly, ..all() }),
            ("no-overwrite", Rights { overwrites: false, ..all() }),
            ("no-delete,write-only", Rights { deletes: false, access: Access::WriteOnly, ..all() }),
            ("write-only,no-cipher-none", Rights { access: Access::WriteOnly, cipher_none: false, ..all() }),
            ("max-rate=1G", Rights { rate_max_bps: Some(1_000_000_000), ..all() }),
            ("max-rate=\"1.5Mbit/s\"", Rights { rate_max_bps: Some(1_500_000), ..all() }),
            ("memory=64M", Rights { memory_max: Some(64 << 20), ..all() }),
            ("diagnose", Rights { diagnose: true, ..all() }),
            (
                "tunnel=db:5432,10.1.0.0/16:443,tunnel-listen=8080,9090",
                tunnels(&["db:5432", "10.1.0.0/16:443"], &["8080", "9090"]),
            ),
            (
                "tunnel=\"db:5432,*:443\",diagnose",
                Rights { diagnose: true, ..tunnels(&["db:5432", "*:443"], &[]) },
            ),
            ("tunnel-listen=10.0.0.5:80,tunnel=[::1]:22", tunnels(&["[::1]:22"], &["10.0.0.5:80"])),
            ("root=/srv", all()),
            ("root=/srv/", all()),
            ("root=/srv/a", Rights { root: "a".into(), ..all() }),
            ("root=//srv/./a//b/", Rights { root: "a/b".into(), ..all() }),
            ("root=\"/srv/my data, all\"", Rights { root: "my data, all".into(), ..all() }),
            (r#"root="/srv/a\"b\c""#, Rights { root: r#"a"b\c"#.into(), ..all() }),
            (r"root=/srv/a\b", Rights { root: r"a\b".into(), ..all() }),
            ("root=/link/to/srv/a", Rights { root: "a".into(), ..all() }),
            ("root=/srv/a=b", Rights { root: "a=b".into(), ..all() }),
            (
                "read-only,root=/srv/a,max-rate=8k",
                Rights { root: "a".into(), access: Access::ReadOnly, rate_max_bps: Some(8000), ..all() },
            ),
        ] {
            assert_eq!(rights(options), Ok(expected), "{options}");
        }
    }

    #[test]
    fn whatever_is_not_understood_refuses_the_line() {
        for (options, reason) in [
            ("read-olny", "there is no option 'read-olny'"),
            ("Read-Only", "there is no option 'Read-Only'"),
            ("no-pty", "there is no option 'no-pty'"),
            ("\u{1b}[2J", "there is no option ' [2J'"),
            ("read-only,", "a comma has no option"),
            (",read-only", "a comma has no option"),
            ("=x", "a comma has no option"),
            ("tunnel", "tunnel needs a value: tunnel=HOST:PORT"),
            ("tunnel=db", "tunnel=db: write HOST:PORT"),
            ("tunnel=db:1,x", "there is no option 'x'"),
            ("tunnel=db:1,db:x", "tunnel=db:x: write HOST:PORT"),
            ("db:1", "there is no option 'db:1'"),
            ("tunnel=a:1,diagnose,b:2", "there is no option 'b:2'"),
            ("tunnel-listen=name:80", "tunnel-listen=name:80: write a port"),
            ("diagnose=yes", "diagnose takes no value"),
            ("read-only,read-only", "read-only stands twice"),
            ("max-rate=1G,max-rate=1G", "max-rate stands twice"),
            ("root=/srv/a,root=/srv/b", "a key has one root"),
            ("read-only,write-only", "leave nothing"),
            ("read-only=yes", "read-only takes no value"),
            ("max-rate", "max-rate needs a value: max-rate=RATE"),
            ("root=", "root needs a value: root=DIR"),
            ("root=\"\"", "root needs a value: root=DIR"),
            ("max-rate=fast", "max-rate=fast: write bits a second"),
            ("max-rate=7k", "max-rate=7k: write bits a second, 8k or more"),
            ("max-rate=0", "max-rate=0:"),
            ("memory=63M", "memory=63M: write bytes, 64M or more"),
            ("memory=-1", "memory=-1:"),
            ("root=srv/a", "root=srv/a: write the whole path"),
            ("root=/srv/../etc", "root=/srv/../etc: write the whole path"),
            ("root=/etc", "root=/etc does not lie in /srv, which `root` names"),
            ("root=/srvx", "root=/srvx does not lie in /srv"),
            ("root=/", "root=/ does not lie in /srv"),
            ("root=\"/srv/a", "a quote is not closed"),
            ("root=\"/srv\"/a", "quotes stand around a whole value"),
            ("root=/srv/\"a\"", "quotes stand around a whole value"),
        ] {
            let error = rights(options).expect_err(options).to_string();
            assert!(error.contains(reason), "{options}: {error}");
        }
    }

    #[test]
    fn a_line_is_options_type_key_and_comment() {
        let (key, bounds) = (key(), bounds());
        let comment = |line: String| {
            parse(line.as_bytes(), &bounds).map(|made| made.map(|made| made.principal.comment))
        };
        for line in ["", "   ", "# read-only", "\t#"] {
            assert_eq!(comment(line.into()), Ok(None), "{line:?}");
        }
        for (line, expected) in [
            (key.clone(), ""),
            (format!("{key} me@here"), "me@here"),
            (format!("  {key}\t me, read-only root=/ # \r"), "me, read-only root=/ #"),
            (format!("read-only \t {key}  two words "), "two words"),
            (format!("{key} a\u{202e}b"), "a b"),
        ] {
            assert_eq!(comment(line.clone()), Ok(Some(expected.into())), "{line}");
        }
        for line in [
            "ssh-ed25519 AAAA x",
            "farhaul-ed25519",
            "farhaul-ed25519 MCow short",
            "read-only",
            "read-only x y",
        ] {
            assert_eq!(comment(line.into()), Err(LineError::NoKey), "{line}");
        }
        assert_eq!(comment(format!("read-only, max-rate=1G {key}")), Err(LineError::NoKey));
    }

    #[test]
    fn no_line_leaves_more_than_there_is() {
        let tight = Rights {
            root: "a".into(),
            access: Access::ReadOnly,
            overwrites: false,
            deletes: true,
            cipher_none: false,
            rate_max_bps: Some(1_000_000),
            memory_max: Some(1 << 30),
            diagnose: false,
            tunnel: Arc::default(),
            errand: None,
        };
        let bounds = KeyBounds { root: vec!["/srv".into()], rights: tight.clone() };
        let of = |options: &str| {
            parse(format!("{options} {}", key()).as_bytes(), &bounds).map(|made| made.expect("a key").rights)
        };
        assert_eq!(of(""), Ok(tight.clone()));
        assert_eq!(of("max-rate=2G,memory=2G,root=/srv/a"), Ok(tight.clone()));
        assert_eq!(of("root=/srv/a/b"), Ok(Rights { root: "a/b".into(), ..tight.clone() }));
        assert!(matches!(of("root=/srv/b"), Err(LineError::Outside(..))));
        assert_eq!(of("write-only"), Err(LineError::NothingHere("write-only", "read-only")));
        let streams = KeyBounds { root: Vec::new(), ..bounds };
        let line = format!("root=/srv/a {}", key());
        assert!(parse(line.as_bytes(), &streams).is_err_and(|error| error.to_string().contains("no files")));
    }

    fn of_options() -> impl Strategy<Value = String> {
        const WORDS: [&str; 15] = [
            "root=/srv/a",
            "root=\"/srv/a b\"",
            "read-only",
            "write-only",
            "no-cipher-none",
            "max-rate=1G",
            "max-rate=9k",
            "memory=1G",
            "=",
            "\"",
            "\\\"",
            ",",
            " ",
            "root=/srv/..",
            "x",
        ];
        proptest::collection::vec(proptest::sample::select(&WORDS[..]), 0..6)
            .prop_map(|words| words.join(","))
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, &bounds());
            let _ = parse(&[&bytes[..], b" ", key().as_bytes()].concat(), &bounds());
        }

        #[test]
        fn whatever_stands_before_a_key_it_gets_no_more_for_it(options in of_options()) {
            if let Ok(rights) = rights(&options) {
                let whole = Rights { root: "".into(), ..Rights::default() };
                prop_assert_eq!(whole.lack(&rights), None);
                prop_assert!(rights.root.components().all(|part| matches!(part, Component::Normal(_))));
            }
        }

        #[test]
        fn a_quoted_root_is_any_name(name in "[^/\\x00\\r\\n]{1,20}") {
            prop_assume!(name != "." && name != "..");
            let quoted = name.replace('"', "\\\"");
            // A value that ends with a backslash would take the quote behind it along.
            prop_assume!(!name.ends_with('\\') && !name.contains("\\\""));
            prop_assert_eq!(rights(&format!("root=\"/srv/{quoted}\"")).unwrap().root, Path::new(&name));
        }
    }
}
