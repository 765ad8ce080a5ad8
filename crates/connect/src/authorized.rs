//! Clients that a daemon serves: lines as in a `.pub` file, read again whenever somebody is judged.
//!
//! Always true: what counts is the content of the file now. Neither its times nor its size can hide a change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_session::error::Error;

use super::identity::KEY_TYPE;

/// An Ed25519 SubjectPublicKeyInfo: a fixed head (RFC 8410 section 4) and 32 bytes.
const SPKI_LEN: usize = 44;
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The authorized-keys file.
#[derive(Debug)]
pub struct AuthorizedKeys {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What was read last, if it could be.
    content: Option<Vec<u8>>,
    keys: Arc<Keys>,
}

/// Public keys, each with its comment.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<(Vec<u8>, String)>);

impl Keys {
    pub(crate) fn has(&self, spki: &[u8]) -> bool {
        self.0.iter().any(|key| key.0 == spki)
    }
}

impl AuthorizedKeys {
    /// Reads the file; a line that is no key is reported in the log and skipped.
    pub fn load(path: &Path) -> Result<AuthorizedKeys, Error> {
        let failed = Error::io(format!("cannot read the authorized keys {}", path.display()));
        let content = std::fs::read(path).map_err(failed)?;
        let keys = Arc::new(parse(&content, path));
        let state = Mutex::new(State { content: Some(content), keys });
        Ok(AuthorizedKeys { path: path.to_path_buf(), state })
    }

    /// The keys as they are now.
    pub(crate) fn now(&self) -> Arc<Keys> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.refresh(&mut state);
        Arc::clone(&state.keys)
    }

    /// A file that has gone or cannot be read authorises nobody: taking the file away must close the door.
    fn refresh(&self, state: &mut State) {
        let content = match std::fs::read(&self.path) {
            Ok(content) => Some(content),
            Err(error) => {
                if state.content.is_some() {
                    tracing::warn!(
                        "cannot read the authorized keys {}, nobody is let in: {error}",
                        self.path.display()
                    );
                }
                None
            }
        };
        if content == state.content {
            return;
        }
        state.keys =
            Arc::new(content.as_deref().map(|content| parse(content, &self.path)).unwrap_or_default());
        if content.is_some() {
            tracing::info!(authorized = state.keys.0.len(), "the authorized keys have changed");
        }
        state.content = content;
    }

    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).keys.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn parse(content: &[u8], path: &Path) -> Keys {
    let mut keys = Vec::new();
    for (index, line) in String::from_utf8_lossy(content).lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_line(line) {
            Some(key) => keys.push(key),
            None => tracing::warn!("{}:{}: not a farhaul public key, skipped", path.display(), index + 1),
        }
    }
    Keys(keys)
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
    use super::super::identity::{Identity, keygen};
    use super::*;

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
        let lets_in = |who: &Identity| keys.now().has(&spki(who));
        assert!(lets_in(&alice) && !lets_in(&bob));
        std::fs::write(&file, format!("{}\n", bob.public_line("1"))).unwrap();
        assert!(!lets_in(&alice) && lets_in(&bob));
        // Of the same length and with the same time, as `cp -p` and `rsync -t` may leave it.
        let before = std::fs::metadata(&file).unwrap();
        std::fs::write(&file, format!("{}\n", alice.public_line("2"))).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(before.modified().unwrap())
            .unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().len(), before.len());
        assert!(lets_in(&alice) && !lets_in(&bob));
        std::fs::remove_file(&file).unwrap();
        assert!(!lets_in(&alice) && !lets_in(&bob));
        std::fs::write(&file, [bob.public_line("Bj").as_bytes(), b"\xf6rn\n"].concat()).unwrap();
        assert!(lets_in(&bob));
    }
}
