//! Extended attributes of files and directories, and the access control lists that Linux keeps in them.
//!
//! Always true: a name outside the chosen kinds is neither read, nor set, nor removed, whoever asks. Symbolic
//! links have no attributes here and are not followed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

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

/// Reads the attributes of the entry at `path`. If its last component is a link, the link is followed.
pub(crate) fn read(path: &str, kinds: AttributeKinds) -> io::Result<Attributes> {
    let mut found = Attributes::new();
    let mut bytes = 0;
    for name in names(path)?.split(|&byte| byte == 0).filter(|name| kinds.has(name)) {
        let value = match with_room(|buffer| fs::getxattr(path, name, buffer)) {
            // The attribute was removed after the names were listed.
            Err(Errno::NODATA) => continue,
            value => value?,
        };
        bytes += name.len() + value.len();
        if bytes > BYTES_MAX {
            return Err(io::Error::other("they take more than 48 KiB"));
        }
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(found)
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

fn apply_at(path: &str, wanted: &Attributes, kinds: AttributeKinds) -> io::Result<()> {
    let there = read(path, kinds)?;
    for (name, _) in &there {
        if !wanted.iter().any(|(wanted, _)| wanted == name) {
            fs::removexattr(path, &name[..])?;
        }
    }
    for wanted in wanted.iter().filter(|wanted| kinds.has(&wanted.0) && !there.contains(wanted)) {
        fs::setxattr(path, &wanted.0[..], &wanted.1, XattrFlags::empty())?;
    }
    Ok(())
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
        assert_eq!(read(&path("1"), USER).unwrap(), wanted);
        apply(&two, &read(&path("1"), USER).unwrap(), USER).unwrap();
        assert_eq!(read(&path("2"), USER).unwrap(), wanted);
        apply(&two, &Attributes::new(), AttributeKinds::default()).unwrap();
        assert_eq!(read(&path("2"), USER).unwrap(), wanted, "none of its kinds was asked for");
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
        assert_eq!(read(&path, all).unwrap(), Attributes::new());
        assert!(!all.has(b"security.selinux") && !all.has(b"system.nfs4_acl"));
    }

    #[test]
    fn what_cannot_be_set_is_told_from_what_did_not_arrive() {
        let file = tempfile::tempfile().unwrap();
        let nonsense = vec![pair("system.posix_acl_access", "no list")];
        let error = apply(&file, &nonsense, AttributeKinds { acls: true, ..USER }).unwrap_err();
        assert!(is_about_metadata(&error), "{error}");
        assert!(!is_about_metadata(&io::Error::from(Errno::NOSPC)));
    }
}
