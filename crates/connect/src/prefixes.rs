//! The directories that a request may not leave at the end that serves it. A client names them with its own
//! request, or in the grant that it asks for on another's behalf.
//!
//! Always true: they only take away from what the client may use there anyway. Each is an absolute path
//! without `..`; at a daemon it begins at the client's root. Their number and length are bounded.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_words::{Code, Error};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most directories of a request.
const COUNT_MAX: usize = 256;
/// The most bytes of all their paths together, so that a hello, and the message for a grant, have room for them.
const BYTES_MAX: usize = 32 << 10;

/// Directories; whoever is kept within them may use only what lies below one of them. If there is none,
/// nothing may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPrefixes(Vec<PathBuf>);

impl PathPrefixes {
    /// Judges the directories; nothing else does.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Result<PathPrefixes, Error> {
        let bad = |what: String| Err(Error::new(Code::BadRequest, what));
        let directories: Vec<PathBuf> = directories.into_iter().collect();
        let bytes: usize = directories.iter().map(|directory| directory.as_os_str().len()).sum();
        if directories.len() > COUNT_MAX || bytes > BYTES_MAX {
            return bad(format!(
                "a request can be kept within at most {COUNT_MAX} directories, and 32 KiB of their names"
            ));
        }
        let is_plain = |directory: &Path| {
            let mut parts = directory.components();
            directory.is_absolute()
                && parts.all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
                && !directory.as_os_str().as_bytes().contains(&0)
        };
        match directories.iter().find(|directory| !is_plain(directory)) {
            None => Ok(PathPrefixes(directories)),
            Some(directory) => {
                let shown = farhaul_text::printable(directory.as_os_str().as_bytes(), 200);
                bad(format!("{shown}: a directory to stay within is an absolute path without '..'"))
            }
        }
    }

    /// The directories.
    pub fn directories(&self) -> &[PathBuf] {
        &self.0
    }

    /// The directories that lie within both. As none of them is opened through a symbolic link, their names
    /// tell.
    pub fn and(&self, other: &PathPrefixes) -> PathPrefixes {
        let lower = |one: &PathBuf, other: &PathBuf| match (one.starts_with(other), other.starts_with(one)) {
            (true, _) => Some(one.clone()),
            (false, true) => Some(other.clone()),
            (false, false) => None,
        };
        let mut both: Vec<PathBuf> =
            self.0.iter().flat_map(|one| other.0.iter().filter_map(move |other| lower(one, other))).collect();
        both.sort();
        both.dedup();
        PathPrefixes(both)
    }

    /// As [`PathPrefixes::and`], where no list means no limit.
    pub fn both(one: Option<&PathPrefixes>, other: Option<&PathPrefixes>) -> Option<PathPrefixes> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other).cloned(),
        }
    }
}

impl Serialize for PathPrefixes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|path| STANDARD.encode(path.as_os_str().as_bytes())))
    }
}

impl<'de> Deserialize<'de> for PathPrefixes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PathPrefixes, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let path = |text: String| Ok(PathBuf::from(OsString::from_vec(STANDARD.decode(text)?)));
        let directories: Result<Vec<_>, base64::DecodeError> = texts.into_iter().map(path).collect();
        PathPrefixes::new(directories.map_err(D::Error::custom)?).map_err(D::Error::custom)
    }
}

/// For readers of messages, which have bytes.
impl TryFrom<Vec<Vec<u8>>> for PathPrefixes {
    type Error = Error;

    fn try_from(directories: Vec<Vec<u8>>) -> Result<PathPrefixes, Error> {
        PathPrefixes::new(directories.iter().map(|path| PathBuf::from(OsStr::from_bytes(path))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(directories: &[&str]) -> PathPrefixes {
        PathPrefixes::new(directories.iter().map(PathBuf::from)).unwrap()
    }

    #[test]
    fn directories_survive_the_way_and_what_makes_no_sense_is_refused() {
        let odd = PathPrefixes::try_from(vec![b"/in/\xff".to_vec(), b"/".to_vec()]).unwrap();
        for prefixes in [of(&[]), of(&["/", "/incoming/a", "/b c"]), odd] {
            let text = serde_json::to_string(&prefixes).unwrap();
            assert_eq!(serde_json::from_str::<PathPrefixes>(&text).unwrap(), prefixes);
        }
        for wrong in [&b"relative"[..], b"", b"/a/../b", b"..", b"/a/..", b"/a\0"] {
            assert_eq!(
                PathPrefixes::try_from(vec![wrong.to_vec()]).unwrap_err().code(),
                Code::BadRequest,
                "{wrong:?}"
            );
            let text = serde_json::to_string(&[STANDARD.encode(wrong)]).unwrap();
            assert!(serde_json::from_str::<PathPrefixes>(&text).is_err(), "{wrong:?}");
        }
        assert!(serde_json::from_str::<PathPrefixes>(r#"["%%"]"#).is_err());
        let of = |count: usize, len: usize| {
            let path = PathBuf::from(format!("/{}", "x".repeat(len - 1)));
            PathPrefixes::new(std::iter::repeat_n(path, count)).is_ok()
        };
        assert!(of(COUNT_MAX, 128) && !of(COUNT_MAX + 1, 2) && !of(COUNT_MAX, 129));
    }

    #[test]
    fn what_two_lists_allow_is_what_each_of_them_does() {
        for (one, other, both) in [
            (&["/a"][..], &["/a"][..], &["/a"][..]),
            (&["/a"], &["/a/b", "/c"], &["/a/b"]),
            (&["/a/b", "/c/d"], &["/a", "/c"], &["/a/b", "/c/d"]),
            (&["/a"], &["/ab"], &[]),
            (&["/"], &["/x"], &["/x"]),
            (&["/a", "/a/b"], &["/a/b"], &["/a/b"]),
            (&["/a"], &[], &[]),
        ] {
            assert_eq!(of(one).and(&of(other)), of(both), "{one:?} {other:?}");
            assert_eq!(of(other).and(&of(one)), of(both), "{one:?} {other:?}");
        }
        let a = of(&["/a"]);
        assert_eq!(PathPrefixes::both(None, None), None);
        assert_eq!(PathPrefixes::both(Some(&a), None), Some(a.clone()));
        assert_eq!(PathPrefixes::both(None, Some(&a)), Some(a.clone()));
        assert_eq!(PathPrefixes::both(Some(&a), Some(&of(&[]))), Some(of(&[])));
    }
}
