//! Paths, and secrets, which are named by where they lie.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use farhaul::{Code, Error};

use super::{TextValue, written};

/// A path from `/` on, without `..`: what it means does not depend on who started the service where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbsolutePath(PathBuf);

/// Where a secret lies: a file, or a credential that the service manager hands over. Never the secret itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// A file.
    File(AbsolutePath),
    /// `$CREDENTIALS_DIRECTORY/NAME`.
    Credential(String),
}

/// What becomes of a watched file when the receiver has confirmed and synced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterValue {
    /// It stays as it is.
    Keep,
    /// A file beside it says so.
    Mark,
    /// It is deleted.
    Delete,
    /// It is moved into this directory.
    Move(AbsolutePath),
}

written!(AbsolutePath, SecretPlace, AfterValue);

impl AbsolutePath {
    /// The path, if it is one.
    pub fn new(path: impl Into<PathBuf>) -> Option<AbsolutePath> {
        let path = path.into();
        let is_plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
        let is_text = path.to_str().is_some_and(|text| !text.contains('\0'));
        (is_plain && is_text).then_some(AbsolutePath(path))
    }

    /// As the system takes it.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// `/`.
    pub(crate) fn root() -> AbsolutePath {
        AbsolutePath(PathBuf::from("/"))
    }

    pub(crate) fn join(&self, name: &str) -> AbsolutePath {
        AbsolutePath(self.0.join(name))
    }
}

impl TextValue for AbsolutePath {
    const EXPECTED: &'static str = "an absolute path without \"..\"";

    fn read(text: &str) -> Option<AbsolutePath> {
        AbsolutePath::new(text)
    }
}

impl Display for AbsolutePath {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(formatter)
    }
}

/// A private key with a chain of certificates has less.
const SECRET_LEN_MAX: u64 = 64 << 10;

const CREDENTIALS: &str = "$CREDENTIALS_DIRECTORY/";

impl SecretPlace {
    /// The file that it is in; for a credential there is one only where the service manager has handed over
    /// any.
    pub fn path(&self) -> Result<PathBuf, Error> {
        self.path_in(std::env::var_os("CREDENTIALS_DIRECTORY").as_deref())
    }

    /// The secret itself, without a line end at its end. A file that others can read holds no secret, and is
    /// refused; what the service manager hands over only this user can reach.
    pub fn content(&self) -> Result<Vec<u8>, Error> {
        let path = self.path()?;
        let failed = |error: std::io::Error| {
            Error::with_source(
                Code::of_files(&error),
                format!("cannot read the secret {}", path.display()),
                error,
            )
        };
        let file = File::open(&path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if matches!(self, SecretPlace::File(_)) && meta.mode() & 0o077 != 0 {
            let what = format!("the secret {} can be read by others", path.display());
            return Err(Error::new(Code::KeyExposed, what).with_hint(format!("chmod 600 {}", path.display())));
        }
        let mut content = Vec::new();
        file.take(SECRET_LEN_MAX + 1).read_to_end(&mut content).map_err(failed)?;
        while content.last().is_some_and(|last| b"\r\n".contains(last)) {
            content.pop();
        }
        if content.is_empty() || content.len() as u64 > SECRET_LEN_MAX {
            let what = format!("the secret {} is empty, or longer than 64 KiB", path.display());
            return Err(Error::new(Code::BadKey, what).with_hint("name the file that it is in"));
        }
        Ok(content)
    }

    fn path_in(&self, credentials: Option<&OsStr>) -> Result<PathBuf, Error> {
        match (self, credentials.map(Path::new).filter(|folder| folder.is_absolute())) {
            (SecretPlace::File(path), _) => Ok(path.as_path().to_path_buf()),
            (SecretPlace::Credential(name), Some(folder)) => Ok(folder.join(name)),
            (SecretPlace::Credential(name), None) => Err(Error::new(
                Code::BadConfig,
                format!("the credential {name} is not there: CREDENTIALS_DIRECTORY is not set"),
            )
            .with_hint("hand it over with LoadCredential= in the unit, or name a file")),
        }
    }
}

impl TextValue for SecretPlace {
    const EXPECTED: &'static str = "an absolute path, or $CREDENTIALS_DIRECTORY/NAME";
    const IS_SECRET: bool = true;

    fn read(text: &str) -> Option<SecretPlace> {
        let Some(name) = text.strip_prefix(CREDENTIALS) else {
            return AbsolutePath::read(text).map(SecretPlace::File);
        };
        let is_name = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
        is_name.then(|| SecretPlace::Credential(name.to_string()))
    }
}

impl Display for SecretPlace {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SecretPlace::File(path) => path.fmt(formatter),
            SecretPlace::Credential(name) => write!(formatter, "{CREDENTIALS}{name}"),
        }
    }
}

impl TextValue for AfterValue {
    const EXPECTED: &'static str = "\"keep\", \"mark\", \"delete\" or \"move /DIRECTORY\"";

    fn read(text: &str) -> Option<AfterValue> {
        match text {
            "keep" => Some(AfterValue::Keep),
            "mark" => Some(AfterValue::Mark),
            "delete" => Some(AfterValue::Delete),
            text => AbsolutePath::read(text.strip_prefix("move ")?).map(AfterValue::Move),
        }
    }
}

impl Display for AfterValue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AfterValue::Keep => formatter.write_str("keep"),
            AfterValue::Mark => formatter.write_str("mark"),
            AfterValue::Delete => formatter.write_str("delete"),
            AfterValue::Move(directory) => write!(formatter, "move {directory}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;

    #[test]
    fn places_are_absolute() {
        check::<AbsolutePath>(&[
            ("/a/b", Some("/a/b")),
            ("a", None),
            ("~/a", None),
            ("/a/../b", None),
            ("", None),
        ]);
        check::<SecretPlace>(&[
            ("/etc/key", Some("/etc/key")),
            ("$CREDENTIALS_DIRECTORY/hook", Some("$CREDENTIALS_DIRECTORY/hook")),
            ("$CREDENTIALS_DIRECTORY/", None),
            ("$CREDENTIALS_DIRECTORY/../x", None),
            ("hunter2", None),
        ]);
        check::<AfterValue>(&[
            ("keep", Some("keep")),
            ("move /done", Some("move /done")),
            ("move done", None),
            ("move", None),
            ("burn", None),
        ]);
    }

    #[test]
    fn a_secret_is_read_where_nobody_else_can() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let secret = SecretPlace::File(AbsolutePath::new(&path).unwrap());
        assert_eq!(secret.content().unwrap_err().code(), Code::NotFound);
        let long = vec![b'x'; (64 << 10) + 1];
        for (content, mode, outcome) in [
            (&b"hunter2\n"[..], 0o600, Ok(&b"hunter2"[..])),
            (b"hunter2", 0o400, Ok(b"hunter2")),
            (b"hunter2", 0o640, Err(Code::KeyExposed)),
            (b"hunter2", 0o604, Err(Code::KeyExposed)),
            (b"\n", 0o600, Err(Code::BadKey)),
            (&long, 0o600, Err(Code::BadKey)),
        ] {
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = secret.content();
            match (&read, outcome) {
                (Ok(read), Ok(outcome)) => assert_eq!(read, outcome),
                (Err(error), Err(code)) => {
                    assert!(error.code() == code && !error.what().contains("hunter2"), "{error}");
                }
                _ => panic!("{mode:o}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_credential_is_where_the_service_manager_puts_it() {
        let secret = SecretPlace::read("$CREDENTIALS_DIRECTORY/hook").unwrap();
        assert_eq!(secret.path_in(Some("/run/c".as_ref())).unwrap(), PathBuf::from("/run/c/hook"));
        for missing in [None, Some(OsStr::new("run/c"))] {
            assert_eq!(secret.path_in(missing).unwrap_err().code(), Code::BadConfig);
        }
    }
}
