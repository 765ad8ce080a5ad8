//! The servers seen before: lines of "host:port fingerprint", trusted on first use as ssh does it.
//!
//! Always true: a host with another key than the known one is refused, whatever options are given; lines are
//! only ever appended.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use farhaul_words::Error;

use super::identity::{config_folder, create_private_folder};

/// The default path of the file.
pub fn default_known_hosts_path() -> PathBuf {
    config_folder().join("known_hosts")
}

/// The file as it was when it was read.
#[derive(Debug)]
pub struct KnownHosts {
    path: PathBuf,
    /// The host, the fingerprint, and the number of each line.
    lines: Vec<(String, String, usize)>,
}

/// The standing of a server's key in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyStanding {
    Known,
    Unknown,
    /// Another key is known for this host.
    Changed {
        line: usize,
    },
}

impl KnownHosts {
    /// Reads the file; one that does not exist knows no host.
    pub fn load(path: &Path) -> Result<KnownHosts, Error> {
        let text = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::io(format!("cannot read {}", path.display()))(error)),
        };
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            if let (Some(host), Some(key)) = (words.next(), words.next())
                && !host.starts_with('#')
            {
                lines.push((host.to_string(), key.to_string(), index + 1));
            }
        }
        Ok(KnownHosts { path: path.to_path_buf(), lines })
    }

    /// The fingerprints known for the server at a host's port.
    pub fn keys_for(&self, host: &str, port: u16) -> Vec<String> {
        self.keys_of(&host_name(host, port))
    }

    /// The fingerprints known for `host` (as [`host_name`] writes it).
    pub(crate) fn keys_of(&self, host: &str) -> Vec<String> {
        self.lines.iter().filter(|line| line.0 == host).map(|line| line.1.clone()).collect()
    }

    pub(crate) fn standing(&self, host: &str, key: &str) -> KeyStanding {
        let of_host = || self.lines.iter().filter(|line| line.0 == host);
        match of_host().next() {
            None => KeyStanding::Unknown,
            Some(_) if of_host().any(|known| known.1 == key) => KeyStanding::Known,
            Some(&(_, _, line)) => KeyStanding::Changed { line },
        }
    }

    /// Remembers a key.
    pub(crate) fn append(&mut self, host: &str, key: &str) -> Result<(), Error> {
        let failed = || Error::io(format!("cannot write {}", self.path.display()));
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            create_private_folder(folder)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(failed())?;
        // An editor may have left the last line without its end; our line must not run into it.
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(failed())?;
        let start = if content.last().is_some_and(|&byte| byte != b'\n') { "\n" } else { "" };
        file.write_all(format!("{start}{host} {key}\n").as_bytes()).map_err(failed())?;
        self.lines.push((host.to_string(), key.to_string(), self.lines.len() + 1));
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A server's name in the file: lower case, IPv6 addresses in brackets, always with the port.
pub(crate) fn host_name(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{}]:{port}", host.to_ascii_lowercase())
    } else {
        format!("{}:{port}", host.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_unknown_then_known_then_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x/known_hosts");
        let mut known = KnownHosts::load(&path).unwrap();
        assert_eq!(known.standing("dtn:1", "SHA256:a"), KeyStanding::Unknown);
        known.append("dtn:1", "SHA256:a").unwrap();
        let known = KnownHosts::load(&path).unwrap();
        assert_eq!(known.standing("dtn:1", "SHA256:a"), KeyStanding::Known);
        assert_eq!(known.standing("dtn:1", "SHA256:b"), KeyStanding::Changed { line: 1 });
        assert_eq!(
            known.standing("dtn:2", "SHA256:b"),
            KeyStanding::Unknown,
            "another port is another server"
        );
    }

    #[test]
    fn comments_blank_lines_and_a_missing_line_end_are_fine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known_hosts");
        std::fs::write(&path, "# mine\n\nold:1 SHA256:x\nold:1 SHA256:y\n#old:2 SHA256:z\nlast:1 SHA256:l")
            .unwrap();
        let mut known = KnownHosts::load(&path).unwrap();
        assert_eq!(known.standing("old:1", "SHA256:y"), KeyStanding::Known, "any of several keys");
        assert_eq!(known.standing("old:1", "SHA256:q"), KeyStanding::Changed { line: 3 });
        assert_eq!(known.standing("old:2", "SHA256:z"), KeyStanding::Unknown);
        known.append("new:1", "SHA256:n").unwrap();
        let known = KnownHosts::load(&path).unwrap();
        assert_eq!(known.standing("last:1", "SHA256:l"), KeyStanding::Known);
        assert_eq!(known.standing("new:1", "SHA256:n"), KeyStanding::Known);
    }

    #[test]
    fn names_are_written_one_way() {
        assert_eq!(host_name("DTN.example", 33001), "dtn.example:33001");
        assert_eq!(host_name("FD00::2", 33001), "[fd00::2]:33001");
    }
}
