//! The clients that a daemon serves: a file with lines as in a `.pub` file, with options before them. It is
//! read again whenever somebody is judged.
//!
//! Always true: the present content of the file counts. Neither its times nor its size can hide a change. Only
//! while this process cannot open it, for want of descriptors or memory, a file whose inode, size and `ctime`
//! are those of the last reading counts as unchanged.

mod line;

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use farhaul_text::plain;
use farhaul_words::{Code, Error, is_of_resources};

use super::principal::{AuthenticatedPeer, Authenticator, HandshakeProof, PrincipalId};
use super::rights::Rights;
use line::LineError;

pub use line::KeyBounds;

/// The file of authorized keys.
#[derive(Debug)]
pub struct AuthorizedKeys {
    path: PathBuf,
    bounds: KeyBounds,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What was last read, if the file could be read.
    read: Option<FileRead>,
    keys: Arc<Keys>,
}

/// The content of the file, and what tells it from another version of itself.
#[derive(Debug)]
struct FileRead {
    content: Vec<u8>,
    version: FileVersion,
}

/// Every change of a file also changes its `ctime`, which no call can set.
#[derive(Debug, PartialEq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    ctime: (i64, i64),
}

impl FileVersion {
    fn of(meta: &Metadata) -> FileVersion {
        FileVersion {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            ctime: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

impl FileRead {
    fn read(path: &Path) -> io::Result<FileRead> {
        let mut file = File::open(path)?;
        // A change during the reading makes the version differ from what it is then.
        let version = FileVersion::of(&file.metadata()?);
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok(FileRead { content, version })
    }

    fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns whether the file is the one that was read. This takes no descriptor.
    fn is_still(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|meta| FileVersion::of(&meta) == self.version)
    }
}

/// The keys that the lines let in, with their line numbers.
#[derive(Debug, Default)]
struct Keys(Vec<(usize, AuthenticatedPeer)>);

impl Keys {
    fn find(&self, id: &PrincipalId) -> Option<&AuthenticatedPeer> {
        self.0.iter().map(|(_, who)| who).find(|who| who.principal.id == *id)
    }
}

impl AuthorizedKeys {
    /// Reads the file; no line gives more than `bounds`. A line that has no valid key, or an option that is
    /// not understood, lets nobody in; the log says which line and why.
    pub fn load(path: &Path, bounds: KeyBounds) -> Result<AuthorizedKeys, Error> {
        let failed = |error: io::Error| {
            let what = format!("cannot read the authorized keys {}: {}", path.display(), plain(&error));
            Error::new(Code::of_files(&error), what)
        };
        let read = FileRead::read(path).map_err(failed)?;
        let keys = Arc::new(parse(&read.content, path, &bounds));
        let state = Mutex::new(State { read: Some(read), keys });
        Ok(AuthorizedKeys { path: path.to_path_buf(), bounds, state })
    }

    /// The keys as they are now.
    fn now(&self) -> Arc<Keys> {
        let mut state = self.state.lock().in_any_case();
        self.refresh(&mut state, FileRead::read(&self.path));
        Arc::clone(&state.keys)
    }

    /// A file that is gone or cannot be read authorizes nobody, so that taking it away closes the door. But
    /// what this process lacks says nothing about the file.
    fn refresh(&self, state: &mut State, read: io::Result<FileRead>) {
        let read = match read {
            Ok(read) => Some(read),
            Err(error)
                if is_of_resources(&error)
                    && state.read.as_ref().is_some_and(|last| last.is_still(&self.path)) =>
            {
                return;
            }
            Err(error) => {
                if state.read.is_some() {
                    tracing::warn!(
                        "cannot read the authorized keys {}, nobody is let in: {}",
                        self.path.display(),
                        plain(&error)
                    );
                }
                None
            }
        };
        if read.as_ref().map(FileRead::content) != state.read.as_ref().map(FileRead::content) {
            let parsed = read.as_ref().map(|read| parse(&read.content, &self.path, &self.bounds));
            state.keys = Arc::new(parsed.unwrap_or_default());
            if read.is_some() {
                tracing::info!(authorized = state.keys.0.len(), "the authorized keys have changed");
            }
        }
        state.read = read;
    }

    /// The number of keys that are let in.
    pub fn len(&self) -> usize {
        self.state.lock().in_any_case().keys.0.len()
    }

    /// Returns whether no key is let in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Authenticator for AuthorizedKeys {
    fn authenticate(&self, proof: HandshakeProof<'_>) -> Option<AuthenticatedPeer> {
        let HandshakeProof::Ed25519(spki) = proof;
        self.now().find(&PrincipalId::Ed25519(spki.to_vec())).cloned()
    }

    fn rights_now(&self, of: &[PrincipalId]) -> Vec<Option<Rights>> {
        let keys = self.now();
        of.iter().map(|id| keys.find(id).map(|who| who.rights.clone())).collect()
    }
}

fn parse(content: &[u8], path: &Path, bounds: &KeyBounds) -> Keys {
    let mut keys = Keys::default();
    for (line, number) in content.split(|&byte| byte == b'\n').zip(1..) {
        let refused = match line::parse(line, bounds) {
            Ok(None) => continue,
            // If two lines have the same key, the first one counts, as with ssh.
            Ok(Some(who)) => match keys.0.iter().find(|(_, other)| other.principal.id == who.principal.id) {
                None => {
                    warn_of_missing_root(&who.rights, bounds, (path, number));
                    keys.0.push((number, who));
                    continue;
                }
                Some((first, _)) => LineError::KeyTwice(*first),
            },
            Err(refused) => refused,
        };
        tracing::warn!("{}:{number}: {refused}; this line lets nobody in", path.display());
    }
    keys
}

/// Warns of a root that does not exist. The line counts all the same: the directory may be made later, and
/// each session looks for itself.
fn warn_of_missing_root(rights: &Rights, bounds: &KeyBounds, (path, number): (&Path, usize)) {
    let Some(whole) = bounds.root.first().filter(|_| !rights.root.as_os_str().is_empty()) else { return };
    let root = whole.join(&rights.root);
    if !root.is_dir() {
        tracing::warn!("{}:{number}: there is no directory {} now", path.display(), root.display());
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::super::identity::{Identity, keygen};
    use super::super::rights::Access;
    use super::*;

    fn new_key(folder: &Path, name: &str) -> Identity {
        let path = folder.join(name);
        keygen(&path, name).unwrap();
        Identity::load(&path).unwrap()
    }

    #[test]
    fn only_the_keys_of_the_file_as_it_is_now_are_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let (alice, bob) = (new_key(folder.path(), "alice"), new_key(folder.path(), "bob"));
        let spki = |who: &Identity| who.certified().cert[0].to_vec();
        let file = folder.path().join("authorized_keys");
        std::fs::write(
            &file,
            format!("# us\n{}\nssh-ed25519 AAAA x\nfarhaul-ed25519 MCow short\n", alice.public_line("alice")),
        )
        .unwrap();
        let keys = AuthorizedKeys::load(&file, KeyBounds::default()).unwrap();
        assert_eq!(keys.len(), 1);
        let lets_in = |who: &Identity| keys.authenticate(HandshakeProof::Ed25519(&spki(who))).is_some();
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

    #[test]
    fn a_process_that_can_open_nothing_still_knows_the_keys() {
        let folder = tempfile::tempdir().unwrap();
        let key = new_key(folder.path(), "key");
        let file = folder.path().join("authorized_keys");
        std::fs::write(&file, key.public_line("me")).unwrap();
        let keys = AuthorizedKeys::load(&file, KeyBounds::default()).unwrap();
        let known_after = |errno: Errno| {
            let mut state = keys.state.lock().in_any_case();
            keys.refresh(&mut state, Err(errno.into()));
            state.keys.0.len()
        };
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert_eq!(known_after(errno), 1);
        }
        // A file that has changed cannot be known without being read.
        std::fs::write(&file, key.public_line("i")).unwrap();
        assert_eq!(known_after(Errno::MFILE), 0);
        assert_eq!(keys.now().0.len(), 1);
        assert_eq!(known_after(Errno::IO), 0);
        assert_eq!(keys.now().0.len(), 1);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(known_after(Errno::MFILE), 0);
    }

    #[test]
    fn the_first_good_line_of_a_key_counts() {
        let folder = tempfile::tempdir().unwrap();
        let key = new_key(folder.path(), "key");
        let file = folder.path().join("authorized_keys");
        let (line, id) = (key.public_line("me"), PrincipalId::Ed25519(key.certified().cert[0].to_vec()));
        let rights = |content: String| {
            std::fs::write(&file, content).unwrap();
            let keys = AuthorizedKeys::load(&file, KeyBounds::default()).unwrap();
            let rights = keys.rights_now(&[PrincipalId::Ed25519(Vec::new()), id.clone()]);
            assert_eq!(rights[0], None);
            rights[1].clone()
        };
        let read_only = Rights { access: Access::ReadOnly, ..Rights::default() };
        assert_eq!(rights(format!("read-only {line}\n{line}\n")), Some(read_only.clone()));
        assert_eq!(rights(format!("{line}\nread-only {line}\n")), Some(Rights::default()));
        assert_eq!(rights(format!("readonly {line}\nread-only {line}\n")), Some(read_only));
        assert_eq!(rights(format!("readonly {line}\n")), None);
    }
}
