//! Uses content of another version: the file under the target's name, and what an earlier run has left in the
//! partial file. The content is copied into the partial file, where nobody else writes, and compared and
//! patched there.
//!
//! Always true: such content counts only after it was found to have the sender's value. A chunk is copied in
//! only while it is neither there nor being written by another thread. The old file itself is only read.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Partial, SIZE_MAX, SourceIdentity, State};
use crate::CHUNK;
use crate::change;
use crate::delta::{Marks, Patch};
use crate::digest::{ChunkCv, chunk_cv};
use crate::entry::Metadata;
use crate::error::Error;
use crate::kept_directories::is_out_of_descriptors;
use crate::rel_path::RelPath;
use crate::room;
use crate::root::Root;
use crate::writeback::{FirstError, WriteOrdering};

/// The old version of a file.
pub(super) struct OldChunk {
    /// The old file; `None` if its content is in the partial file already, or if there is none.
    target: Option<File>,
    /// Bytes of the old version.
    len: u64,
}

/// The result of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchOutcome {
    /// The chunk is there now.
    Written,
    /// The chunk was there before, or another thread is writing it.
    There,
    /// The result differs from the sender's chunk.
    Differs,
}

impl OldChunk {
    /// Finds an old version; `None` if there is none of at least a chunk that can be read. `left` bytes are in
    /// the partial file already. Fails for want of descriptors.
    pub(super) fn find(
        dir: &OwnedFd,
        target: &[u8],
        partial: &File,
        left: u64,
    ) -> Result<Option<OldChunk>, Error> {
        let target = match open_plain(dir, target, OFlags::RDONLY) {
            Err(error) if is_out_of_descriptors(&error) => return Err(Error::io("open the old file")(error)),
            opened => opened.ok().flatten(),
        };
        let target = target.filter(|(_, meta)| meta.size >= CHUNK);
        let mut len = target.as_ref().map_or(0, |(_, meta)| meta.size);
        if let (0, Some((file, _))) = (left, &target)
            // A clone shares the blocks of the old file until they are changed.
            && change::ioctl_ficlone(partial, file).is_ok()
        {
            return Ok(Some(OldChunk { target: None, len }));
        }
        len = len.max(left);
        Ok((len >= CHUNK).then_some(OldChunk { target: target.map(|(file, _)| file), len }))
    }
}

/// Opens a file, never through a symbolic link; `None` if it is not a plain file.
fn open_plain(dir: &OwnedFd, name: &[u8], access: OFlags) -> io::Result<Option<(File, Metadata)>> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(fs::openat(dir, name, flags, Mode::empty())?);
    let meta = Metadata::from(&fs::fstat(&file)?);
    Ok(meta.is_file().then_some((file, meta)))
}

/// Opens a file to read and change it. Its owner may do that whatever its mode is: a mode that forbids
/// writing is changed and put back while the file is opened.
fn open_to_change(dir: &OwnedFd, name: &[u8]) -> io::Result<Option<(File, Metadata)>> {
    let refused = match open_plain(dir, name, OFlags::RDWR) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => error,
        opened => return opened,
    };
    let Ok(Some((file, meta))) = open_plain(dir, name, OFlags::RDONLY) else { return Err(refused) };
    if meta.uid != rustix::process::geteuid().as_raw() || meta.mode & 0o200 != 0 {
        return Err(refused);
    }
    change::fchmod(&file, Mode::from_raw_mode(meta.mode | 0o200))?;
    let opened = open_plain(dir, name, OFlags::RDWR);
    change::fchmod(&file, Mode::from_raw_mode(meta.mode))?;
    opened
}

/// How a file under its own name can be changed.
#[derive(Debug)]
pub enum InPlace {
    Open(Box<Partial>),
    /// There is no plain file of at least a chunk.
    Absent,
    /// The file has other names (hard links), which must not get the new content.
    HasOtherNames,
}

impl Partial {
    /// Opens the file under its own name to change it in place. An interrupted run leaves the file half new,
    /// and a later run can tell that only by its time. Nothing is changed before
    /// [`Partial::begin_in_place`].
    pub fn open_in_place(root: &Root, path: &RelPath, identity: &SourceIdentity) -> Result<InPlace, Error> {
        if identity.size > SIZE_MAX {
            return Err(Error::io("create a file")(Errno::FBIG));
        }
        let (dir, target) = root.place(path).map_err(Error::io("open the directory"))?;
        let opened = match open_to_change(&dir, target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(InPlace::Absent),
            opened => {
                opened.map_err(|source| Error::Io { what: "open it to be changed in place", source })?
            }
        };
        let Some((file, meta)) = opened.filter(|(_, meta)| meta.size >= CHUNK) else {
            return Ok(InPlace::Absent);
        };
        if meta.nlink > 1 {
            return Ok(InPlace::HasOtherNames);
        }
        dir.check_own(target).map_err(Error::io("change it in place"))?;
        // As for a partial file: where there are no locks, the user has to avoid two transfers of one file.
        if fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(Error::Locked);
        }
        Ok(InPlace::Open(Box::new(Partial {
            target: target.to_vec(),
            name: target.to_vec(),
            journal_name: Vec::new(),
            medium: WriteOrdering::of(&file),
            file,
            direct: None,
            cache_turn: std::sync::Mutex::default(),
            sync_turn: std::sync::Mutex::default(),
            error: FirstError::default(),
            identity: *identity,
            holds_old_content: true.into(),
            old: Some(OldChunk { target: None, len: meta.size }),
            is_in_place: true,
            state: State::new(identity).into(),
            dir: Arc::clone(&dir),
        })))
    }

    /// Gives a file that is changed in place its new size; until then it is only read. Does nothing for other
    /// files.
    pub fn begin_in_place(&self) -> Result<(), Error> {
        if !self.is_in_place {
            return Ok(());
        }
        // Until the file is complete, its time is that of neither version.
        let set = room::resize(&self.file, self.identity.size, false);
        set.map_err(|source| Error::Io { what: "set the file's size", source })
    }

    /// The number of chunks, from the first on, that an old version has.
    pub fn old_chunks(&self) -> u64 {
        self.old.as_ref().map_or(0, |old| old.len.min(self.identity.size).div_ceil(CHUNK))
    }

    /// The marks of the old content in the place of a chunk; `None` if the chunk is there, or if another
    /// thread is writing it. `buffer` is scratch.
    pub fn marks(&self, index: u64, buffer: &mut Vec<u8>) -> io::Result<Option<Marks>> {
        if index >= self.old_chunks() || self.is_kept(index) || !self.claim(index)? {
            return Ok(None);
        }
        let brought = self.bring(index, buffer);
        self.state().in_hand.remove(index);
        brought?;
        Ok(Some(Marks::of(buffer)))
    }

    /// Fills `buffer` with the content in the chunk's place; content of the old file is copied there if the
    /// place is empty.
    fn bring(&self, index: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let (start, len) = (index * CHUNK, self.chunk_len(index));
        buffer.clear();
        buffer.resize(len, 0);
        let target = self.old.as_ref().and_then(|old| old.target.as_ref());
        let is_empty = || match fs::seek(&self.file, fs::SeekFrom::Data(start)) {
            Ok(data) => data >= start + len as u64,
            Err(error) => error == Errno::NXIO,
        };
        let Some(target) = target.filter(|_| is_empty()) else {
            return room::read_padded(&self.file, buffer, start);
        };
        room::read_padded(target, buffer, start)?;
        self.will_begin(index, buffer)?;
        self.write_buffered(buffer, start)
    }

    /// Marks a chunk whose content is the sender's already.
    pub fn adopt(&self, index: u64, cv: ChunkCv) -> io::Result<PatchOutcome> {
        if !self.claim(index)? {
            return Ok(PatchOutcome::There);
        }
        {
            let mut state = self.state();
            state.in_hand.remove(index);
            state.written.insert(index);
        }
        // The chunk may have been copied from the old file.
        self.begin_sync(index * CHUNK, CHUNK)?;
        self.mark(index, cv)?;
        Ok(PatchOutcome::Written)
    }

    /// Patches the old content of a chunk so that it is the sender's, and marks it. `buffer` is scratch.
    pub fn patch(
        &self,
        index: u64,
        patch: &Patch<'_>,
        cv: ChunkCv,
        buffer: &mut Vec<u8>,
    ) -> io::Result<PatchOutcome> {
        if index >= self.identity.chunks() || !self.claim(index)? {
            return Ok(PatchOutcome::There);
        }
        self.holds_old_content.store(true, Relaxed);
        let written =
            self.error.check().and_then(|()| self.error.note(self.write_patch(index, patch, cv, buffer)));
        let mut state = self.state();
        state.in_hand.remove(index);
        if !written? {
            return Ok(PatchOutcome::Differs);
        }
        state.written.insert(index);
        drop(state);
        self.mark(index, cv)?;
        Ok(PatchOutcome::Written)
    }

    /// Returns false, and writes nothing, if the result would differ from the sender's chunk.
    fn write_patch(
        &self,
        index: u64,
        patch: &Patch<'_>,
        cv: ChunkCv,
        buffer: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let start = index * CHUNK;
        buffer.clear();
        buffer.resize(self.chunk_len(index), 0);
        room::read_padded(&self.file, buffer, start)?;
        for (at, part) in patch.parts() {
            buffer[at..at + part.len()].copy_from_slice(part);
        }
        if chunk_cv(buffer) != cv.0 {
            return Ok(false);
        }
        self.will_begin(index, buffer)?;
        for (at, part) in patch.parts() {
            self.write_buffered(part, start + at as u64)?;
        }
        self.begin_sync(start, CHUNK)?;
        Ok(true)
    }
}
