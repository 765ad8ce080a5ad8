//! How the data of a large file get to the disk while it comes, and what becomes of it if they do not.
//!
//! Always true: of the chunks that were booked since the last sync that went well, none counts after one that did not, in this run
//! or a later one; whoever asks after such an error hears it, too.

use std::io;

use farhaul_handover::Held as _;

use super::{Partial, State};
use crate::ranges::ChunkMap;
use crate::writeback::{self, WriteOrdering};

impl Partial {
    /// Whether its name has to wait for a disk.
    pub fn needs_a_disk(&self) -> bool {
        self.medium != WriteOrdering::Memory
    }

    /// Hands what is still in memory to the disk.
    pub fn begin(&self) -> io::Result<()> {
        self.begin_sync(0, 0)
    }

    /// Waits until the disk has what was written. That makes [`Partial::finish`] short.
    pub fn wait(&self) -> io::Result<()> {
        let _turn = self.sync_turn.lock().in_any_case();
        self.error.check()?;
        writeback::wait(&self.file).inspect_err(|error| self.give_up(error))
    }

    pub(super) fn begin_sync(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.medium {
            WriteOrdering::Memory => Ok(()),
            _ => writeback::begin(&self.file, offset, len).inspect_err(|error| self.give_up(error)),
        }
    }

    /// Brings what an earlier run has left to the disk; false if that cannot be done.
    pub(super) fn sync_left(&self) -> bool {
        !self.needs_a_disk() || writeback::sync(&self.file).is_ok()
    }

    /// Brings the data to the disk, as far as it has one, or says that an earlier attempt has failed.
    pub(super) fn sync(&self) -> io::Result<()> {
        let _turn = self.sync_turn.lock().in_any_case();
        self.error.check()?;
        let unsynced = std::mem::take(&mut self.state().unsynced);
        let synced = match self.medium {
            WriteOrdering::Memory => Ok(()),
            _ => writeback::sync(&self.file),
        };
        if let Err(error) = &synced {
            self.state().unsynced.extend(&unsynced);
            self.give_up(error);
        }
        synced
    }

    /// Makes everything booked so far count even if the machine goes down.
    pub fn checkpoint(&self) -> io::Result<()> {
        let (records, journal_file) = {
            let state = self.state();
            let Some(journal) = &state.journal else { return self.error.check() };
            if journal.records() == state.synced {
                return self.error.check();
            }
            // Without a descriptor to spare there is no checkpoint this time.
            let Ok(file) = journal.file() else { return self.error.check() };
            (journal.records(), file)
        };
        self.sync()?;
        {
            let mut state = self.state();
            let Some(journal) = &mut state.journal else { return Ok(()) };
            journal.checkpoint(records)?;
            let is_quiet = journal.records() == records + 1;
            state.synced = records + u64::from(is_quiet);
        }
        journal_file.sync_data()
    }

    /// Looks once more how the data fare before a file that has met an error is left to a later run: what has been written since the
    /// last sync may have met it, too, and nobody asks later.
    pub(super) fn look_again(&self) {
        if self.error.check().is_err() && self.needs_a_disk() && writeback::sync(&self.file).is_err() {
            self.void();
        }
    }

    /// The disk may lack some of what was written since the last sync: none of that counts from now on.
    pub(super) fn give_up(&self, error: &io::Error) {
        self.error.keep(error);
        self.void();
    }

    fn void(&self) {
        let mut state = self.state();
        let State { have, kept, unsynced, journal, is_void, .. } = &mut *state;
        for (first, count) in std::mem::take(unsynced).ranges() {
            for index in first..first + count {
                have.remove(index);
                kept.remove(&index);
                // A journal that does not take it would have it believed, and goes.
                *is_void |= journal.as_mut().is_some_and(|journal| journal.chunk_gone(index).is_err());
            }
        }
    }
}

impl ChunkMap {
    fn extend(&mut self, other: &ChunkMap) {
        for (first, count) in other.ranges() {
            for index in first..first + count {
                self.insert(index);
            }
        }
    }
}
