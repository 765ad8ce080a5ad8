//! Paths below a root, checked once when they are created.
//!
//! Always true of a [`RelPath`]: it has no empty, `.` or `..` component, no NUL, no leading or trailing `/`,
//! components of at most 255 bytes, and at most 4095 bytes in all. The empty path is the root itself, and is
//! only created on purpose.

use std::fmt;

use farhaul_text::escape;

/// The longest component and the longest path on Linux (NAME_MAX, PATH_MAX without the NUL).
const COMPONENT_MAX: usize = 255;
const PATH_MAX: usize = 4095;

/// Why bytes are not a path below a root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelPathError {
    #[error("{}", self.why())]
    Empty,
    #[error("{path}: {why}", path = .0, why = self.why())]
    Absolute(String),
    #[error("{path}: {why}", path = .0, why = self.why())]
    BadComponent(String),
    #[error("{path}: {why}", path = .0, why = self.why())]
    Nul(String),
    #[error("{path}: {why}", path = .0, why = self.why())]
    TooLong(String),
}

impl RelPathError {
    /// The reason alone, for a line that names the path itself.
    pub fn why(&self) -> &'static str {
        match self {
            RelPathError::Empty => "empty file name",
            RelPathError::Absolute(_) => "absolute path where a relative one belongs",
            RelPathError::BadComponent(_) => "path with an empty component, '.' or '..'",
            RelPathError::Nul(_) => "name with a NUL byte",
            RelPathError::TooLong(_) => "name too long",
        }
    }
}

/// A checked path below a root, of any bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// Checks bytes of any origin.
    pub fn from_bytes(bytes: &[u8]) -> Result<RelPath, RelPathError> {
        RelPath::from_vec(bytes.to_vec())
    }

    /// Makes a path from what a user wrote: without `.` and without doubled, leading and trailing slashes.
    pub fn from_written(bytes: &[u8]) -> Result<RelPath, RelPathError> {
        let parts: Vec<&[u8]> =
            bytes.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        if parts.is_empty() { Ok(RelPath::empty()) } else { RelPath::from_vec(parts.join(&b'/')) }
    }

    fn from_vec(bytes: Vec<u8>) -> Result<RelPath, RelPathError> {
        let shown = || escape(&bytes[..bytes.len().min(200)]);
        if bytes.is_empty() {
            return Err(RelPathError::Empty);
        }
        if bytes[0] == b'/' {
            return Err(RelPathError::Absolute(shown()));
        }
        if bytes.len() > PATH_MAX {
            return Err(RelPathError::TooLong(shown()));
        }
        if bytes.contains(&0) {
            return Err(RelPathError::Nul(shown()));
        }
        for component in bytes.split(|&byte| byte == b'/') {
            if component.is_empty() || component == b"." || component == b".." {
                return Err(RelPathError::BadComponent(shown()));
            }
            if component.len() > COMPONENT_MAX {
                return Err(RelPathError::TooLong(shown()));
            }
        }
        Ok(RelPath(bytes))
    }

    /// The root itself.
    pub fn empty() -> RelPath {
        RelPath(Vec::new())
    }

    /// Whether this is the root itself.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The path of `name` (one component or several) below this one.
    pub fn join(&self, name: &[u8]) -> Result<RelPath, RelPathError> {
        if self.0.is_empty() {
            return RelPath::from_bytes(name);
        }
        if name.is_empty() || name[0] == b'/' {
            return Err(RelPathError::BadComponent(escape(name)));
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        RelPath::from_vec(bytes)
    }

    /// The directory that this lies in; the root (empty path) has none.
    pub fn parent(&self) -> Option<RelPath> {
        (!self.0.is_empty()).then(|| RelPath(self.split().0.to_vec()))
    }

    /// The last component; the root has none.
    pub fn file_name(&self) -> Option<&[u8]> {
        Some(self.split().1).filter(|name| !name.is_empty())
    }

    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|component| !component.is_empty())
    }

    /// The directory's path and the last component.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (&[], &self.0),
        }
    }

    /// The path as text that is safe on a terminal.
    pub fn escape(&self) -> String {
        if self.0.is_empty() { ".".into() } else { escape(&self.0) }
    }
}

impl TryFrom<Vec<u8>> for RelPath {
    type Error = RelPathError;
    fn try_from(bytes: Vec<u8>) -> Result<RelPath, RelPathError> {
        RelPath::from_vec(bytes)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.escape())
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RelPath({})", self.escape())
    }
}

#[cfg(test)]
mod tests {
    use farhaul_text::is_unprintable;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_read_as_users_write_them() {
        for (written, read) in
            [("a", "a"), ("/./a//b/./", "a/b"), ("a/.", "a"), ("", ""), ("./", ""), ("//", ""), (".a", ".a")]
        {
            assert_eq!(
                RelPath::from_written(written.as_bytes()).unwrap().as_bytes(),
                read.as_bytes(),
                "{written}"
            );
        }
        for hostile in ["..", "a/../b", "a/..", "a\0"] {
            assert!(RelPath::from_written(hostile.as_bytes()).is_err(), "{hostile}");
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = vec![b'a'; 256];
        let deep = b"ab/".repeat(1366);
        let cases: [&[u8]; 15] = [
            b"",
            b"/",
            b"/a",
            b"..",
            ".".as_bytes(),
            b"a/..",
            b"../a",
            b"a/../b",
            b"a//b",
            b"a/",
            b"./a",
            b"a/.",
            b"a\0b",
            &long,
            &deep[..deep.len() - 1],
        ];
        for bytes in cases {
            assert!(RelPath::from_bytes(bytes).is_err(), "{}", escape(bytes));
        }
        for bytes in [&b"..."[..], b"..a", b".a/b..", b"\xff\xfe", b"a b\n", &long[..255]] {
            assert!(RelPath::from_bytes(bytes).is_ok(), "{}", escape(bytes));
        }
    }

    #[test]
    fn parts_of_a_path() {
        let path = RelPath::from_bytes(b"a/b/c").unwrap();
        assert_eq!(path.file_name(), Some(&b"c"[..]));
        assert_eq!(path.parent().unwrap().as_bytes(), b"a/b");
        assert_eq!(RelPath::from_bytes(b"a").unwrap().parent(), Some(RelPath::empty()));
        assert_eq!(RelPath::empty().parent(), None);
        assert_eq!(RelPath::empty().join(b"a/b").unwrap().as_bytes(), b"a/b");
        assert!(path.join(b"../x").is_err());
        assert!(path.join(b"/x").is_err());
        assert!(path.join(b"").is_err());
    }

    proptest! {
        #[test]
        fn a_checked_path_stays_below(bytes in proptest::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), any::<u8>()], 0..40)) {
            if let Ok(path) = RelPath::from_bytes(&bytes) {
                for component in path.as_bytes().split(|&byte| byte == b'/') {
                    prop_assert!(!component.is_empty() && component != b"." && component != b"..");
                }
                prop_assert!(!path.escape().chars().any(is_unprintable));
            }
        }
    }
}
