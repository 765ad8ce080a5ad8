//! Reads the name of a source or destination: a local path, a pipe, a host over SSH, a daemon.
//!
//! The rules are scp's: `[user@]host:path`, a host in brackets for IPv6, and a name is local if a slash
//! stands before its first colon. Beyond scp there are URLs: `fh://[user@]host[:port]/path` for a daemon,
//! `ssh://` with an absolute path and `scp://` with one below the home directory, as OpenSSH reads it. Paths
//! are bytes and stay as they are: without percent decoding any file name can be written. `zero:`, `random:`
//! and `null:` are ends without files.

use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use farhaul_connect::{DEFAULT_PORT, DaemonTarget, NOT_IN_HOSTS, NOT_IN_USERS, SshTarget};
use farhaul_words::{Code, Error, amounts};

use super::job::Location;

/// A host as named by the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// The part before `@`.
    pub user: Option<String>,
    /// A name or an address; IPv6 without brackets.
    pub name: String,
    /// The port, if one was named.
    pub port: Option<u16>,
}

/// A source or a destination as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocationSpec {
    /// `-`: stdin as a source, stdout as a destination.
    Pipe,
    /// On this host.
    Local(PathBuf),
    /// On a host that ssh reaches.
    Ssh(HostSpec, Vec<u8>),
    /// The path is relative to the daemon's root; empty for the root itself.
    Daemon(HostSpec, Vec<u8>),
}

impl LocationSpec {
    /// Reads one argument.
    pub fn parse(argument: &OsStr) -> Result<LocationSpec, Error> {
        let bytes = argument.as_bytes();
        if bytes.is_empty() {
            return Err(usage("an empty name is no file; write . for the current directory"));
        }
        if bytes.contains(&0) {
            return Err(usage("a file name cannot contain a zero byte"));
        }
        if bytes == b"-" {
            return Ok(LocationSpec::Pipe);
        }
        if let Some(made) = without_files(bytes)? {
            return Ok(LocationSpec::Local(OsString::from_vec(made).into()));
        }
        if let Some((scheme, rest)) = split_scheme(bytes) {
            return url(scheme, rest, argument)?.resolved();
        }
        match colon(bytes) {
            None => Ok(LocationSpec::Local(PathBuf::from(argument))),
            Some(at) => {
                let host = host(&bytes[..at], Port::Forbid, argument)?;
                LocationSpec::Ssh(host, home_if_empty(&bytes[at + 1..])).resolved()
            }
        }
    }

    /// Reads an argument that names a host and no path: `[user@]host`, `ssh://host[:port]`,
    /// `fh://host[:port]`.
    pub fn parse_host(argument: &OsStr) -> Result<LocationSpec, Error> {
        let bytes = argument.as_bytes();
        let bad = |why: &str| Err(Error::new(Code::BadLocation, format!("{}: {why}", argument.display())));
        let place = match split_scheme(bytes) {
            Some((scheme, rest)) => url(scheme, rest, argument)?,
            None => {
                let name = bytes.strip_suffix(b":").unwrap_or(bytes);
                LocationSpec::Ssh(host(name, Port::Forbid, argument)?, home_if_empty(b""))
            }
        };
        match place.path() {
            b"" | b"." | b"/" => Ok(place),
            _ => bad("only a host is wanted here, without a path"),
        }
    }

    /// Converts the size in a far end's `zero:` or `random:` to bytes, as a copy needs it.
    fn resolved(self) -> Result<LocationSpec, Error> {
        let path = |path: Vec<u8>| Ok::<_, Error>(without_files(&path)?.unwrap_or(path));
        Ok(match self {
            LocationSpec::Ssh(host, name) => LocationSpec::Ssh(host, path(name)?),
            LocationSpec::Daemon(host, name) => LocationSpec::Daemon(host, path(name)?),
            LocationSpec::Pipe | LocationSpec::Local(_) => self,
        })
    }

    /// The location for a job; everything that the name does not say gets its default.
    pub fn to_location(&self) -> Location {
        match self {
            LocationSpec::Pipe => Location::Pipe,
            LocationSpec::Local(path) => Location::Local(path.clone()),
            LocationSpec::Ssh(host, path) => {
                let HostSpec { user, name, port } = host.clone();
                let target = SshTarget { user, host: name, port, ..SshTarget::default() };
                Location::Ssh { target, path: path.clone() }
            }
            LocationSpec::Daemon(host, path) => {
                let port = host.port.unwrap_or(DEFAULT_PORT);
                let target = DaemonTarget { host: host.name.clone(), port, ..DaemonTarget::default() };
                Location::Daemon { target, path: path.clone() }
            }
        }
    }

    /// The path, at either end.
    pub fn path(&self) -> &[u8] {
        match self {
            LocationSpec::Pipe => b"-",
            LocationSpec::Local(path) => path.as_os_str().as_bytes(),
            LocationSpec::Ssh(_, path) | LocationSpec::Daemon(_, path) => path,
        }
    }

    /// The same host with another path.
    pub fn with_path(&self, path: &[u8]) -> LocationSpec {
        match self {
            LocationSpec::Pipe | LocationSpec::Local(_) => {
                LocationSpec::Local(OsString::from_vec(path.to_vec()).into())
            }
            LocationSpec::Ssh(host, _) => LocationSpec::Ssh(host.clone(), path.to_vec()),
            LocationSpec::Daemon(host, _) => LocationSpec::Daemon(host.clone(), path.to_vec()),
        }
    }

    /// Whether it is standard input, also by the system's names for that.
    pub fn is_input(&self) -> bool {
        const NAMES: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
        match self {
            LocationSpec::Pipe => true,
            LocationSpec::Local(path) => NAMES.iter().any(|name| path.as_os_str() == *name),
            LocationSpec::Ssh(..) | LocationSpec::Daemon(..) => false,
        }
    }

    /// Whether it takes everything and keeps nothing.
    pub fn is_sink(&self) -> bool {
        self.path() == b"null:"
    }

    /// Whether its content is generated.
    pub fn is_made(&self) -> bool {
        MADE.iter().any(|kind| self.path().starts_with(kind.as_bytes()))
    }

    /// The host, if the location is remote.
    pub fn host(&self) -> Option<&HostSpec> {
        match self {
            LocationSpec::Ssh(host, _) | LocationSpec::Daemon(host, _) => Some(host),
            LocationSpec::Pipe | LocationSpec::Local(_) => None,
        }
    }

    /// Whether both are on the same host, reached in the same way by the same user.
    pub fn is_beside(&self, other: &LocationSpec) -> bool {
        match (self, other) {
            (LocationSpec::Ssh(one, _), LocationSpec::Ssh(two, _))
            | (LocationSpec::Daemon(one, _), LocationSpec::Daemon(two, _)) => one == two,
            (LocationSpec::Local(_), LocationSpec::Local(_)) => true,
            _ => false,
        }
    }
}

fn usage(text: &str) -> Error {
    Error::new(Code::BadLocation, text.to_string())
}

const MADE: [&str; 2] = ["zero:", "random:"];

/// Reads `null:`, `zero:`, `random:` or `random:4G`, and writes a size in bytes as a copy needs it.
/// `None` for any other name.
fn without_files(name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    if name == b"null:" {
        return Ok(Some(name.to_vec()));
    }
    let Some(kind) = MADE.into_iter().find(|kind| name.starts_with(kind.as_bytes())) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&name[kind.len()..]);
    if text.is_empty() {
        return Ok(Some(name.to_vec()));
    }
    let bytes = amounts::size(&text).ok_or_else(|| {
        let why = format!("'{text}' is not a size; write bytes, such as 256M or 1G");
        Error::new(Code::BadLocation, format!("{kind}{text}: {why} (a file of that name: ./{kind}{text})"))
    })?;
    Ok(Some(format!("{kind}{bytes}").into_bytes()))
}

/// Splits `scheme://rest`. A scheme is a letter and then letters and digits.
fn split_scheme(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(3).position(|three| three == b"://")?;
    let scheme = &bytes[..at];
    let is_scheme =
        scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(u8::is_ascii_alphanumeric);
    is_scheme.then(|| (scheme, &bytes[at + 3..]))
}

fn url(scheme: &[u8], rest: &[u8], argument: &OsStr) -> Result<LocationSpec, Error> {
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let below = path.strip_prefix(b"/").unwrap_or(path);
    match scheme {
        b"fh" => Ok(LocationSpec::Daemon(host(authority, Port::Allow, argument)?, below.to_vec())),
        b"scp" => Ok(LocationSpec::Ssh(host(authority, Port::Allow, argument)?, home_if_empty(below))),
        b"ssh" => {
            // `/~/x` and `/~user/x` name home directories, as in git's URLs.
            let path = if below.starts_with(b"~") { below } else { path };
            Ok(LocationSpec::Ssh(host(authority, Port::Allow, argument)?, home_if_empty(path)))
        }
        _ => Err(Error::new(
            Code::BadLocation,
            format!(
                "{}: unknown kind of address; use host:path, ssh://host/path or fh://host/path (a local file: ./{0})",
                argument.display()
            ),
        )),
    }
}

/// The path over SSH: relative to the home directory, which an empty path stands for.
fn home_if_empty(path: &[u8]) -> Vec<u8> {
    if path.is_empty() { b".".to_vec() } else { path.to_vec() }
}

/// The colon between host and path, by scp's rules; `None` for a local name.
fn colon(bytes: &[u8]) -> Option<usize> {
    if bytes[0] == b':' {
        return None;
    }
    let mut bracket = bytes[0] == b'[';
    for (at, byte) in bytes.iter().enumerate() {
        let next = bytes.get(at + 1);
        match byte {
            b'@' if next == Some(&b'[') => bracket = true,
            b']' if bracket && next == Some(&b':') => return Some(at + 1),
            b':' if !bracket => return Some(at),
            b'/' => return None,
            _ => {}
        }
    }
    None
}

/// The most bytes of a host's name, and of a user's. Names in the DNS have at most 253, users of a host 32.
const HOST_BYTES_MAX: usize = 255;

/// Whether a port may follow the host.
#[derive(Clone, Copy, PartialEq)]
enum Port {
    Allow,
    Forbid,
}

fn host(authority: &[u8], port_rule: Port, argument: &OsStr) -> Result<HostSpec, Error> {
    let bad = |why: &str| Error::new(Code::BadLocation, format!("{}: {why}", argument.display()));
    let authority = std::str::from_utf8(authority).map_err(|_| bad("the host name is not UTF-8"))?;
    let (user, address) = match authority.rsplit_once('@') {
        Some((user, address)) => (Some(user), address),
        None => (None, authority),
    };
    let (name, port) = match address.strip_prefix('[') {
        Some(inner) => {
            let (name, after) = inner.split_once(']').ok_or_else(|| bad("a bracket is not closed"))?;
            let bare = name.split('%').next().unwrap_or(name);
            if port_rule == Port::Allow && bare.parse::<Ipv6Addr>().is_err() {
                return Err(bad("brackets are for an IPv6 address, such as [fd00::2]"));
            }
            let port = if after.is_empty() {
                None
            } else {
                Some(after.strip_prefix(':').ok_or_else(|| bad("only :port may follow after ]"))?)
            };
            (name, port)
        }
        None => match address.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(bad("an IPv6 address is written in brackets, such as [fd00::2]"));
            }
            Some((name, port)) => (name, Some(port)),
            None => (address, None),
        },
    };
    let is_plain = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && !text.contains(|c: char| c.is_control() || c.is_whitespace())
    };
    let is_safe = |text: &str, signs: &str| is_plain(text) && !text.contains(|c| signs.contains(c));
    if !is_safe(name, NOT_IN_HOSTS) || name.len() > HOST_BYTES_MAX {
        return Err(bad("there is no valid host name"));
    }
    if user.is_some_and(|user| !is_safe(user, NOT_IN_USERS) || user.len() > HOST_BYTES_MAX) {
        return Err(bad("there is no valid user name before @"));
    }
    let port = match port {
        None => None,
        Some(text) => {
            let number = text.parse::<u16>().ok().filter(|port| *port != 0 && port_rule == Port::Allow);
            Some(number.ok_or_else(|| bad("the port is not a number from 1 to 65535"))?)
        }
    };
    Ok(HostSpec { user: user.map(str::to_string), name: name.to_string(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LocationSpec, Error> {
        LocationSpec::parse(OsStr::new(text))
    }

    fn at(user: &str, name: &str, port: u16) -> HostSpec {
        let user = (!user.is_empty()).then(|| user.to_string());
        HostSpec { user, name: name.to_string(), port: (port != 0).then_some(port) }
    }

    #[test]
    fn local_names() {
        for text in [
            "a",
            "./a:b",
            "dir/a:b",
            "/x:y",
            ":a",
            "dir/",
            ".",
            "..",
            "~/x",
            "[a",
            "[a]b",
            "a@b",
            "./-",
            "dir/fh://x",
        ] {
            assert_eq!(parse(text).unwrap(), LocationSpec::Local(PathBuf::from(text)), "{text}");
        }
        assert_eq!(parse("-").unwrap(), LocationSpec::Pipe);
        let bytes = OsStr::from_bytes(b"caf\xe9");
        assert_eq!(LocationSpec::parse(bytes).unwrap(), LocationSpec::Local(PathBuf::from(bytes)));
    }

    #[test]
    fn names_over_ssh() {
        let table: [(&str, HostSpec, &str); 14] = [
            ("host:", at("", "host", 0), "."),
            ("host:x", at("", "host", 0), "x"),
            ("host:/data/", at("", "host", 0), "/data/"),
            ("user@host:~/x", at("user", "host", 0), "~/x"),
            ("user@dom@host:x", at("user@dom", "host", 0), "x"),
            ("host:a:b", at("", "host", 0), "a:b"),
            ("[fd00::2]:x", at("", "fd00::2", 0), "x"),
            ("user@[fe80::1%eth0]:/x", at("user", "fe80::1%eth0", 0), "/x"),
            ("[host]:x", at("", "host", 0), "x"),
            ("ssh://host/x", at("", "host", 0), "/x"),
            ("ssh://u@[fd00::2]:2222/~/x", at("u", "fd00::2", 2222), "~/x"),
            ("ssh://host", at("", "host", 0), "."),
            ("scp://host/x", at("", "host", 0), "x"),
            ("scp://host:22//x", at("", "host", 22), "/x"),
        ];
        for (text, host, path) in table {
            assert_eq!(parse(text).unwrap(), LocationSpec::Ssh(host, path.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn no_name_of_a_host_or_user_is_a_command_of_a_shell() {
        for name in [
            "h;id",
            "h$(id)",
            "h`id`",
            "h|id",
            "h&id",
            "h>x",
            "h'x",
            "h\"x",
            "h\\x",
            "{h,i}",
            "-oProxyCommand=x",
        ] {
            for text in [format!("ssh://{name}/x"), format!("fh://{name}/x"), format!("u@{name}:/x")] {
                assert!(parse(&text).is_err(), "{text}");
            }
        }
        assert!(parse("ssh://[fe80::1%eth0;id]/x").is_err() && parse("[fe80::1%$(id)]:/x").is_err());
        for user in ["u;id", "u`id`", "u|id", "-l"] {
            assert!(parse(&format!("ssh://{user}@h/x")).is_err(), "{user}");
        }
        assert_eq!(
            parse("DOM\\host$@h:/x").unwrap(),
            LocationSpec::Ssh(at("DOM\\host$", "h", 0), b"/x".to_vec())
        );
    }

    #[test]
    fn hosts_alone() {
        let host = |text: &str| LocationSpec::parse_host(OsStr::new(text)).map(|place| place.host().cloned());
        for (text, expected) in [
            ("dtn", at("", "dtn", 0)),
            ("me@dtn:", at("me", "dtn", 0)),
            ("[fd00::2]", at("", "fd00::2", 0)),
            ("ssh://me@dtn:2222", at("me", "dtn", 2222)),
            ("fh://dtn:5/", at("", "dtn", 5)),
        ] {
            assert_eq!(host(text).unwrap(), Some(expected), "{text}");
        }
        for text in ["", "dtn:x", "fd00::2", "fh://dtn/x", "ssh://dtn/x", "-x", "ftp://dtn"] {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ends_without_files() {
        for (text, path) in [
            ("null:", "null:"),
            ("zero:", "zero:"),
            ("random:4G", "random:4294967296"),
            ("zero:1.5k", "zero:1536"),
            ("./zero:1", "./zero:1"),
        ] {
            assert_eq!(parse(text).unwrap(), LocationSpec::Local(PathBuf::from(path)), "{text}");
        }
        let far = |path: &str| LocationSpec::Ssh(at("", "host", 0), path.as_bytes().to_vec());
        assert_eq!(parse("host:zero:1k").unwrap(), far("zero:1024"));
        assert_eq!(parse("host:./zero:1k").unwrap(), far("./zero:1k"));
        assert_eq!(parse("user@null:").unwrap(), LocationSpec::Ssh(at("user", "null", 0), b".".to_vec()));
        let daemon = LocationSpec::Daemon(at("", "host", 0), b"null:".to_vec());
        assert_eq!(parse("fh://host/null:").unwrap(), daemon);
        assert!(parse("zero:x").is_err() && parse("host:random:0").is_err());
    }

    #[test]
    fn names_of_daemons() {
        let table: [(&str, HostSpec, &str); 7] = [
            ("fh://host:33001/incoming/", at("", "host", 33001), "incoming/"),
            ("fh://host/a/b c%20", at("", "host", 0), "a/b c%20"),
            ("fh://host", at("", "host", 0), ""),
            ("fh://host/", at("", "host", 0), ""),
            ("fh://u@[fd00::2]:5/x", at("u", "fd00::2", 5), "x"),
            ("fh://[fd00::2]/incoming/run7", at("", "fd00::2", 0), "incoming/run7"),
            ("fh://192.0.2.1/x@y:z", at("", "192.0.2.1", 0), "x@y:z"),
        ];
        for (text, host, path) in table {
            assert_eq!(parse(text).unwrap(), LocationSpec::Daemon(host, path.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "@host:x",
            "user@:x",
            "-oProxyCommand=x:y",
            "-u@host:x",
            "h ost:x",
            "http://host/x",
            "fh://",
            "fh:///x",
            "fh://fd00::2/x",
            "fh://[fd00::2/x",
            "fh://[nonsense]/x",
            "fh://[fd00::2]x/y",
            "fh://host:0/x",
            "fh://host:65536/x",
            "fh://host:/x",
            "fh://-host/x",
            "ssh://host:x/y",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.exit_code() as u8, 2, "{text}");
        }
    }

    #[test]
    fn places_on_one_host_are_beside_each_other() {
        let beside = |one: &str, two: &str| parse(one).unwrap().is_beside(&parse(two).unwrap());
        assert!(beside("h:a", "h:b"));
        assert!(beside("fh://h/a", "fh://h/b"));
        assert!(beside("a", "b/"));
        assert!(!beside("h:a", "u@h:b"));
        assert!(!beside("fh://h/a", "fh://h:5/b"));
        assert!(!beside("h:a", "fh://h/a"));
        assert!(!beside("a", "-"));
    }
}
