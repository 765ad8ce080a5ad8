//! Files that are written at once, or in the order of a stream. They are written without a name and then
//! linked; if they replace a file, they are linked under a temporary name and then renamed. On file systems
//! without nameless files, they have a temporary name from the beginning.
//!
//! Always true: the target's name shows the old file or the complete new one. The new file's data are on the
//! disk as far as the file system needs that, so that the name does not get there first (`writeback`). A file
//! that is renamed takes ten system calls: open, look for a leftover, write, times, a second descriptor that
//! is closed, look, link, rename, close.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::attributes::{self, AttributeKinds, Attributes};
use crate::change;
use crate::digest::whole_digest;
use crate::dir::Dir;
use crate::entry::FileTime;
use crate::error::Error;
use crate::fixed_entries;
use crate::lent_file::LentFile;
use crate::metadata::{self, AttributeFailure, OwnerWish};
use crate::predecessor::Predecessor;
use crate::rel_path::RelPath;
use crate::root::{Root, sync_dir};
use crate::sparse_file::{self, PriorContent};
use crate::temp_file::{self, CreatedTemp};
use crate::writeback::{self, WriteOrdering, WritebackCase};

/// How a file is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    /// Permission bits, 07777; callers that do not want set-user-id and set-group-id bits have to remove
    /// them.
    pub mode: u32,
    /// The modification time. `None`: the time of its writing.
    pub mtime: Option<FileTime>,
    /// The file and its name are on the disk when the call returns.
    pub durable: bool,
    /// The file's data are committed to the disk before it gets its name; large files always do that.
    pub synced: bool,
    /// Pages of zeros become holes.
    pub sparse: bool,
    /// The extended attributes that it gets, of these kinds. If attributes, mode or time cannot be set, the
    /// file still gets its name, and the error says so ([`is_about_metadata`](crate::is_about_metadata)).
    pub attributes: Attributes,
    pub attribute_kinds: AttributeKinds,
    /// The file that it replaces, of which it keeps owner, group and access control list.
    pub predecessor: Option<Box<Predecessor>>,
    /// The owner and group that it gets in place of those.
    pub owner: OwnerWish,
}

impl Default for WriteOptions {
    /// A plain file, mode 0644.
    fn default() -> WriteOptions {
        WriteOptions {
            mode: 0o644,
            mtime: Some(FileTime::default()),
            durable: false,
            synced: false,
            sparse: false,
            attributes: Attributes::new(),
            attribute_kinds: AttributeKinds::default(),
            predecessor: None,
            owner: OwnerWish::default(),
        }
    }
}

/// Writes a whole file, and replaces what is at `path`, unless that is a directory.
pub fn write_whole(root: &Root, path: &RelPath, data: &[u8], options: &WriteOptions) -> io::Result<()> {
    UnnamedFile::replacing(root, path, data, options)?.finish()
}

/// As [`write_whole`], for a name that should not exist yet ([`UnnamedFile::new`]).
pub fn write_new(root: &Root, path: &RelPath, data: &[u8], options: &WriteOptions) -> io::Result<()> {
    UnnamedFile::new(root, path, data, options)?.finish()
}

/// A small file that has its content, mode and time, but not yet its name. If it is dropped unfinished, it is
/// removed.
#[derive(Debug)]
pub struct UnnamedFile {
    at: TempLocation,
    size: u64,
    options: WriteOptions,
    dressed: io::Result<()>,
}

#[derive(Debug)]
enum TempLocation {
    /// It has no name at all.
    Nowhere {
        file: File,
        dir: Arc<Dir>,
        target: Vec<u8>,
    },
    Beside(TempFile),
}

impl UnnamedFile {
    /// Writes a file for a name that should not exist yet. Until it is whole it has no name at all, so nobody
    /// else can use it, and nothing is left of it after a crash. Usually it takes seven system calls: open,
    /// write, times, a second descriptor that is closed, link, close. Before Linux 6.10 there is one more for
    /// users who may not read everything, and one more if the disk is waited for.
    pub fn new(root: &Root, path: &RelPath, data: &[u8], options: &WriteOptions) -> io::Result<UnnamedFile> {
        let (dir, name) = root.place(path)?;
        // Attributes can only be set on a writable file, whatever its final mode is.
        let writable = if options.attribute_kinds.is_none() { 0 } else { 0o600 };
        let initial = (options.mode & 0o777) | writable;
        let Some((file, mode)) = dir.create_nameless(initial) else {
            return UnnamedFile::replacing(root, path, data, options);
        };
        write(&file, data, options)?;
        let dressed = dress(&file, dir.medium(), mode, options)?;
        let at = TempLocation::Nowhere { file, dir, target: name.to_vec() };
        Ok(UnnamedFile { at, size: data.len() as u64, options: options.clone(), dressed })
    }

    /// Writes a file that will replace the entry with its name, unless that is a directory.
    pub fn replacing(
        root: &Root,
        path: &RelPath,
        data: &[u8],
        options: &WriteOptions,
    ) -> io::Result<UnnamedFile> {
        let temp = TempFile::create_with(root, path, options.mode)?;
        temp.write(data, options)?;
        let dressed = dress(&temp.file, temp.dir.medium(), temp.mode, options)?;
        Ok(UnnamedFile {
            at: TempLocation::Beside(temp),
            size: data.len() as u64,
            options: options.clone(),
            dressed,
        })
    }

    /// Whether the file must be on the disk before it gets its name.
    pub fn needs_a_disk(&self) -> bool {
        self.size > 0 && self.case().medium != WriteOrdering::Memory
    }

    /// Starts to write its content to the disk.
    pub fn begin(&self) -> io::Result<()> {
        writeback::begin(self.file(), 0, 0)
    }

    /// Waits until the disk has its content.
    pub fn wait(&self) -> io::Result<()> {
        writeback::wait(self.file())
    }

    /// Whether the content on the disk has this digest.
    pub fn reads_back(&self, digest: &[u8; 32]) -> io::Result<bool> {
        let file = self.file();
        writeback::sync(file)?;
        writeback::forget_cached(file);
        self.still_has(digest)
    }

    /// Whether the content, which may still be in memory, has this digest.
    pub fn still_has(&self, digest: &[u8; 32]) -> io::Result<bool> {
        let mut back = vec![0; self.size as usize];
        self.file().read_exact_at(&mut back, 0)?;
        Ok(whole_digest(&back) == *digest)
    }

    /// Lends the file to somebody who reads it.
    pub fn lend(&self) -> io::Result<LentFile> {
        LentFile::of(self.file())
    }

    /// Gives the file its name. After an error about metadata
    /// ([`is_about_metadata`](crate::is_about_metadata)) it has its name.
    pub fn finish(self) -> io::Result<()> {
        let case = self.case();
        let UnnamedFile { at, size, options, dressed } = self;
        match at {
            TempLocation::Beside(temp) => temp.place(case, &options).and(dressed),
            TempLocation::Nowhere { file, dir, target } => {
                on_the_disk(&file, case, &options)?;
                match dir.make(&target, || temp_file::link(&file, &dir, &target)) {
                    Ok(kept) => kept?,
                    Err(error) => {
                        if error != Errno::EXIST {
                            dir.refuse_nameless();
                        }
                        // The name exists after all, or the file system cannot give a name to a nameless
                        // file.
                        let mut data = vec![0; size as usize];
                        file.read_exact_at(&mut data, 0)?;
                        let temp = TempFile::create_in(dir, &target, options.mode)?;
                        temp.write(&data, &options)?;
                        return temp.finish(&options);
                    }
                }
                if options.durable {
                    sync_dir(&dir)?;
                }
                dressed
            }
        }
    }

    fn file(&self) -> &File {
        match &self.at {
            TempLocation::Nowhere { file, .. } => file,
            TempLocation::Beside(temp) => &temp.file,
        }
    }

    fn case(&self) -> WritebackCase {
        match &self.at {
            TempLocation::Nowhere { dir, .. } => case(dir, self.size, self.options.synced),
            TempLocation::Beside(temp) => case(&temp.dir, self.size, true),
        }
    }
}

fn case(dir: &Dir, size: u64, is_strict: bool) -> WritebackCase {
    WritebackCase { medium: dir.medium(), size, is_strict }
}

/// Makes sure that the file may get its name.
fn on_the_disk(file: &File, case: WritebackCase, options: &WriteOptions) -> io::Result<()> {
    if case.size > 0 {
        writeback::settle(file, case)?;
    }
    if options.durable {
        file.sync_all()?;
    }
    writeback::close_check(file)
}

fn write(file: &File, data: &[u8], options: &WriteOptions) -> io::Result<()> {
    if options.sparse {
        sparse_file::write(file, data, 0, PriorContent::Fresh)?;
        return change::set_len(file, data.len() as u64);
    }
    if data.is_empty() { Ok(()) } else { change::write_all(file, data) }
}

/// Sets everything but the name of a file, which has mode `has`, if that is known. The inner result says what
/// could not be set.
fn dress(
    file: &File,
    medium: WriteOrdering,
    has: Option<u32>,
    options: &WriteOptions,
) -> io::Result<io::Result<()>> {
    let mode = options.mode & 0o7777;
    let mut unset = AttributeFailure::default();
    // Before the mode, which may forbid setting the rest, and which a new owner or list changes.
    if let Some(predecessor) = &options.predecessor {
        predecessor.hand_down(file, mode, options.attribute_kinds, &mut unset)?;
    }
    options.owner.set_of_file(file, &mut unset)?;
    attributes::apply_noting(file, &options.attributes, options.attribute_kinds, &mut unset);
    // An access control list or another owner may have changed the mode.
    let is_sure =
        options.attribute_kinds.is_none() && options.predecessor.is_none() && options.owner.is_none();
    let mode = Some(mode).filter(|_| !is_sure || has != Some(mode));
    metadata::set_of_file(file, medium, mode, options.mtime, &mut unset)?;
    Ok(unset.done())
}

/// A file that is being written, without a name or under a temporary one; removed if it is dropped
/// unfinished.
#[derive(Debug)]
pub struct TempFile {
    dir: Arc<Dir>,
    name: Option<Vec<u8>>,
    target: Vec<u8>,
    file: File,
    /// The file's present mode, if known.
    mode: Option<u32>,
}

impl TempFile {
    /// Creates the empty temporary file of `path`.
    pub fn create(root: &Root, path: &RelPath) -> io::Result<TempFile> {
        TempFile::create_with(root, path, 0o600)
    }

    fn create_with(root: &Root, path: &RelPath, mode: u32) -> io::Result<TempFile> {
        let attempt = || -> Result<TempFile, Error> {
            let (dir, target) = root.place(path).map_err(Error::io("open the directory"))?;
            TempFile::create_in(dir, target, mode)
        };
        match attempt() {
            // The directory whose descriptor was kept may have been removed and created again.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                root.forget_parents();
                Ok(attempt()?)
            }
            made => Ok(made?),
        }
    }

    fn create_in(dir: Arc<Dir>, target: &[u8], mode: u32) -> Result<TempFile, Error> {
        fixed_entries::check(&dir, target).map_err(Error::io("replace it"))?;
        // Writable for us in any case, as attributes may have to be set.
        let CreatedTemp { file, name, mode } = temp_file::create(&dir, (mode & 0o777) | 0o600)?;
        // A partial file that is left may be of a larger version; it is of no more use.
        let _ = temp_file::remove_left(&dir, target);
        Ok(TempFile { dir, name, target: target.to_vec(), file, mode })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes the whole content; to be called once.
    pub fn write(&self, data: &[u8], options: &WriteOptions) -> io::Result<()> {
        write(&self.file, data, options)
    }

    /// Whether the file must be on the disk before it gets its name.
    pub fn needs_a_disk(&self) -> bool {
        self.dir.medium() != WriteOrdering::Memory
    }

    /// Starts to write a part of it to the disk.
    pub fn begin(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.needs_a_disk() {
            true => writeback::begin(&self.file, offset, len),
            false => Ok(()),
        }
    }

    /// Syncs the content to the disk and drops it from the cache, so that the next read is from the disk.
    pub fn forget_cached(&self) -> io::Result<()> {
        writeback::sync(&self.file)?;
        writeback::forget_cached(&self.file);
        Ok(())
    }

    /// Lends the file to somebody who reads it.
    pub fn lend(&self) -> io::Result<LentFile> {
        LentFile::of(&self.file)
    }

    /// Gives the file its mode, time and name.
    pub fn finish(self, options: &WriteOptions) -> io::Result<()> {
        let dressed = dress(&self.file, self.dir.medium(), self.mode, options)?;
        let size = self.file.metadata()?.len();
        let case = case(&self.dir, size, true);
        self.place(case, options).and(dressed)
    }

    /// Names a file that has everything else.
    fn place(mut self, case: WritebackCase, options: &WriteOptions) -> io::Result<()> {
        on_the_disk(&self.file, case, options)?;
        // From here on, the temporary name is removed in any case.
        let name = self.name.take();
        temp_file::put(&self.file, name.as_deref(), &self.dir, &self.target)?;
        if options.durable {
            sync_dir(&self.dir)?;
        }
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If it cannot be removed, it is recognised later as a file that was left.
            let _ = change::unlinkat(&self.dir, &name[..], AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
