//! What a new file keeps of the file that it replaces: owner, group and access control list, as `cp` does, which
//! writes into the old file. Only root may give a file to somebody else; others keep the group if they may.
//!
//! Also the modes that a directory gives to new files in place of the umask, by its default access control list.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{self, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;

use crate::attributes::AttributeKinds;
use crate::change;
use crate::dir::Dir;
use crate::entry::Metadata;
use crate::metadata::{AttributeFailure, umask};

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";
/// The most bytes of a list that is looked at.
const LIST_MAX: usize = 64 << 10;

/// The file that a new one replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predecessor {
    /// Permission bits, 07777.
    pub mode: u32,
    uid: u32,
    gid: u32,
    list: Option<Vec<u8>>,
}

impl Predecessor {
    /// Looks at the plain file called `name`; `None` if there is none.
    pub(crate) fn look(dir: &Dir, name: &[u8]) -> Option<Predecessor> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = fs::openat(dir, name, flags, Mode::empty()).ok()?;
        let meta = Metadata::from(&fs::fstat(&there).ok()?);
        let list = || attribute(&there, ACCESS_LIST);
        meta.is_file().then(|| Predecessor { mode: meta.mode, uid: meta.uid, gid: meta.gid, list: list() })
    }

    /// Gives an open file what it keeps; to be called before it gets its mode. `kinds`: the attributes that it
    /// gets from its source.
    pub(crate) fn hand_down(
        &self,
        file: impl AsFd,
        mode: u32,
        kinds: AttributeKinds,
        unset: &mut AttributeFailure,
    ) -> io::Result<()> {
        let file = file.as_fd();
        let new = Metadata::from(&fs::fstat(file)?);
        let is_root = rustix::process::geteuid().is_root();
        // A program that runs with its owner's rights belongs to whoever has put it there.
        let may_be_given = mode & 0o6000 == 0;
        if is_root && may_be_given && (new.uid, new.gid) != (self.uid, self.gid) {
            let given = change::fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
            unset.note("owner", given)?;
        } else if !is_root && may_be_given && new.uid == self.uid && new.gid != self.gid {
            let _ = change::fchown(file, None, Some(Gid::from_raw(self.gid)));
        }
        let is_kept = !kinds.acls && (is_root || new.uid == self.uid);
        if let (true, Some(list)) = (is_kept, &self.list) {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            unset.note(
                "access control list",
                change::setxattr(path, ACCESS_LIST, list, XattrFlags::empty()),
            )?;
        }
        Ok(())
    }
}

/// The permissions that a new entry of a directory gets if it is made with `mode`.
pub(crate) fn mode_of_new(dir: &Dir, mode: u32) -> u32 {
    let allowed = attribute(dir, DEFAULT_LIST).and_then(|list| allowed_by(&list));
    mode & 0o777 & allowed.unwrap_or(!umask())
}

/// The permissions that a default access control list leaves to a new file. From: acl(5), "Object creation and
/// default ACLs", and posix_acl_xattr.h of Linux.
fn allowed_by(list: &[u8]) -> Option<u32> {
    const VERSION: u32 = 2;
    const USER_OBJ: u16 = 0x01;
    const GROUP_OBJ: u16 = 0x04;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let (version, entries) = list.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let permissions = |wanted: u16| {
        entries.chunks_exact(8).find_map(|entry| {
            let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            (number(0) == wanted).then(|| u32::from(number(2)) & 7)
        })
    };
    let group = permissions(MASK).or_else(|| permissions(GROUP_OBJ))?;
    Some(permissions(USER_OBJ)? << 6 | group << 3 | permissions(OTHER)?)
}

fn attribute(there: impl AsFd, name: &str) -> Option<Vec<u8>> {
    let path = format!("/proc/self/fd/{}", there.as_fd().as_raw_fd());
    let mut value = vec![0; 1 << 10];
    let len = match fs::getxattr(&path, name, &mut value[..]) {
        Err(Errno::RANGE) => {
            value.resize(LIST_MAX, 0);
            fs::getxattr(&path, name, &mut value[..])
        }
        len => len,
    }
    .ok()?;
    value.truncate(len);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_list_says_what_a_new_file_allows() {
        let list = |entries: &[(u16, u16)]| {
            let mut bytes = 2u32.to_le_bytes().to_vec();
            for (tag, permissions) in entries {
                bytes.extend_from_slice(&tag.to_le_bytes());
                bytes.extend_from_slice(&permissions.to_le_bytes());
                bytes.extend_from_slice(&u32::MAX.to_le_bytes());
            }
            bytes
        };
        assert_eq!(allowed_by(&list(&[(1, 7), (4, 5), (0x20, 0)])), Some(0o750));
        let named = list(&[(1, 6), (2, 7), (4, 7), (0x10, 4), (0x20, 1)]);
        assert_eq!(allowed_by(&named), Some(0o641), "the mask limits groups and named users");
        assert_eq!(allowed_by(&list(&[(1, 7)])), None);
        assert_eq!((allowed_by(b""), allowed_by(&named[..named.len() - 1])), (None, None));
    }
}
