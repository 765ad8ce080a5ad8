//! What sort of thing is at a path, as far as one can take the place of another.

use std::fmt;

use farhaul_volume::{FileKind, Node};

use super::super::messages::What;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

impl Sort {
    /// By their numbers on the wire.
    pub(super) const ALL: [Sort; 6] =
        [Sort::File, Sort::Directory, Sort::Symlink, Sort::Fifo, Sort::Socket, Sort::Device];

    pub(super) fn number(self) -> u8 {
        Sort::ALL.iter().position(|sort| *sort == self).unwrap_or_default() as u8
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Sort::File => "a file",
            Sort::Directory => "a directory",
            Sort::Symlink => "a symbolic link",
            Sort::Fifo => "a pipe",
            Sort::Socket => "a socket",
            Sort::Device => "a device",
        })
    }
}

impl From<FileKind> for Sort {
    fn from(kind: FileKind) -> Sort {
        match kind {
            FileKind::File => Sort::File,
            FileKind::Dir => Sort::Directory,
            FileKind::Symlink => Sort::Symlink,
            FileKind::Special(node) => node.into(),
        }
    }
}

impl From<&What> for Sort {
    fn from(what: &What) -> Sort {
        match what {
            What::File { .. } | What::Stream | What::HardLink { .. } => Sort::File,
            What::Directory => Sort::Directory,
            What::Symlink { .. } => Sort::Symlink,
            What::Special(node) => (*node).into(),
        }
    }
}

impl From<Node> for Sort {
    fn from(node: Node) -> Sort {
        match node {
            Node::Fifo => Sort::Fifo,
            Node::Socket => Sort::Socket,
            Node::CharDevice { .. } | Node::BlockDevice { .. } => Sort::Device,
        }
    }
}
