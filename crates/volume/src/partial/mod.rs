//! A large file that is arriving: its chunks come in any order, from several threads, and survive any end of
//! the run.
//!
//! Always true: the target's name shows the old file, or the complete new one with its data on the disk. A
//! chunk counts only after its data were written (`mark` comes after `write_chunk`). Chunks that count are in
//! the journal, if there is one. The first error that the kernel reports of the file's data is kept, and
//! chunks that it may concern do not count (`sync`). The partial file is locked as long as this lives. If it
//! is dropped unfinished, it stays to be resumed, if there is anything to resume.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use farhaul_handover::Held as _;
use rustix::fs::{self, Advice, AtFlags};
use rustix::io::Errno;

use crate::CHUNK;
use crate::attributes;
use crate::change;
use crate::digest::{ChunkCv, Digest, FileTree, chunk_cv, whole_digest};
use crate::dir::{Dir, NameError, name_error};
use crate::direct_io::DirectFile;
use crate::entry::{FileTime, Metadata};
use crate::error::Error;
use crate::fixed_entries;
use crate::journal::{BEGINNING, Journal, LoadedJournal, PartialRequest};
use crate::lent_file::LentFile;
use crate::metadata::{self, AttributeFailure};
use crate::name_trial::{self, DirTime};
use crate::own_names;
use crate::ranges::ChunkMap;
use crate::rel_path::RelPath;
use crate::room;
use crate::root::{Root, sync_dir};
use crate::small_file::WriteOptions;
use crate::sparse_file::{self, PriorContent};
use crate::temp_file::{self, CreatedTemp, OpenedPartial};
use crate::writeback::{self, FirstError, WriteOrdering};

mod old_version;
mod prior_chunks;
mod sync;

use old_version::OldChunk;
pub use old_version::{InPlace, PatchOutcome};

/// The largest file that offsets can describe, with a chunk to spare.
const SIZE_MAX: u64 = i64::MAX as u64 - CHUNK;
/// A write and its record in the journal are this far apart at most, but for a kill in between.
const UNTOLD_SECS: i64 = 1;
/// The value of a chunk whose sender computes no digests.
const NO_CV: ChunkCv = ChunkCv([0; 32]);

/// The source, and its state. Parts from an earlier run are only used for a source of the same size and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceIdentity {
    pub size: u64,
    pub mtime: FileTime,
    pub state: SourceState,
    /// The source has holes: chunks may be missing at the end, and zeros take no room. Not compared.
    pub sparse: bool,
}

/// What else is known of a source. Chunks that came from the same state are trusted. For chunks of another
/// state (the time was put back after a change, or only the mode has changed, or the source is a snapshot),
/// each value is compared with the source's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceState {
    pub ctime: FileTime,
    pub ino: u64,
    pub dev: u64,
}

impl SourceIdentity {
    pub(crate) fn chunks(&self) -> u64 {
        self.size.div_ceil(CHUNK)
    }
}

/// The chunks of an earlier run that count, and whether anything is kept for a later run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// None, and no journal is kept.
    Never,
    /// All of them.
    Any,
    /// Chunks with a digest; the others were never compared with what was sent.
    Digested,
    /// Chunks with a digest, after each was compared with the source's again, whatever its state.
    Compared,
}

/// A large file that is arriving.
pub struct Partial {
    dir: Arc<Dir>,
    target: Vec<u8>,
    name: Vec<u8>,
    journal_name: Vec<u8>,
    file: File,
    /// The second descriptor; `None` if the file cannot be written past the cache, or need not.
    direct: Option<DirectFile>,
    /// Held during a buffered write: the kernel lets one through at a time, and the others would spin.
    cache_turn: Mutex<()>,
    medium: WriteOrdering,
    /// Held while the kernel is asked for errors of the data, which it reports only once, until they are
    /// kept.
    sync_turn: Mutex<()>,
    error: FirstError,
    identity: SourceIdentity,
    /// Places of missing chunks may hold older content.
    holds_old_content: AtomicBool,
    /// The old version whose content may be used, if there is one.
    old: Option<OldChunk>,
    /// The file is changed in place, so it has its name already.
    is_in_place: bool,
    state: Mutex<State>,
}

impl State {
    fn new(identity: &SourceIdentity) -> State {
        State {
            have: ChunkMap::new(),
            kept: BTreeMap::new(),
            tree: FileTree::new(identity.size),
            journal: None,
            synced: 0,
            unsynced: ChunkMap::new(),
            in_hand: ChunkMap::new(),
            written: ChunkMap::new(),
            is_over: false,
            is_void: false,
        }
    }
}

struct State {
    have: ChunkMap,
    /// Chunks that came from the source in another state, and have not been compared.
    kept: BTreeMap<u64, ChunkCv>,
    tree: FileTree,
    journal: Option<Journal>,
    /// The number of journal records at the last checkpoint.
    synced: u64,
    /// Chunks whose data may not be on the disk yet.
    unsynced: ChunkMap,
    /// Chunks that are being written now.
    in_hand: ChunkMap,
    /// Chunks that are written, but not marked yet.
    written: ChunkMap,
    is_over: bool,
    /// It could not be decided which chunks still count.
    is_void: bool,
}

impl Partial {
    /// Opens the partial file of `path`, which goes on where an earlier run of the same source has stopped,
    /// or starts anew.
    pub fn open(
        root: &Root,
        path: &RelPath,
        identity: &SourceIdentity,
        resume: Resume,
    ) -> Result<Partial, Error> {
        Partial::open_twice(root, path, identity, resume, false)
    }

    /// As [`Partial::open`], but content of another version, under the target's name or in a partial file, is
    /// kept to be compared and patched ([`Partial::marks`]).
    pub fn open_over(
        root: &Root,
        path: &RelPath,
        identity: &SourceIdentity,
        resume: Resume,
    ) -> Result<Partial, Error> {
        Partial::open_twice(root, path, identity, resume, true)
    }

    fn open_twice(
        root: &Root,
        path: &RelPath,
        identity: &SourceIdentity,
        resume: Resume,
        keeps_old: bool,
    ) -> Result<Partial, Error> {
        if identity.size > SIZE_MAX {
            return Err(Error::io("create a file")(Errno::FBIG));
        }
        match Partial::open_once(root, path, identity, resume, keeps_old) {
            // The directory whose descriptor was kept may have been removed and created again.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                root.forget_parents();
                Partial::open_once(root, path, identity, resume, keeps_old)
            }
            opened => opened,
        }
    }

    fn open_once(
        root: &Root,
        path: &RelPath,
        identity: &SourceIdentity,
        resume: Resume,
        keeps_old: bool,
    ) -> Result<Partial, Error> {
        let (dir, target) = root.place(path).map_err(Error::io("open the directory"))?;
        // If the target cannot be replaced, everything would be sent for nothing.
        fixed_entries::check(&dir, target).map_err(Error::io("replace it"))?;
        if let Err(error) = name_trial::check(&dir, target, DirTime::Changes) {
            // No run could ever finish the file.
            let _ = temp_file::remove_left(&dir, target);
            return Err(Error::io("name the file")(error));
        }
        // Nothing can be kept for a later run if no name can be changed.
        if resume == Resume::Never || dir.is_append_only() {
            let CreatedTemp { file, name, .. } = temp_file::create(&dir, 0o600)?;
            // A longer, earlier version may have left a partial file.
            let _ = temp_file::remove_left(&dir, target);
            let old = if keeps_old { OldChunk::find(&dir, target, &file, 0)? } else { None };
            let mut partial = Partial::of(&dir, target, file, identity, old);
            partial.name = name.unwrap_or_default();
            partial.size(false)?;
            partial.choose_way();
            return Ok(partial);
        }
        let OpenedPartial { file, name, journal_name, was_there, meta } = temp_file::open_part(&dir, target)?;
        dir.look(&name);
        let mut partial = Partial::of(&dir, target, file, identity, None);
        (partial.name, partial.journal_name) = (name, journal_name);
        // Until it is decided what of an earlier run goes on, a failure removes nothing of it.
        partial.state().is_over = was_there;
        // Learns of write errors that an earlier run did not live to see; after one, none of its data can be
        // trusted.
        let can_resume = was_there && meta.size <= identity.size && partial.sync_left();
        let left = if can_resume { partial.load(meta.ino)? } else { None };
        if left.is_none() {
            // Created before the file takes any room, as the journal identifies the partial file as ours.
            let made = partial.create_journal(meta.ino);
            partial.state().journal = Some(made.map_err(Error::io("create the journal"))?);
        }
        let there = if was_there { meta.size } else { 0 };
        if keeps_old {
            partial.old = OldChunk::find(&partial.dir, target, &partial.file, there)?;
        }
        let begins_anew = left.is_none();
        if let Some(mut loaded) = left {
            let is_changed = meta.mtime.secs > loaded.changed_at.secs.saturating_add(UNTOLD_SECS);
            if loaded.partial_inode != meta.ino || is_changed {
                // It may be a copy of the file that the journal was written for, or somebody else has written
                // to it since: each chunk is read back.
                loaded.doubtful.append(&mut loaded.sure);
            }
            partial.resume(loaded, resume)?;
        }
        partial.state().is_over = false;
        if begins_anew {
            partial.size(was_there)?;
            partial.sign()?;
        }
        partial.choose_way();
        Ok(partial)
    }

    fn of(
        dir: &Arc<Dir>,
        target: &[u8],
        file: File,
        identity: &SourceIdentity,
        old: Option<OldChunk>,
    ) -> Partial {
        Partial {
            dir: dir.clone(),
            target: target.to_vec(),
            name: Vec::new(),
            journal_name: Vec::new(),
            medium: WriteOrdering::of(&file),
            file,
            direct: None,
            cache_turn: Mutex::new(()),
            sync_turn: Mutex::new(()),
            error: FirstError::default(),
            identity: *identity,
            holds_old_content: AtomicBool::new(false),
            old,
            is_in_place: false,
            state: Mutex::new(State::new(identity)),
        }
    }

    fn choose_way(&mut self) {
        if !self.identity.sparse && self.old.is_none() {
            self.direct = DirectFile::open(&self.dir, &self.name, &self.file, self.missing());
        }
    }

    /// Tells the holder of a partial file that is [`Error::Locked`] that somebody waits for it, as long as
    /// the result lives. Returns `None` if the holder keeps no journal.
    pub fn request(root: &Root, path: &RelPath) -> Option<PartialRequest> {
        let (dir, target) = root.place(path).ok()?;
        (0..own_names::PART_NAMES)
            .find_map(|number| PartialRequest::make(&dir, &own_names::part(&dir, target, number).1))
    }

    /// Whether another transfer has asked for this file.
    pub fn is_requested(&self) -> bool {
        self.state().journal.as_ref().is_some_and(Journal::is_requested)
    }

    fn load(&self, ino: u64) -> Result<Option<LoadedJournal>, Error> {
        // Where inode numbers say nothing, the file was found to begin as its journal says.
        let ino = self.dir.keeps_inodes().then_some(ino);
        Journal::load(&self.dir, &self.journal_name, &self.identity, ino)
            .map_err(Error::io("open the journal"))
    }

    fn create_journal(&self, ino: u64) -> io::Result<Journal> {
        let mut beginning = vec![0; BEGINNING];
        if !self.dir.keeps_inodes() {
            room::read_padded(&self.file, &mut beginning, 0)?;
        }
        // Perhaps it is emptied next.
        Journal::create(&self.dir, &self.journal_name, &self.identity, ino, [&beginning, &[]])
    }

    /// Makes a file without any content known by a drawn id, where its inode number says nothing. The holes of
    /// a sparse file, and the content of an old version, have to stay what they are.
    fn sign(&self) -> Result<(), Error> {
        if self.dir.keeps_inodes() || self.identity.sparse || self.old.is_some() {
            return Ok(());
        }
        let id = [b"farhaul partial file\n".as_slice(), &temp_file::drawn_id()].concat();
        self.will_begin(0, &id)
            .and_then(|()| change::write_all_at(&self.file, &id, 0))
            .map_err(Error::io("write to the partial file"))
    }

    /// Says in the journal how the file is about to begin if chunk `index` gets this content. Where inode
    /// numbers say nothing, the file is known as ours by that.
    fn will_begin(&self, index: u64, content: &[u8]) -> io::Result<()> {
        match &mut self.state().journal {
            Some(journal) if index == 0 && !self.dir.keeps_inodes() => journal.will_begin(content),
            Some(_) | None => Ok(()),
        }
    }

    /// Sets the size of a file without any chunks, and reserves its room if that is possible without writing
    /// zeros.
    fn size(&mut self, was_there: bool) -> Result<(), Error> {
        if self.old.is_some() {
            self.holds_old_content.store(true, Relaxed);
        } else if was_there {
            change::set_len(&self.file, 0).map_err(Error::io("empty the partial file"))?;
        }
        let is_reserved = !self.identity.sparse
            && room::reserve(&self.file, self.identity.size).map_err(Error::io("reserve space"))?;
        room::resize(&self.file, self.identity.size, is_reserved).map_err(Error::io("set the file's size"))
    }

    /// Moves the file to its place.
    fn give_name(&self) -> io::Result<()> {
        if self.journal_name.is_empty() {
            let name = (!self.name.is_empty()).then_some(&self.name[..]);
            return temp_file::put(&self.file, name, &self.dir, &self.target);
        }
        // Another file may have been put under that name meanwhile.
        let named = Metadata::from(&fs::statat(&self.dir, &self.name[..], AtFlags::SYMLINK_NOFOLLOW)?);
        let own = Metadata::from(&fs::fstat(&self.file)?);
        if (named.dev, named.ino) != (own.dev, own.ino) {
            return Err(io::Error::other("another file has the partial file's name"));
        }
        self.dir.place(&self.target, || self.dir.rename_here(&*self.dir, &self.name[..], &self.target))
    }

    fn resume(&mut self, loaded: LoadedJournal, resume: Resume) -> Result<(), Error> {
        let LoadedJournal { mut journal, mut sure, doubtful, earlier, is_same_source, .. } = loaded;
        let mut buffer = Vec::new();
        let mut recovered = false;
        // The file may have been truncated since.
        let there = self.file.metadata().map_err(Error::io("look at the partial file"))?.len();
        let is_beyond = |index: &u64| index * CHUNK + self.chunk_len(*index) as u64 > there;
        for (&index, _) in sure.iter().filter(|(index, _)| is_beyond(index)) {
            journal.chunk_gone(index).map_err(Error::io("write the journal"))?;
        }
        sure.retain(|index, _| !is_beyond(index));
        // No read-ahead: it would leave pages across the edges of chunks in the cache. A buffered write on
        // one side keeps these busy, while a direct one on the other side must throw them out. Advice may
        // fail.
        let _ = fs::fadvise(&self.file, 0, None, Advice::Random);
        for (index, cv) in doubtful {
            // Without a digest there is nothing to compare with.
            if cv != NO_CV && self.read_cv(index, &mut buffer).is_ok_and(|found| found == cv) {
                sure.insert(index, cv);
                recovered = true;
            } else {
                journal.chunk_gone(index).map_err(Error::io("write the journal"))?;
            }
        }
        // Without a value there is nothing to compare with the source either.
        let is_compared = |index: &u64| resume == Resume::Compared || earlier.contains(index);
        let is_of_use =
            |index: &u64, cv: &ChunkCv| *cv != NO_CV || resume == Resume::Any && !is_compared(index);
        for (&index, _) in sure.iter().filter(|&(index, cv)| !is_of_use(index, cv)) {
            journal.chunk_gone(index).map_err(Error::io("write the journal"))?;
        }
        sure.retain(|index, cv| is_of_use(index, cv));
        journal.opened().map_err(Error::io("write the journal"))?;
        let kept: BTreeMap<u64, ChunkCv> = sure.extract_if(.., |index, _| is_compared(index)).collect();
        if !is_same_source || kept.keys().any(|index| !earlier.contains(index)) {
            journal.source(&self.identity.state).map_err(Error::io("write the journal"))?;
        }
        let _ = fs::fadvise(&self.file, 0, None, Advice::Normal);
        self.holds_old_content.store(true, Relaxed);
        let mut state = self.state();
        for (index, cv) in sure {
            state.have.insert(index);
            state.unsynced.insert(index);
            state.tree.set(index, cv);
        }
        for &index in kept.keys() {
            state.unsynced.insert(index);
        }
        state.kept = kept;
        // Chunks that were read back are on the disk or soon will be; the next checkpoint records that.
        state.synced = if recovered { 0 } else { journal.records() };
        state.journal = Some(journal);
        Ok(())
    }

    // ---- looking -----------------------------------------------------------------------------------------------

    /// The chunks that are there.
    pub fn have(&self) -> ChunkMap {
        self.state().have.clone()
    }

    /// The chunks that are there, as (first, count).
    pub fn have_ranges(&self) -> Vec<(u64, u64)> {
        self.state().have.ranges()
    }

    /// How many chunks are there.
    pub fn chunks_there(&self) -> u64 {
        self.state().have.count()
    }

    /// How many chunks are missing (those of a sparse file's holes never arrive).
    pub fn missing(&self) -> u64 {
        self.identity.chunks() - self.chunks_there()
    }

    pub fn is_complete(&self) -> bool {
        self.missing() == 0
    }

    /// Bytes that the file takes on the disk, reserved or written; 0 if the system does not tell.
    pub fn allocated_bytes(&self) -> u64 {
        fs::fstat(&self.file).map_or(0, |stat| stat.st_blocks as u64 * 512)
    }

    /// The digest of the chunks that are there, with zeros for the others.
    pub fn digest(&self) -> Digest {
        self.state().tree.root()
    }

    // ---- writing -----------------------------------------------------------------------------------------------

    /// Writes a chunk's data, from any thread. Returns true if this call wrote it; then the caller has to
    /// `mark` it. A chunk that is there already, or that another thread is writing, is left as it is.
    pub fn write_chunk(&self, index: u64, data: &[u8]) -> io::Result<bool> {
        if index >= self.identity.chunks() || data.len() != self.chunk_len(index) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a chunk that the file does not have"));
        }
        // The first copy counts; a second one may be of a source that has changed since.
        if !self.claim(index)? {
            return Ok(false);
        }
        let result = self.error.check().and_then(|()| self.error.note(self.write_data(index, data)));
        if result.is_err() {
            self.holds_old_content.store(true, Relaxed);
        }
        let mut state = self.state();
        state.in_hand.remove(index);
        result?;
        state.written.insert(index);
        Ok(true)
    }

    fn write_data(&self, index: u64, data: &[u8]) -> io::Result<()> {
        let offset = index * CHUNK;
        self.will_begin(index, data)?;
        match &self.direct {
            Some(direct) if DirectFile::takes(data) => {
                direct.write(data, offset, |data, offset| self.write_through(data, offset))
            }
            _ => self.write_through(data, offset),
        }
    }

    /// Writes through the cache, and starts the write to the disk.
    fn write_through(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_buffered(data, offset)?;
        self.begin_sync(offset, data.len() as u64)
    }

    fn write_buffered(&self, data: &[u8], offset: u64) -> io::Result<()> {
        // The lock guards no data, so nothing is broken if a holder panicked.
        let _turn = self.cache_turn.lock().in_any_case();
        if !self.identity.sparse {
            return change::write_all_at(&self.file, data, offset);
        }
        let prior =
            if self.holds_old_content.load(Relaxed) { PriorContent::Used } else { PriorContent::Fresh };
        sparse_file::write(&self.file, data, offset, prior)
    }

    /// Marks a chunk that was written: from now on it is there, for later runs as well. That takes one system
    /// call of less than a microsecond, so a killed run loses nothing that it has marked. Only for the caller
    /// whose `write_chunk` returned true; a chunk whose write has not ended is never marked.
    pub fn mark(&self, index: u64, cv: ChunkCv) -> io::Result<()> {
        let mut state = self.state();
        if !state.written.contains(index) {
            return Ok(());
        }
        // A sync that failed meanwhile may have concerned this chunk.
        self.error.check()?;
        if let Some(journal) = &mut state.journal {
            journal.chunk_there(index, cv)?;
        }
        state.written.remove(index);
        state.have.insert(index);
        state.unsynced.insert(index);
        state.tree.set(index, cv);
        Ok(())
    }

    // ---- ending ------------------------------------------------------------------------------------------------

    /// Reads the file back from the disk; returns true if it has the digest of what arrived.
    pub fn readback(&self, goes_on: impl Fn() -> bool) -> io::Result<bool> {
        self.clear_missing()?;
        room::complete(&self.file, self.identity.size)?;
        self.sync()?;
        writeback::forget_cached(&self.file);
        self.still_has_content(goes_on)
    }

    /// Returns true if the content, which may still be in memory, has the digest of what arrived.
    pub fn still_has_content(&self, goes_on: impl Fn() -> bool) -> io::Result<bool> {
        let mut tree = FileTree::new(self.identity.size);
        let mut buffer = Vec::new();
        let mut next = 0;
        while let Some(index) = self.next_data(next)? {
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            tree.set(index, self.read_cv(index, &mut buffer)?);
            next = index + 1;
        }
        Ok(tree.root() == self.digest())
    }

    /// Lends the complete file to somebody who reads it.
    pub fn lend(&self) -> io::Result<LentFile> {
        self.clear_missing()?;
        room::complete(&self.file, self.identity.size)?;
        LentFile::of(&self.file)
    }

    /// Waits until the data of the complete file are on the disk, and gives the file its mode, time and name;
    /// returns its digest. If that fails, the file stays to be resumed, without chunks that the disk may not
    /// have. After an error that is about metadata only ([`is_about_metadata`](crate::is_about_metadata)) the
    /// file has its name.
    pub fn finish(&self, options: &WriteOptions) -> Result<Digest, Error> {
        self.finish_after(options, || Ok(()))
    }

    /// As [`Partial::finish`]; `make_room` is called when all is done but for the name, which the file does not
    /// get if that fails.
    pub fn finish_after(
        &self,
        options: &WriteOptions,
        make_room: impl FnOnce() -> io::Result<()>,
    ) -> Result<Digest, Error> {
        // Checked first, as chunks may be missing because of this error.
        self.error.check().map_err(Error::io("write it to the disk"))?;
        if !self.identity.sparse && !self.is_complete() {
            let source =
                io::Error::new(io::ErrorKind::InvalidData, format!("{} chunks are missing", self.missing()));
            return Err(Error::Io { what: "complete the file", source });
        }
        self.clear_missing().map_err(Error::io("clear the holes"))?;
        room::complete(&self.file, self.identity.size).map_err(Error::io("set the file's size"))?;
        self.sync().map_err(Error::io("write it to the disk"))?;
        self.error.note(writeback::close_check(&self.file)).map_err(Error::io("close the file"))?;
        let mut unset = AttributeFailure::default();
        // Before the mode, which may forbid setting the rest, and which a new owner or list changes.
        if let Some(predecessor) = options.predecessor.as_ref().filter(|_| !self.is_in_place) {
            predecessor
                .hand_down(&self.file, options.mode, options.attribute_kinds, &mut unset)
                .map_err(Error::io("set the file's owner"))?;
        }
        options.owner.set_of_file(&self.file, &mut unset).map_err(Error::io("set the file's owner"))?;
        attributes::apply_noting(&self.file, &options.attributes, options.attribute_kinds, &mut unset);
        // A file that is changed in place may belong to somebody else, and have the right mode already.
        let has = Metadata::from(&fs::fstat(&self.file).map_err(Error::io("look at the file"))?).mode;
        let mode = Some(options.mode & 0o7777).filter(|mode| *mode != has);
        metadata::set_of_file(&self.file, self.medium, mode, options.mtime, &mut unset)
            .map_err(Error::io("set mode and time"))?;
        if options.durable {
            self.error.note(self.file.sync_all()).map_err(Error::io("sync the file"))?;
        }
        if !self.is_in_place {
            make_room().map_err(Error::io("keep the old file"))?;
        }
        let mut state = self.state();
        if !self.is_in_place {
            let placed = self.give_name();
            if let Err(error) = &placed
                && matches!(name_error(error), Some(NameError::Refused(_) | NameError::Changed(_)))
            {
                // No later run could finish the file either.
                self.remove(&mut state);
            }
            placed.map_err(Error::io("rename it into place"))?;
        }
        state.is_over = true;
        if state.journal.take().is_some() {
            // A journal that is left behind would be replaced by the next run that writes this file.
            let _ = change::unlinkat(&self.dir, &self.journal_name[..], AtFlags::empty());
        }
        if options.durable {
            sync_dir(&self.dir).map_err(Error::io("sync the directory"))?;
        }
        let digest = state.tree.root();
        unset.done().map(|()| digest).map_err(Error::io("finish it"))
    }

    /// Keeps what is there for a later run, as dropping does.
    pub fn abandon(self) {}

    /// Removes the partial file.
    pub fn discard(&self) {
        let mut state = self.state();
        if !state.is_over && !self.is_in_place {
            self.remove(&mut state);
        }
    }

    /// Removes the partial file if nothing has arrived.
    pub fn discard_if_empty(&self) {
        if self.state().is_empty() {
            self.discard();
        }
    }

    fn remove(&self, state: &mut State) {
        state.is_over = true;
        state.journal = None;
        // A file that cannot be removed is taken over by the next run. The journal goes last: without it,
        // nobody could recognise the partial file as ours.
        for name in [&self.name, &self.journal_name].into_iter().filter(|name| !name.is_empty()) {
            let _ = change::unlinkat(&self.dir, &name[..], AtFlags::empty());
        }
    }

    // ---- chunks of the file ------------------------------------------------------------------------------------

    fn chunk_len(&self, index: u64) -> usize {
        self.identity.size.saturating_sub(index * CHUNK).min(CHUNK) as usize
    }

    fn read_cv(&self, index: u64, buffer: &mut Vec<u8>) -> io::Result<ChunkCv> {
        buffer.resize(self.chunk_len(index), 0);
        self.file.read_exact_at(buffer, index * CHUNK)?;
        Ok(ChunkCv(if self.identity.chunks() == 1 { whole_digest(buffer) } else { chunk_cv(buffer) }))
    }

    /// The first chunk from `from` on that has data.
    fn next_data(&self, from: u64) -> io::Result<Option<u64>> {
        if from >= self.identity.chunks() {
            return Ok(None);
        }
        match fs::seek(&self.file, fs::SeekFrom::Data(from * CHUNK)) {
            Ok(offset) => Ok(Some((offset / CHUNK).max(from))),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(from)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes holes of the chunks that never arrived, whatever an earlier run may have written there.
    fn clear_missing(&self) -> io::Result<()> {
        if !self.identity.sparse || !self.holds_old_content.load(Relaxed) {
            return Ok(());
        }
        let have = self.have();
        if !have.contains(0) {
            self.will_begin(0, &[])?;
        }
        for (first, end) in have.gaps(self.identity.chunks()) {
            sparse_file::clear(&self.file, first * CHUNK..(end * CHUNK).min(self.identity.size))?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete before anything can panic.
        self.state.lock().in_any_case()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let is_kept = !self.is_in_place && {
            let state = self.state();
            !state.is_over && state.journal.is_some() && !state.have.is_empty()
        };
        if is_kept {
            self.look_again();
        }
        let mut state = self.state.lock().in_any_case();
        // Without a journal, or with an empty one, there is nothing to resume.
        let is_worth_it = state.journal.is_some() && !state.is_empty() && !state.is_void;
        if !state.is_over && !self.is_in_place && !is_worth_it {
            self.remove(&mut state);
        }
    }
}

impl std::fmt::Debug for Partial {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Partial")
            .field("identity", &self.identity)
            .field("missing", &self.missing())
            .finish()
    }
}

#[cfg(test)]
mod tests;
