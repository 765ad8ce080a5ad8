//! Encodes messages.

use farhaul_session::codec::{put_bytes, put_failure, put_numbers, put_reason, put_signed, put_varint};
use farhaul_session::messages::put_message;
use farhaul_volume::{Border, CHUNK, SpecialNode};

use super::super::messages::{
    ATTRIBUTES, CopyMessage, Decision, EntryContent, ManifestEntry, OWNER, Presence, RANGES_MAX,
};
use super::super::report::SpreadFigures;
use crate::deletion_guard::DeletionStopCause;
use crate::owners::EntryOwner;

/// Encodes messages; it remembers the last path, whose beginning the next one may share, and the last owner, whom
/// the next entry may belong to, too.
#[derive(Default)]
pub(crate) struct Encoder {
    last_path: Vec<u8>,
    last_owner: Option<EntryOwner>,
}

impl Encoder {
    /// Appends the message with its length in front.
    pub(crate) fn encode(&mut self, message: &CopyMessage, out: &mut Vec<u8>) {
        put_message(out, |out| self.encode_body(message, out));
    }

    fn encode_body(&mut self, message: &CopyMessage, out: &mut Vec<u8>) {
        match message {
            CopyMessage::Entry(entry) => self.encode_entry(entry, out),
            CopyMessage::DirectoryEnd { id } => put_numbers(out, 2, &[*id]),
            CopyMessage::SourceFailed { path, failure } => {
                out.push(3);
                put_bytes(out, path);
                put_failure(out, failure);
            }
            CopyMessage::FileEnd { id, size, chunks } => put_numbers(out, 4, &[*id, *size, *chunks]),
            CopyMessage::FileFailed { id, failure } => {
                put_numbers(out, 5, &[*id]);
                put_failure(out, failure);
            }
            CopyMessage::Renewed { id, entry } => {
                put_numbers(out, 11, &[*id]);
                self.encode_entry(entry, out);
            }
            CopyMessage::EntriesEnd => out.push(6),
            CopyMessage::LeftOut { path } => {
                out.push(7);
                put_bytes(out, path);
            }
            CopyMessage::Present { path, presence } => {
                out.push(8);
                put_bytes(out, path);
                out.push(match presence {
                    Presence::Plain => 0,
                    Presence::Directory => 1,
                    Presence::DirectoryEnd => 2,
                    Presence::DirectoryUnlisted => 3,
                });
            }
            CopyMessage::PresentEnd { is_complete } => out.extend_from_slice(&[9, u8::from(*is_complete)]),
            CopyMessage::Compared { id, is_same } => put_numbers(out, 10, &[*id, u64::from(*is_same)]),
            CopyMessage::Decide { id, decision } => {
                put_numbers(out, 16, &[*id]);
                match decision {
                    Decision::Send => out.push(0),
                    Decision::Listed => out.push(3),
                    Decision::Keep => out.push(8),
                    Decision::Compare(digest) => {
                        out.push(4);
                        out.extend_from_slice(digest);
                    }
                    Decision::Have(ranges) => {
                        out.push(2);
                        put_ranges(out, ranges);
                    }
                    Decision::Patch { have, old_chunks } => {
                        out.push(5);
                        put_ranges(out, have);
                        put_varint(out, *old_chunks);
                    }
                }
            }
            CopyMessage::Done { id } => put_numbers(out, 17, &[*id]),
            CopyMessage::Failed { id, path, failure } => {
                put_numbers(out, 18, &[*id]);
                put_bytes(out, path);
                put_failure(out, failure);
            }
            CopyMessage::NotSet { path, reason } => {
                out.push(15);
                put_bytes(out, path);
                put_reason(out, reason);
            }
            CopyMessage::AsFile { id } => put_numbers(out, 41, &[*id]),
            CopyMessage::Again { id, chunk } => put_numbers(out, 19, &[*id, *chunk]),
            CopyMessage::DirectoriesDone { count, new: None } => put_numbers(out, 20, &[*count]),
            CopyMessage::DirectoriesDone { count, new: Some(new) } => put_numbers(out, 20, &[*count, *new]),
            CopyMessage::Unchanged { first, count } => put_numbers(out, 29, &[*first, *count]),
            CopyMessage::Deleted { path } => {
                out.push(21);
                put_bytes(out, path);
            }
            CopyMessage::NotDeleted { path, failure } => {
                out.push(22);
                put_bytes(out, path);
                put_failure(out, failure);
            }
            CopyMessage::DeletionStopped { cause, entries, of, names } => {
                let number = DeletionStopCause::ALL.iter().position(|one| one == cause).unwrap_or_default();
                put_numbers(out, 40, &[number as u64, *entries, *of, names.len() as u64]);
                names.iter().for_each(|name| put_bytes(out, name));
            }
            CopyMessage::SourceRoot(root) => put_numbers(out, 42, &[root.file_system, root.inode]),
            CopyMessage::Left { path, border } => {
                out.push(54);
                put_bytes(out, path);
                out.push(match border {
                    Border::MountPoint => 0,
                    Border::Beyond => 1,
                });
            }
            CopyMessage::Replaced { path, was, by } => {
                out.push(55);
                put_bytes(out, path);
                out.extend_from_slice(&[was.number(), by.number()]);
            }
            CopyMessage::Parted { path } => {
                out.push(39);
                put_bytes(out, path);
            }
            CopyMessage::BackedUp { path } => {
                out.push(43);
                put_bytes(out, path);
            }
            CopyMessage::Names { names, is_last } => put_list(out, 23, names, *is_last),
            CopyMessage::Paths { paths, is_last } => put_list(out, 38, paths, *is_last),
            CopyMessage::Marks { id, chunk, marks } => {
                put_numbers(out, 24, &[*id, *chunk]);
                put_bytes(out, marks);
            }
            CopyMessage::MarksEnd { id } => put_numbers(out, 25, &[*id]),
            CopyMessage::Kept { id, chunk, cv } => {
                put_numbers(out, 30, &[*id, *chunk]);
                out.extend_from_slice(&cv.0);
            }
            CopyMessage::Same { id, chunk } => put_numbers(out, 13, &[*id, *chunk]),
            CopyMessage::Skipped { path, reason } => {
                out.push(12);
                put_bytes(out, path);
                put_reason(out, reason);
            }
            CopyMessage::Renamed { id, from } => {
                put_numbers(out, 26, &[*id]);
                put_bytes(out, from);
            }
            CopyMessage::Digests { id, digests } => {
                put_numbers(out, 27, &[*id]);
                out.extend_from_slice(&digests.tree.0);
                put_varint(out, digests.extra.len() as u64);
                for (algorithm, digest) in &digests.extra {
                    put_bytes(out, algorithm.name().as_bytes());
                    put_bytes(out, digest);
                }
            }
            CopyMessage::Receipt { statement, reason } => {
                out.push(31);
                put_bytes(out, statement);
                put_reason(out, reason);
            }
            CopyMessage::Placed { name } => {
                out.push(28);
                put_bytes(out, name);
            }
        }
    }

    fn encode_entry(&mut self, entry: &ManifestEntry, out: &mut Vec<u8>) {
        out.push(1);
        put_varint(out, entry.id);
        let shared = entry.path.iter().zip(&self.last_path).take_while(|(a, b)| a == b).count();
        put_varint(out, shared as u64);
        put_bytes(out, &entry.path[shared..]);
        self.last_path.clone_from(&entry.path);
        put_varint(out, u64::from(entry.mode));
        put_signed(out, entry.mtime_secs);
        put_varint(out, u64::from(entry.mtime_nanos));
        let attributes = if entry.attributes.is_empty() { 0 } else { ATTRIBUTES };
        let more = attributes | if entry.owner.is_some() { OWNER } else { 0 };
        match &entry.what {
            EntryContent::File { size, inode, device, ctime, sparse, linked } => {
                out.push(more | u8::from(*sparse) << 1 | u8::from(*linked) << 2);
                put_varint(out, *size);
                put_varint(out, *inode);
                put_varint(out, *device);
                if *size > CHUNK {
                    put_signed(out, ctime.secs);
                    put_varint(out, u64::from(ctime.nanos));
                }
            }
            EntryContent::Stream => out.push(more | 1),
            EntryContent::Directory => out.push(more | 8),
            EntryContent::Symlink { target } => {
                out.push(more | 9);
                put_bytes(out, target);
            }
            EntryContent::HardLink { to } => {
                out.push(more | 10);
                put_varint(out, *to);
            }
            EntryContent::Special(node) => {
                let (kind, major, minor) = match *node {
                    SpecialNode::Fifo => (0, 0, 0),
                    SpecialNode::Socket => (1, 0, 0),
                    SpecialNode::CharDevice { major, minor } => (2, major, minor),
                    SpecialNode::BlockDevice { major, minor } => (3, major, minor),
                };
                out.push(more | 11);
                [kind, major, minor].into_iter().for_each(|number| put_varint(out, u64::from(number)));
            }
        }
        if attributes != 0 {
            put_varint(out, entry.attributes.len() as u64);
            for (name, value) in &entry.attributes {
                put_bytes(out, name);
                put_bytes(out, value);
            }
        }
        if let Some(owner) = &entry.owner {
            let is_same = self.last_owner.as_ref() == Some(owner);
            out.push(u8::from(is_same));
            if !is_same {
                put_varint(out, u64::from(owner.uid));
                put_varint(out, u64::from(owner.gid));
                put_bytes(out, &owner.user);
                put_bytes(out, &owner.group);
                self.last_owner = Some(owner.clone());
            }
        }
    }
}

fn put_list(out: &mut Vec<u8>, code: u8, list: &[Vec<u8>], is_last: bool) {
    put_numbers(out, code, &[u64::from(is_last), list.len() as u64]);
    list.iter().for_each(|bytes| put_bytes(out, bytes));
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[(u64, u64)]) {
    let ranges = &ranges[..ranges.len().min(RANGES_MAX)];
    put_varint(out, ranges.len() as u64);
    for &(first, count) in ranges {
        put_varint(out, first);
        put_varint(out, count);
    }
}

/// Encodes what a copy adds to the figures at its end: what has arrived in each directory of a destination
/// that has several.
pub(crate) fn encode_spread(spread: &[SpreadFigures]) -> Vec<u8> {
    let mut out = Vec::new();
    if spread.is_empty() {
        return out;
    }
    put_varint(&mut out, spread.len() as u64);
    for directory in spread {
        put_reason(&mut out, &directory.directory);
        put_varint(&mut out, directory.files);
        put_varint(&mut out, directory.bytes);
    }
    out
}
