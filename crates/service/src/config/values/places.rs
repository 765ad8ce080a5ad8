//! Paths, and secrets, which are named by where they lie.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::path::{Component, Path, PathBuf};

use farhaul::{Code, Error};

use super::{Written, written};

/// A path from `/` on, without `..`: what it means does not depend on who started the service where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbsolutePath(PathBuf);

/// Where a secret lies: a file, or a credential that the service manager hands over. Never the secret itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// A file.
    File(AbsolutePath),
    /// `$CREDENTIALS_DIRECTORY/NAME`.
    Credential(String),
}

/// What becomes of a watched file when the receiver has confirmed and synced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// It stays as it is.
    Keep,
    /// A file beside it says so.
    Mark,
    /// It is deleted.
    Delete,
    /// It is moved into this directory.
    Move(AbsolutePath),
}

written!(AbsolutePath, Secret, After);

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

impl Written for AbsolutePath {
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

const CREDENTIALS: &str = "$CREDENTIALS_DIRECTORY/";

impl Secret {
    /// The file that it is in; for a credential there is one only where the service manager has handed over
    /// any.
    pub fn path(&self) -> Result<PathBuf, Error> {
        self.path_in(std::env::var_os("CREDENTIALS_DIRECTORY").as_deref())
    }

    fn path_in(&self, credentials: Option<&OsStr>) -> Result<PathBuf, Error> {
        match (self, credentials.map(Path::new).filter(|folder| folder.is_absolute())) {
            (Secret::File(path), _) => Ok(path.as_path().to_path_buf()),
            (Secret::Credential(name), Some(folder)) => Ok(folder.join(name)),
            (Secret::Credential(name), None) => Err(Error::new(
                Code::BadConfig,
                format!("the credential {name} is not there: CREDENTIALS_DIRECTORY is not set"),
            )
            .with_hint("hand it over with LoadCredential= in the unit, or name a file")),
        }
    }
}

impl Written for Secret {
    const EXPECTED: &'static str = "an absolute path, or $CREDENTIALS_DIRECTORY/NAME";
    const IS_SECRET: bool = true;

    fn read(text: &str) -> Option<Secret> {
        let Some(name) = text.strip_prefix(CREDENTIALS) else {
            return AbsolutePath::read(text).map(Secret::File);
        };
        let is_name = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
        is_name.then(|| Secret::Credential(name.to_string()))
    }
}

impl Display for Secret {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Secret::File(path) => path.fmt(formatter),
            Secret::Credential(name) => write!(formatter, "{CREDENTIALS}{name}"),
        }
    }
}

impl Written for After {
    const EXPECTED: &'static str = "\"keep\", \"mark\", \"delete\" or \"move /DIRECTORY\"";

    fn read(text: &str) -> Option<After> {
        match text {
            "keep" => Some(After::Keep),
            "mark" => Some(After::Mark),
            "delete" => Some(After::Delete),
            text => AbsolutePath::read(text.strip_prefix("move ")?).map(After::Move),
        }
    }
}

impl Display for After {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            After::Keep => formatter.write_str("keep"),
            After::Mark => formatter.write_str("mark"),
            After::Delete => formatter.write_str("delete"),
            After::Move(directory) => write!(formatter, "move {directory}"),
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
        check::<Secret>(&[
            ("/etc/key", Some("/etc/key")),
            ("$CREDENTIALS_DIRECTORY/hook", Some("$CREDENTIALS_DIRECTORY/hook")),
            ("$CREDENTIALS_DIRECTORY/", None),
            ("$CREDENTIALS_DIRECTORY/../x", None),
            ("hunter2", None),
        ]);
        check::<After>(&[
            ("keep", Some("keep")),
            ("move /done", Some("move /done")),
            ("move done", None),
            ("move", None),
            ("burn", None),
        ]);
    }

    #[test]
    fn a_credential_is_where_the_service_manager_puts_it() {
        let secret = Secret::read("$CREDENTIALS_DIRECTORY/hook").unwrap();
        assert_eq!(secret.path_in(Some("/run/c".as_ref())).unwrap(), PathBuf::from("/run/c/hook"));
        for missing in [None, Some(OsStr::new("run/c"))] {
            assert_eq!(secret.path_in(missing).unwrap_err().code(), Code::BadConfig);
        }
    }
}
