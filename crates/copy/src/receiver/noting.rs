//! What the receiver tells of each entry for the client's manifest and for a receipt: noted here if the client is this end or a
//! receipt is wanted, and said to the sender as far as that notes it, too, and cannot know it.
//!
//! Always true: without a manifest and a receipt, nothing in here reads, sends or stores anything.

use std::io;

use farhaul_session::error::Code;
use farhaul_volume::{CHUNK, Digest, Digests, RelPath, SourceFile};

use super::super::destination::Target;
use super::super::failures::plain;
use super::super::incoming::Incoming;
use super::super::item::Item;
use super::super::manifest::{Fate, Kind, Record};
use super::super::messages::{Message, What};
use super::super::receiver::{Destination, Receiver};
use super::super::tree::Directory;
use crate::failures::Failure;

impl Receiver {
    // ---- names -------------------------------------------------------------------------------------------------

    /// Before anything is noted: the single source may have another name here.
    pub(super) fn note_name(&self, target: &Target, path: &[u8]) {
        let Some(renamed) = &target.rename else { return };
        if self.original.get().is_some() {
            return;
        }
        let top = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let _ = self.original.set(top.to_vec());
        self.notes.set_renamed(renamed);
        if !self.is_client {
            self.shared.send(&[Message::Placed { name: renamed.clone() }]);
        }
    }

    /// How the sender names what is at `path`.
    pub(super) fn source_path(&self, path: &RelPath) -> Vec<u8> {
        let path = path.as_bytes();
        let Some(original) = self.original.get() else { return path.to_vec() };
        let top = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        [original, &path[top..]].concat()
    }

    /// The line of an entry.
    pub(super) fn record(&self, item: &Item, fate: Fate) -> Record {
        let to = match item.entry.what {
            What::HardLink { to } => self.links.path_of(to).map(|path| self.source_path(&path)),
            _ => None,
        };
        let path = item.source_path().to_vec();
        Record { path, ..Record::of_entry(&item.entry, fate, to) }
    }

    // ---- what has become of entries ------------------------------------------------------------------------------

    /// A file is in its place: reads it for the digests that are wanted, and notes it. An error if it is not what has come.
    pub(super) fn note_arrival(&self, file: &Incoming, replies: &mut Vec<Message>) -> Result<(), Failure> {
        if !self.notes.are_wanted() {
            return Ok(());
        }
        let came = file.digest();
        let mut digests = came.map(|digest| Digests { tree: Digest(digest), extra: Vec::new() });
        if let (Destination::Tree(target), false) = (&self.destination, self.notes.extra().is_empty()) {
            let read = self
                .read(target, &file.item.path)
                .map_err(|error| Failure::cannot("read it back", &error))?;
            if came.is_some_and(|came| came != read.tree.0) {
                return Err(Failure::new(Code::DiskFailed, "what was written does not read back"));
            }
            digests = Some(read);
        }
        if self.notes.are_told()
            && let Some(digests) =
                digests.clone().filter(|digests| !file.is_whole() || !digests.extra.is_empty())
        {
            replies.push(Message::Digests { id: file.item.id(), digests });
        }
        self.notes.add(|| {
            let record = self.record(&file.item, Fate::Sent);
            with_digests(Record { kind: Kind::File { size: file.size() }, ..record }, digests)
        });
        Ok(())
    }

    /// The body of a thread that reads: a file that was there already.
    pub(super) fn read_unchanged(&self, item: &Item) {
        let Destination::Tree(target) = &self.destination else { return };
        let path = &item.path;
        let read = self.read(target, path);
        if let Err(error) = &read {
            let text = format!("no digest of {path}, which cannot be read: {}", plain(error));
            self.warnings.add(text);
        }
        let replies = self.skip(item, Fate::Unchanged, read.ok());
        self.shared.send(&replies);
    }

    pub(super) fn note_skipped(&self, item: &Item, fate: Fate, digests: Option<Digests>) -> Vec<Message> {
        self.notes.add(|| with_digests(self.record(item, fate), digests.clone()));
        let told = digests.filter(|_| self.notes.are_told());
        told.map(|digests| Message::Digests { id: item.id(), digests }).into_iter().collect()
    }

    pub(super) fn note_directory(&self, directory: &Directory, made: Result<(), Failure>) {
        let record = || {
            let mtime = (directory.mtime.secs, directory.mtime.nanos);
            let path = self.source_path(&directory.path);
            Record {
                kind: Kind::Directory,
                mode: directory.source_mode,
                mtime,
                ..Record::of_path(&path, Fate::sent(self.rules.dry_run))
            }
        };
        match made {
            Err(failure) => {
                self.notes.add(|| record().failed(&failure));
                self.shared.send(&[self.report_failed(directory.id, &directory.path, &failure)]);
            }
            Ok(()) => {
                self.notes.add(record);
                if self.notes.are_told() {
                    self.shared.send(&[Message::Done { id: directory.id }]);
                }
            }
        }
    }

    fn read(&self, target: &Target, path: &RelPath) -> io::Result<Digests> {
        let goes_on = || !self.shared.is_stopped();
        let file = SourceFile::at(target.roots.of(path), path)?;
        file.digests(&mut vec![0; file.size().min(CHUNK) as usize], self.notes.extra(), goes_on)
    }
}

fn with_digests(record: Record, digests: Option<Digests>) -> Record {
    match digests {
        Some(Digests { tree, extra }) => Record { digest: Some(tree.0), extra, ..record },
        None => record,
    }
}
