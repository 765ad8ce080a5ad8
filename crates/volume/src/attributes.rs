//! Extended attributes of files and directories, and the access control lists that Linux keeps in them.
//!
//! Always true: a name outside the chosen kinds is neither read, nor set, nor removed, whoever asks. Symbolic
//! links have no attributes here and are not followed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use farhaul_text::{escape, plain};
use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

use crate::change;
use crate::metadata::AttributeFailure;

/// The most bytes of one entry's names and values together.
const BYTES_MAX: usize = 48 << 10;
const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Names and values, sorted by name.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// The kinds of attributes to read or set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttributeKinds {
    /// The attributes of users.
    pub user: bool,
    /// The attributes of the system's own programs, which only root may see and set.
    pub trusted: bool,
    /// The capabilities of programs, which are as powerful as set-user-id.
    pub capability: bool,
    /// Access control lists; users and groups in them are numbers.
    pub acls: bool,
}

impl AttributeKinds {
    /// The kinds for a request for users' attributes and for lists. Kinds that need root are only included
    /// for root, and not for somebody who is `confined` to a part of the host; capabilities also need
    /// `keeps_setuid`.
    pub fn chosen(xattrs: bool, acls: bool, is_confined: bool, keeps_setuid: bool) -> AttributeKinds {
        let is_master = xattrs && !is_confined && rustix::process::geteuid().is_root();
        AttributeKinds { user: xattrs, trusted: is_master, capability: is_master && keeps_setuid, acls }
    }

    pub fn is_none(self) -> bool {
        self == AttributeKinds::default()
    }

    fn has(self, name: &[u8]) -> bool {
        self.user && name.starts_with(b"user.")
            || self.trusted && name.starts_with(b"trusted.")
            || self.capability && name == b"security.capability"
            || self.acls && ACL_NAMES.contains(&name)
    }
}

/// The attributes of an entry, as far as they can be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundAttributes {
    pub taken: Attributes,
    /// Why the others are left out.
    pub left_out: Option<String>,
}

/// Reads the attributes of the entry at `path`. If its last component is a link, the link is followed. An
/// attribute that does not fit is left out; the others are taken.
pub(crate) fn read(path: &str, kinds: AttributeKinds) -> io::Result<FoundAttributes> {
    let mut taken = Attributes::new();
    let mut bytes = 0;
    let mut too_large = Vec::new();
    for name in names(path)?.split(|&byte| byte == 0).filter(|name| kinds.has(name)) {
        let value = match with_room(|buffer| fs::getxattr(path, name, buffer)) {
            // The attribute was removed after the names were listed.
            Err(Errno::NODATA) => continue,
            value => value?,
        };
        if bytes + name.len() + value.len() > BYTES_MAX {
            too_large.push(name.to_vec());
            continue;
        }
        bytes += name.len() + value.len();
        taken.push((name.to_vec(), value));
    }
    taken.sort();
    let left_out = too_large.first().map(|first| {
        let first = escape(first);
        let more = and_more(too_large.len());
        format!("{first}{more} would make them larger than 48 KiB together")
    });
    Ok(FoundAttributes { taken, left_out })
}

/// The words for the others of several attributes.
fn and_more(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    }
}

fn names(path: &str) -> io::Result<Vec<u8>> {
    match with_room(|buffer| fs::listxattr(path, buffer)) {
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        names => Ok(names?),
    }
}

/// Calls `fill` with a buffer that is large enough.
fn with_room(fill: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1 << 10];
    loop {
        match fill(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            // The kernel has no values longer than 64 KiB.
            Err(Errno::RANGE) if buffer.len() < 64 << 10 => buffer.resize(64 << 10, 0),
            Err(error) => return Err(error),
        }
    }
}

/// Sets the attributes of these kinds, and removes all others of these kinds.
///
/// An error is one of metadata only ([`is_about_metadata`](crate::is_about_metadata)).
pub(crate) fn apply(file: impl AsFd, wanted: &Attributes, kinds: AttributeKinds) -> io::Result<()> {
    let mut unset = AttributeFailure::default();
    apply_noting(file, wanted, kinds, &mut unset);
    unset.done()
}

/// As [`apply`]; a failure is added to `unset`.
pub(crate) fn apply_noting(
    file: impl AsFd,
    wanted: &Attributes,
    kinds: AttributeKinds,
    unset: &mut AttributeFailure,
) {
    if kinds.is_none() {
        return;
    }
    // There are no calls for this on a path descriptor, but its name under /proc leads to the file itself.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    if let Err(error) = apply_at(&path, wanted, kinds) {
        unset.keep("extended attributes", &error);
    }
}

/// Sets and removes all that can be set and removed; the error names the first one that cannot.
fn apply_at(path: &str, wanted: &Attributes, kinds: AttributeKinds) -> io::Result<()> {
    let mut refused: Vec<(&[u8], Errno)> = Vec::new();
    let names = names(path)?;
    let there: Vec<&[u8]> = names.split(|&byte| byte == 0).filter(|name| kinds.has(name)).collect();
    for name in there.iter().filter(|name| !wanted.iter().any(|(wanted, _)| wanted == *name)) {
        match change::removexattr(path, *name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => refused.push((name, error)),
        }
    }
    let is_so = |name: &[u8], value: &[u8]| {
        there.contains(&name)
            && with_room(|buffer| fs::getxattr(path, name, buffer)).is_ok_and(|there| there == value)
    };
    for (name, value) in wanted.iter().filter(|wanted| kinds.has(&wanted.0)) {
        if !is_so(name, value)
            && let Err(error) = change::setxattr(path, &name[..], value, XattrFlags::empty())
        {
            refused.push((name, error));
        }
    }
    let Some((first, error)) = refused.first() else { return Ok(()) };
    let (first, why) = (escape(first), plain(&(*error).into()));
    Err(io::Error::new(io::Error::from(*error).kind(), format!("{first}{}: {why}", and_more(refused.len()))))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::is_about_metadata;

    const USER: AttributeKinds =
        AttributeKinds { user: true, trusted: false, capability: false, acls: false };

    fn pair(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
        (name.into(), value.into())
    }

    #[test]
    fn what_is_given_is_set_and_the_rest_goes() {
        let temp = tempfile::tempdir().unwrap();
        let (one, two) =
            (File::create(temp.path().join("1")).unwrap(), File::create(temp.path().join("2")).unwrap());
        let path = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
        if fs::setxattr(path("1"), "user.old", b"x", XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
            return;
        }
        let long = "v".repeat(2000);
        let wanted = vec![pair("user.a", ""), pair("user.long", &long)];
        apply(&one, &wanted, USER).unwrap();
        let taken = |name: &str| read(&path(name), USER).unwrap().taken;
        assert_eq!(taken("1"), wanted);
        apply(&two, &taken("1"), USER).unwrap();
        assert_eq!(taken("2"), wanted);
        apply(&two, &Attributes::new(), AttributeKinds::default()).unwrap();
        assert_eq!(taken("2"), wanted, "none of its kinds was asked for");
    }

    #[test]
    fn kinds_that_are_not_chosen_are_not_touched_whoever_asks() {
        let file = tempfile::tempfile().unwrap();
        let hostile = vec![
            pair("trusted.overlay.opaque", "y"),
            pair("security.capability", "x"),
            pair("system.posix_acl_access", "x"),
        ];
        apply(&file, &hostile, USER).unwrap();
        let all = AttributeKinds { user: true, trusted: true, capability: true, acls: true };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(read(&path, all).unwrap(), FoundAttributes::default());
        assert!(!all.has(b"security.selinux") && !all.has(b"system.nfs4_acl"));
    }

    #[test]
    fn what_cannot_be_set_is_told_from_what_did_not_arrive() {
        let file = tempfile::tempfile().unwrap();
        let nonsense = vec![pair("system.posix_acl_access", "no list"), pair("user.b", "1")];
        let error = apply(&file, &nonsense, AttributeKinds { acls: true, ..USER }).unwrap_err();
        assert!(is_about_metadata(&error), "{error}");
        assert!(error.to_string().contains("system.posix_acl_access: "), "{error}");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if fs::listxattr(&path, &mut [0; 100][..]).is_ok_and(|len| len > 0) {
            assert_eq!(read(&path, USER).unwrap().taken, [pair("user.b", "1")], "the one behind it is set");
        }
        assert!(!is_about_metadata(&io::Error::from(Errno::NOSPC)));
    }
}
