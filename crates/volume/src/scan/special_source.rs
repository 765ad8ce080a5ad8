//! A source that the user has named and that is a special file: it is read to its end, or it fails.
//!
//! Always true: content without an end is never begun. A daemon reads no devices, as their content lies
//! outside its root.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self, OFlags, SeekFrom};

use super::directory::SourceRef;
use crate::entry::{Entry, EntryKind, FileKind, FileTime, Metadata, SpecialNode};

/// The kinds of special files that are sent as such, not with what can be read from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecialSources {
    /// Named pipes and sockets.
    pub pipes: bool,
    pub devices: bool,
}

/// The file system of pipes without a name, from `pipe(7)`: they are in no directory, so they cannot be
/// created elsewhere.
const PIPEFS_MAGIC: u64 = 0x5049_5045;
/// The device that is always at its end.
const NULL: SpecialNode = SpecialNode::CharDevice { major: 1, minor: 3 };

/// Decides how a named source is sent.
pub(super) fn taken(
    handle: SourceRef,
    meta: &Metadata,
    nodes: SpecialSources,
) -> io::Result<(SourceRef, Entry)> {
    let entry = meta.entry(Vec::new());
    let FileKind::Special(node) = meta.kind else { return Ok((handle, entry)) };
    let refused = |why: &str| Err(io::Error::other(why));
    let stream = |is_pipe| Entry { kind: EntryKind::Stream { is_pipe }, ..of_content(&entry) };
    let is_node = match node {
        SpecialNode::Fifo => nodes.pipes && !is_nameless(&handle)?,
        SpecialNode::Socket => nodes.pipes,
        SpecialNode::CharDevice { .. } | SpecialNode::BlockDevice { .. } => nodes.devices,
    };
    if is_node {
        return Ok((handle, entry));
    }
    match node {
        SpecialNode::Fifo => Ok((handle, stream(true))),
        NULL if !handle.is_confined() => Ok((handle, stream(false))),
        SpecialNode::BlockDevice { .. } if !handle.is_confined() => {
            let size = size_of_device(handle.open()?)?;
            let kind = EntryKind::File { size, sparse: false };
            Ok((handle.of_device(), Entry { kind, ..of_content(&entry) }))
        }
        SpecialNode::BlockDevice { .. } => refused("a daemon sends no device's content"),
        SpecialNode::CharDevice { .. } => refused("a character device has no end (- is standard input)"),
        SpecialNode::Socket => refused("a socket cannot be read by its name"),
    }
}

/// The entry for content: its time is that of the reading, not that of the special file.
fn of_content(node: &Entry) -> Entry {
    Entry { mode: node.mode & 0o666, mtime: FileTime::now(), nlink: 1, ..node.clone() }
}

fn is_nameless(handle: &SourceRef) -> io::Result<bool> {
    Ok(fs::fstatfs(&handle.look_into()?)?.f_type as u64 == PIPEFS_MAGIC)
}

/// The size of a device, whose own entry says 0.
pub(crate) fn size_of_device(device: impl std::os::fd::AsFd) -> io::Result<u64> {
    Ok(fs::seek(device, SeekFrom::End(0))?)
}

impl SourceRef {
    /// A descriptor for metadata only.
    pub(super) fn look_into(&self) -> io::Result<OwnedFd> {
        self.open_with(OFlags::PATH | OFlags::CLOEXEC)
    }
}
