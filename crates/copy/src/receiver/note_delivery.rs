//! Notes each entry for the client's manifest and for a receipt. The note stays here if this end is the
//! client or a receipt is wanted; the sender is told what it has to note but cannot know.
//!
//! Always true: without a manifest and a receipt, nothing here reads, sends or stores anything.

use std::io;

use farhaul_volume::{CHUNK, Digest, Digests, RelPath, SourceFile};
use farhaul_words::Code;

use super::super::directory_tree::UnfinishedDirectory;
use super::super::failures::plain;
use super::super::incoming_entry::IncomingEntry;
use super::super::incoming_file::IncomingFile;
use super::super::manifest::{EntryFate, ManifestRecord, RecordKind};
use super::super::messages::{CopyMessage, EntryContent};
use super::super::receiver::{CopyReceiver, Destination};
use super::target_tree::TargetTree;
use crate::failures::Failure;

/// The digests of a file that was there already.
#[derive(Debug, Clone)]
pub(super) struct FoundDigests {
    digests: Digests,
    /// The sender has read its file, too, and found the same digest.
    is_compared: bool,
}

impl FoundDigests {
    /// The digest that both ends have found.
    pub(super) fn compared(digest: [u8; 32]) -> FoundDigests {
        FoundDigests { digests: Digests { tree: Digest(digest), extra: Vec::new() }, is_compared: true }
    }
}

impl CopyReceiver {
    // ---- names -------------------------------------------------------------------------------------------------

    /// Notes that the single source has another name here, if it has. Called before anything else is noted.
    pub(super) fn note_name(&self, target: &TargetTree) {
        let Some(name) = &target.rename else { return };
        self.notes.set_renamed(name);
        if !self.is_client {
            self.shared.send(&[CopyMessage::Placed { name: name.clone() }]);
        }
    }

    /// The name that the sender has for `path`.
    pub(super) fn source_path(&self, path: &RelPath) -> Vec<u8> {
        match &self.destination {
            Destination::Tree(target) => target.source_path(path),
            Destination::Pipe | Destination::Null => path.as_bytes().to_vec(),
        }
    }

    /// The manifest record of an entry.
    pub(super) fn record(&self, item: &IncomingEntry, fate: EntryFate) -> ManifestRecord {
        let to = match item.entry.what {
            EntryContent::HardLink { to } => self.links.path_of(to).map(|path| self.source_path(&path)),
            _ => None,
        };
        let path = item.source_path().to_vec();
        ManifestRecord { path, ..ManifestRecord::of_entry(&item.entry, fate, to) }
    }

    // ---- what has become of entries ------------------------------------------------------------------------------

    /// Notes a file that is in its place, and reads it for the digests that are wanted. Fails if the file's
    /// content is not what has arrived.
    pub(super) fn note_arrival(
        &self,
        file: &IncomingFile,
        replies: &mut Vec<CopyMessage>,
    ) -> Result<(), Failure> {
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
                return Err(Failure::new(
                    Code::DiskFailed,
                    "the content does not read back as it was written",
                ));
            }
            digests = Some(read);
        }
        if self.notes.are_told()
            && let Some(digests) =
                digests.clone().filter(|digests| !file.is_whole() || !digests.extra.is_empty())
        {
            replies.push(CopyMessage::Digests { id: file.item.id(), digests });
        }
        self.notes.add(|| {
            let record = self.record(&file.item, EntryFate::Sent);
            with_digests(ManifestRecord { kind: RecordKind::File { size: file.size() }, ..record }, digests)
        });
        Ok(())
    }

    /// Reads an unchanged file for its digests. `compared` is the digest of its content at both ends, if these
    /// were compared. Runs in a reading thread.
    pub(super) fn read_unchanged(&self, item: &IncomingEntry, compared: Option<[u8; 32]>) {
        let Destination::Tree(target) = &self.destination else { return };
        let path = &item.path;
        let read = self.read(target, path);
        if let Err(error) = &read {
            let text = format!("no digest of {path}, which cannot be read: {}", plain(error));
            self.warnings.add(text);
        }
        let found = read.ok().map(|digests| {
            let is_compared = compared == Some(digests.tree.0);
            FoundDigests { digests, is_compared }
        });
        let replies = self.skip(item, EntryFate::Unchanged, found);
        self.shared.send(&replies);
    }

    pub(super) fn note_skipped(
        &self,
        item: &IncomingEntry,
        fate: EntryFate,
        found: Option<FoundDigests>,
    ) -> Vec<CopyMessage> {
        self.notes.add(|| {
            let is_compared = found.as_ref().is_some_and(|found| found.is_compared);
            let digests = found.as_ref().map(|found| found.digests.clone());
            with_digests(ManifestRecord { is_compared, ..self.record(item, fate) }, digests)
        });
        let told = found.map(|found| found.digests).filter(|_| self.notes.are_told());
        told.map(|digests| CopyMessage::Digests { id: item.id(), digests }).into_iter().collect()
    }

    pub(super) fn note_directory(&self, directory: &UnfinishedDirectory, made: Result<(), Failure>) {
        let record = || {
            let mtime = (directory.mtime.secs, directory.mtime.nanos);
            let path = self.source_path(&directory.path);
            ManifestRecord {
                kind: RecordKind::Directory,
                mode: directory.source_mode,
                mtime,
                ..ManifestRecord::of_path(&path, EntryFate::sent(self.rules.dry_run))
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
                    self.shared.send(&[CopyMessage::Done { id: directory.id }]);
                }
            }
        }
    }

    fn read(&self, target: &TargetTree, path: &RelPath) -> io::Result<Digests> {
        let goes_on = || self.shared.request.rest();
        let file = SourceFile::at(target.roots.of(path), path)?;
        file.digests(&mut vec![0; file.size().min(CHUNK) as usize], self.notes.extra(), goes_on)
    }
}

fn with_digests(record: ManifestRecord, digests: Option<Digests>) -> ManifestRecord {
    match digests {
        Some(Digests { tree, extra }) => ManifestRecord { digest: Some(tree.0), extra, ..record },
        None => record,
    }
}
