//! Brings the data of a large file to the disk while it arrives, and handles errors of that.
//!
//! Always true: after a sync that failed, no chunk counts that was marked since the last successful one, in
//! this run or a later one. Every later call reports the error, too.

use std::io;

use farhaul_handover::Held as _;

use super::{Partial, State};
use crate::ranges::ChunkMap;
use crate::writeback::{self, WriteOrdering};

impl Partial {
    /// Whether the file must be on the disk before it gets its name.
    pub fn needs_a_disk(&self) -> bool {
        self.medium != WriteOrdering::Memory
    }

    /// Starts to write to the disk what is still in memory.
    pub fn begin(&self) -> io::Result<()> {
        self.begin_sync(0, 0)
    }

    /// Waits until the disk has what was written, so that [`Partial::finish`] is quick.
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

    /// Syncs what an earlier run has left; returns false if that fails.
    pub(super) fn sync_left(&self) -> bool {
        !self.needs_a_disk() || writeback::sync(&self.file).is_ok()
    }

    /// Syncs the data to the disk, if the file system has one; fails if an earlier attempt has failed.
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

    /// Makes everything that is marked so far survive a crash of the machine.
    pub fn checkpoint(&self) -> io::Result<()> {
        let (records, journal_file) = {
            let state = self.state();
            let Some(journal) = &state.journal else { return self.error.check() };
            if journal.records() == state.synced {
                return self.error.check();
            }
            // Without a spare descriptor, there is no checkpoint this time.
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

    /// Syncs once more before a file with an error is left to a later run: data written since the last sync
    /// may be concerned, too, and nobody would notice later.
    pub(super) fn look_again(&self) {
        if self.error.check().is_err() && self.needs_a_disk() && writeback::sync(&self.file).is_err() {
            self.void();
        }
    }

    /// Handles an error: the disk may lack some of what was written since the last sync, so none of that
    /// counts any more.
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
                // If the journal cannot record that, a later run would trust it, so it has to be removed.
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
