//! The sort of an entry, as far as it matters for one entry that takes the place of another.

use std::fmt;

use farhaul_volume::{FileKind, SpecialNode};

use super::super::messages::EntryContent;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntrySort {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

impl EntrySort {
    /// All sorts, each at its number on the wire.
    pub(super) const ALL: [EntrySort; 6] = [
        EntrySort::File,
        EntrySort::Directory,
        EntrySort::Symlink,
        EntrySort::Fifo,
        EntrySort::Socket,
        EntrySort::Device,
    ];

    pub(super) fn number(self) -> u8 {
        EntrySort::ALL.iter().position(|sort| *sort == self).unwrap_or_default() as u8
    }
}

impl fmt::Display for EntrySort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            EntrySort::File => "a file",
            EntrySort::Directory => "a directory",
            EntrySort::Symlink => "a symbolic link",
            EntrySort::Fifo => "a pipe",
            EntrySort::Socket => "a socket",
            EntrySort::Device => "a device",
        })
    }
}

impl From<FileKind> for EntrySort {
    fn from(kind: FileKind) -> EntrySort {
        match kind {
            FileKind::File => EntrySort::File,
            FileKind::Dir => EntrySort::Directory,
            FileKind::Symlink => EntrySort::Symlink,
            FileKind::Special(node) => node.into(),
        }
    }
}

impl From<&EntryContent> for EntrySort {
    fn from(what: &EntryContent) -> EntrySort {
        match what {
            EntryContent::File { .. } | EntryContent::Stream | EntryContent::HardLink { .. } => {
                EntrySort::File
            }
            EntryContent::Directory => EntrySort::Directory,
            EntryContent::Symlink { .. } => EntrySort::Symlink,
            EntryContent::Special(node) => (*node).into(),
        }
    }
}

impl From<SpecialNode> for EntrySort {
    fn from(node: SpecialNode) -> EntrySort {
        match node {
            SpecialNode::Fifo => EntrySort::Fifo,
            SpecialNode::Socket => EntrySort::Socket,
            SpecialNode::CharDevice { .. } | SpecialNode::BlockDevice { .. } => EntrySort::Device,
        }
    }
}
