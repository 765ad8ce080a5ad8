//! Files that are written at once, or in the order of a stream: without a name, then linked; where that cannot be, or something
//! is to be replaced, under a temporary name first, then renamed.
//!
//! Always true: the target's name shows the old file or the complete new one. Seven system calls a file that
//! is renamed: open, lock, look, write, times, rename, close.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use crate::attributes::{self, AttributeKinds, Attributes};
use crate::dir::Dir;
use crate::entry::Time;
use crate::error::Error;
use crate::names;
use crate::path::RelPath;
use crate::root::{Root, sync_dir, timestamps};
use crate::sparse::{self, Ground};
use crate::temporary::{self, Opened};

/// How a file is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    /// Permission bits, 07777: who does not want setuid and setgid takes them out before.
    pub mode: u32,
    pub mtime: Time,
    /// The file and its name are on the disk when the call returns.
    pub durable: bool,
    /// Pages of zeros become holes.
    pub sparse: bool,
    /// What it gets of the kinds given. If they cannot be set the file gets its name all the same, and the error says so
    /// ([`is_about_attributes`](crate::is_about_attributes)).
    pub attributes: Attributes,
    pub attribute_kinds: AttributeKinds,
}

impl Default for WriteOptions {
    /// A plain file, mode 0644.
    fn default() -> WriteOptions {
        WriteOptions {
            mode: 0o644,
            mtime: Time::default(),
            durable: false,
            sparse: false,
            attributes: Attributes::new(),
            attribute_kinds: AttributeKinds::default(),
        }
    }
}

/// Writes a whole file. What was at `path` is replaced, unless it is a directory.
pub fn write_whole(root: &Root, path: &RelPath, data: &[u8], options: &WriteOptions) -> io::Result<()> {
    let temp = TempFile::create_with(root, path, options.mode)?;
    temp.write(data, options)?;
    temp.finish(options)
}

/// As [`write_whole`], for a name that nothing has: the file has no name at all until it is whole, so that nobody else can have
/// it in hand and nothing is left of it after a crash. Five system calls a file in the usual case: open, write, times, link, close;
/// one more before Linux 6.10 for who may not read everything.
pub fn write_new(root: &Root, path: &RelPath, data: &[u8], options: &WriteOptions) -> io::Result<()> {
    match write_nameless(root, path, data, options)? {
        Nameless::Linked(attributed) => attributed,
        Nameless::Refused => write_whole(root, path, data, options),
    }
}

enum Nameless {
    /// The file is there; what came of its attributes.
    Linked(io::Result<()>),
    /// Something has its name after all, or the file system has no files without names.
    Refused,
}

fn write_nameless(root: &Root, path: &RelPath, data: &[u8], options: &WriteOptions) -> io::Result<Nameless> {
    let (dir, name) = root.place(path)?;
    // Attributes can be set only while we may write, whatever the mode is to be.
    let writable = if options.attribute_kinds.is_none() { 0 } else { 0o600 };
    let initial = (options.mode & 0o777) | writable;
    let Some((file, mode)) = dir.create_nameless(initial) else { return Ok(Nameless::Refused) };
    write(&file, data, options)?;
    let attributed = dress(&file, mode, options)?;
    match dir.make(name, || link(&file, &dir, name)) {
        Ok(kept) => kept?,
        Err(error) => {
            if error != Errno::EXIST {
                dir.refuse_nameless();
            }
            return Ok(Nameless::Refused);
        }
    }
    if options.durable {
        sync_dir(&dir)?;
    }
    Ok(Nameless::Linked(attributed))
}

/// Gives an open file its name. From: open(2), O_TMPFILE.
fn link(file: &File, dir: &Dir, name: &[u8]) -> rustix::io::Result<()> {
    match fs::linkat(file, c"", dir, name, AtFlags::EMPTY_PATH) {
        // Before Linux 6.10 only for those who may read everything.
        Err(Errno::NOENT) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            fs::linkat(fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

fn write(file: &File, data: &[u8], options: &WriteOptions) -> io::Result<()> {
    if options.sparse {
        sparse::write(file, data, 0, Ground::Fresh)?;
        return file.set_len(data.len() as u64);
    }
    if data.is_empty() { Ok(()) } else { (&*file).write_all(data) }
}

/// Gives a file that has mode `has`, if that is known, all but its name. The inner result is that of its attributes.
fn dress(file: &File, has: Option<u32>, options: &WriteOptions) -> io::Result<io::Result<()>> {
    let mode = options.mode & 0o7777;
    // Before the mode, which may forbid it.
    let attributed = attributes::apply(file, &options.attributes, options.attribute_kinds);
    if !options.attribute_kinds.is_none() || has != Some(mode) {
        fs::fchmod(file, Mode::from_raw_mode(mode))?;
    }
    fs::futimens(file, &timestamps(options.mtime))?;
    if options.durable {
        file.sync_all()?;
    }
    Ok(attributed)
}

/// A file under its temporary name; removed when dropped unfinished.
pub struct TempFile {
    dir: Arc<Dir>,
    name: Vec<u8>,
    target: Vec<u8>,
    file: File,
    /// The mode that the file has, if we know it.
    mode: Option<u32>,
    is_finished: bool,
}

impl TempFile {
    /// Makes the temporary file of `path`, empty.
    pub fn create(root: &Root, path: &RelPath) -> io::Result<TempFile> {
        TempFile::create_with(root, path, 0o600)
    }

    fn create_with(root: &Root, path: &RelPath, mode: u32) -> io::Result<TempFile> {
        let attempt = || -> Result<TempFile, Error> {
            let (dir, target) = root.place(path).map_err(Error::io("open the directory"))?;
            let name = names::part(target);
            // Ours to write in any case, so that a run after us can take it over.
            let initial = (mode & 0o777) | 0o600;
            let Opened { file, was_there, meta } = temporary::open(&dir, &name, initial)?;
            dir.look(&name);
            let mut temp =
                TempFile { dir, name, target: target.to_vec(), file, mode: None, is_finished: false };
            if was_there {
                // It may be of a version that had a journal.
                let _ = fs::unlinkat(&temp.dir, &names::journal(target)[..], AtFlags::empty());
                temp.file.set_len(0).map_err(Error::io("empty a leftover"))?;
            } else {
                temp.mode = Some(meta.mode);
            }
            Ok(temp)
        };
        match attempt() {
            // The directory whose descriptor we kept may have been removed and made again.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                root.forget_parents();
                Ok(attempt()?)
            }
            made => Ok(made?),
        }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes the whole content; only once.
    pub fn write(&self, data: &[u8], options: &WriteOptions) -> io::Result<()> {
        write(&self.file, data, options)
    }

    /// Gives the file its mode, time and name.
    pub fn finish(mut self, options: &WriteOptions) -> io::Result<()> {
        let attributed = dress(&self.file, self.mode, options)?;
        let rename = || fs::renameat(&self.dir, &self.name[..], &self.dir, &self.target[..]);
        self.dir.place(&self.target, rename)?;
        self.is_finished = true;
        if options.durable {
            sync_dir(&self.dir)?;
        }
        attributed
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // If it cannot be removed, the next run takes it over.
            let _ = fs::unlinkat(&self.dir, &self.name[..], AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
