//! Values that are paths, and secrets, which are named by where they lie.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use farhaul::Error;
use farhaul::errors::Code;

use super::{TextValue, written};

/// An absolute path without `..`: its meaning does not depend on where the service was started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbsolutePath(PathBuf);

/// Where a secret lies: in a file, or in a credential that the service manager provides. Never the secret
/// itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// A file.
    File(AbsolutePath),
    /// `$CREDENTIALS_DIRECTORY/NAME`.
    Credential(String),
}

written!(AbsolutePath, SecretPlace);

impl AbsolutePath {
    /// The path, if it is absolute and has no `..`.
    pub fn new(path: impl Into<PathBuf>) -> Option<AbsolutePath> {
        let path = path.into();
        let is_plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
        let is_text = path.to_str().is_some_and(|text| !text.contains('\0'));
        (is_plain && is_text).then_some(AbsolutePath(path))
    }

    /// The path as a standard path.
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

/// The longest secret. A private key with a chain of certificates is shorter.
const SECRET_LEN_MAX: u64 = 64 << 10;

const CREDENTIALS: &str = "$CREDENTIALS_DIRECTORY/";

impl SecretPlace {
    /// The path of the file that the secret is in. Fails for a credential if the service manager has not
    /// provided any.
    pub fn path(&self) -> Result<PathBuf, Error> {
        self.path_in(std::env::var_os("CREDENTIALS_DIRECTORY").as_deref())
    }

    /// Reads the secret, without the end of its last line. A file that others can read is refused. A
    /// credential is not checked for this, as the service manager lets only this user reach it.
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
            .with_hint("provide it with LoadCredential= in the unit, or name a file")),
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
