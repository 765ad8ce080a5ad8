//! Clients that a daemon serves: lines as in a `.pub` file, read again whenever the file has changed.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::identity::KEY_TYPE;
use crate::error::Error;

/// An Ed25519 SubjectPublicKeyInfo: a fixed head (RFC 8410 section 4) and 32 bytes.
const SPKI_LEN: usize = 44;
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The authorized-keys file.
#[derive(Debug)]
pub struct AuthorizedKeys {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Modification time and length of what was read.
    version: Option<(SystemTime, u64)>,
    /// Public key and comment.
    keys: Vec<(Vec<u8>, String)>,
}

impl AuthorizedKeys {
    /// Reads the file; a line that is no key is reported in the log and skipped.
    pub fn load(path: &Path) -> Result<AuthorizedKeys, Error> {
        let read = || Error::io(format!("cannot read the authorized keys {}", path.display()));
        let version = version(path).map_err(read())?;
        let keys = parse(&std::fs::read_to_string(path).map_err(read())?, path);
        Ok(AuthorizedKeys {
            path: path.to_path_buf(),
            state: Mutex::new(State { version: Some(version), keys }),
        })
    }

    /// The comment of an authorized key.
    pub(crate) fn comment_of(&self, spki: &[u8]) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.refresh(&mut state);
        state.keys.iter().find(|key| key.0 == spki).map(|key| key.1.clone())
    }

    /// A file that has gone or cannot be read authorises nobody: taking the file away must close the door.
    fn refresh(&self, state: &mut State) {
        let now = version(&self.path).ok();
        if now == state.version && now.is_some() {
            return;
        }
        match (now, std::fs::read_to_string(&self.path)) {
            (Some(now), Ok(text)) => *state = State { version: Some(now), keys: parse(&text, &self.path) },
            _ => {
                tracing::warn!("cannot read the authorized keys {}: nobody is let in", self.path.display());
                *state = State::default();
            }
        }
    }

    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn version(path: &Path) -> std::io::Result<(SystemTime, u64)> {
    let meta = std::fs::metadata(path)?;
    Ok((meta.modified()?, meta.len()))
}

fn parse(text: &str, path: &Path) -> Vec<(Vec<u8>, String)> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_line(line) {
            Some(key) => keys.push(key),
            None => tracing::warn!("{}:{}: not a farhaul public key, skipped", path.display(), index + 1),
        }
    }
    keys
}

fn parse_line(line: &str) -> Option<(Vec<u8>, String)> {
    let mut words = line.splitn(3, char::is_whitespace);
    if words.next()? != KEY_TYPE {
        return None;
    }
    let spki = STANDARD.decode(words.next()?).ok()?;
    if spki.len() != SPKI_LEN || !spki.starts_with(&SPKI_HEAD) {
        return None;
    }
    Some((spki, words.next().unwrap_or("").trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::identity::{Identity, keygen};

    #[test]
    fn only_the_keys_of_the_file_as_it_is_now_are_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            keygen(&path, name).unwrap();
            Identity::load(&path).unwrap()
        };
        let (alice, bob) = (make("alice"), make("bob"));
        let spki = |who: &Identity| who.certified().cert[0].to_vec();
        let file = folder.path().join("authorized_keys");
        std::fs::write(
            &file,
            format!("# us\n{}\nssh-ed25519 AAAA x\nfarhaul-ed25519 MCow short\n", alice.public_line("alice")),
        )
        .unwrap();
        let keys = AuthorizedKeys::load(&file).unwrap();
        assert_eq!(keys.len(), 1);
        assert_eq!(keys.comment_of(&spki(&alice)).as_deref(), Some("alice"));
        assert_eq!(keys.comment_of(&spki(&bob)), None);
        std::fs::write(&file, format!("{}\n", bob.public_line(""))).unwrap();
        assert_eq!(keys.comment_of(&spki(&alice)), None);
        assert_eq!(keys.comment_of(&spki(&bob)).as_deref(), Some(""));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(keys.comment_of(&spki(&bob)), None);
    }
}
