//! A source that the user has named and that is no file, directory or link: it is read to its end, or it fails.
//!
//! Always true: nothing that has no end is begun; at a daemon no device is read, as what is on it lies outside its root.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self, OFlags, SeekFrom};

use super::directory::SourceRef;
use crate::entry::{Entry, EntryKind, FileKind, FileTime, Metadata, SpecialNode};

/// Specials that go as what they are, not with what can be read from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecialSources {
    /// Named pipes and sockets.
    pub pipes: bool,
    pub devices: bool,
}

/// From `pipe(7)`: such a pipe is in no directory, and so cannot be made at another place.
const PIPEFS_MAGIC: u64 = 0x5049_5045;
/// The device that is always at its end.
const NULL: SpecialNode = SpecialNode::CharDevice { major: 1, minor: 3 };

/// What a named source is taken as.
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

/// What is read is as old as its reading, whatever time the node has.
fn of_content(node: &Entry) -> Entry {
    Entry { mode: node.mode & 0o666, mtime: FileTime::now(), nlink: 1, ..node.clone() }
}

fn is_nameless(handle: &SourceRef) -> io::Result<bool> {
    Ok(fs::fstatfs(&handle.look_into()?)?.f_type as u64 == PIPEFS_MAGIC)
}

/// Bytes of a device: its own entry says 0.
pub(crate) fn size_of_device(device: impl std::os::fd::AsFd) -> io::Result<u64> {
    Ok(fs::seek(device, SeekFrom::End(0))?)
}

impl SourceRef {
    /// A descriptor that serves for looking only.
    pub(super) fn look_into(&self) -> io::Result<OwnedFd> {
        self.open_with(OFlags::PATH | OFlags::CLOEXEC)
    }
}
