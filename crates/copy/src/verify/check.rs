//! The threads that check the entries of a list.
//!
//! Always true: a file of many chunks is one task for all threads that have nothing else to do; the thread
//! that reads its last chunk reports the result. The result only counts if the file did not change between
//! the first chunk and the last.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, Sender};
use farhaul_handover::Held as _;
use farhaul_session::handle::Handle;
use farhaul_text::escape;
use farhaul_volume::{
    Algorithm, CHUNK, ChunkCv, Digest, FileKind, FileTime, FileTree, Hashers, Metadata, ProbeNames, RelPath,
    RelPathError, Root, SourceFile, are_within, chunk_cv,
};

use super::super::manifest::RecordKind;
use super::super::verify::{Counts, Difference, Finding, VerifyJob};
use super::list::{ExpectedContent, ExpectedEntry};
use crate::plain;

/// Files of more chunks than this are read by several threads.
const SHARED_CHUNKS: u64 = 32;
/// The number of chunks of such a file that a thread takes at a time.
const RUN: u64 = 8;
const IDLE: Duration = Duration::from_millis(5);

/// The state of a checking thread.
pub(super) struct Checker<'a> {
    pub(super) root: &'a Root,
    pub(super) job: &'a VerifyJob,
    pub(super) handle: &'a Handle,
    pub(super) counts: &'a Counts,
    /// The number of other threads.
    pub(super) helpers: usize,
    pub(super) expected: Receiver<ExpectedEntry>,
    pub(super) found: Sender<Finding>,
    pub(super) help: Sender<Arc<SharedFile>>,
    pub(super) helped: Receiver<Arc<SharedFile>>,
}

/// A file that several threads read.
pub(super) struct SharedFile {
    path: Vec<u8>,
    file: SourceFile,
    expected: [u8; 32],
    tree: Mutex<FileTree>,
    next: AtomicU64,
    left: AtomicU64,
    has_failed: AtomicBool,
}

impl Checker<'_> {
    pub(super) fn run(&self) {
        let mut buffer = vec![0; CHUNK as usize];
        let mut lines_end = false;
        while !lines_end && !self.handle.is_cancelled() {
            crossbeam_channel::select_biased! {
                recv(self.helped) -> large => if let Ok(large) = large { self.read(&large, &mut buffer) },
                recv(self.expected) -> line => match line {
                    Ok(line) => {
                        self.check(line, &mut buffer);
                        self.counts.under_way.fetch_sub(1, Ordering::SeqCst);
                    }
                    Err(RecvError) => lines_end = true,
                },
            }
        }
        // While others are still checking, one of them may need help with a large file.
        while self.counts.under_way.load(Ordering::SeqCst) > 0 && !self.handle.is_cancelled() {
            if let Ok(large) = self.helped.recv_timeout(IDLE) {
                self.read(&large, &mut buffer);
            }
        }
    }

    fn find(&self, path: &[u8], difference: Difference, reason: impl Into<String>) {
        let path = if path.is_empty() { ".".into() } else { escape(path) };
        let _ = self.found.send(Finding { difference, path, reason: reason.into() });
    }

    fn check(&self, line: ExpectedEntry, buffer: &mut [u8]) {
        self.counts.entries.fetch_add(1, Ordering::Relaxed);
        let path = match line.path.is_empty() {
            true => RelPath::empty(),
            false => match RelPath::from_bytes(&line.path) {
                Ok(path) => path,
                Err(RelPathError::Absolute(_)) => {
                    let reason = format!("it is not below {}", self.job.directory.display());
                    return self.find(&line.path, Difference::Unreadable, reason);
                }
                Err(error) => return self.find(&line.path, Difference::Unreadable, error.why()),
            },
        };
        let meta = match self.root.metadata(&path) {
            Ok(Some(meta)) => meta,
            Ok(None) => return self.find(&line.path, Difference::Missing, "it is not there"),
            Err(error) => return self.find(&line.path, Difference::Unreadable, plain(&error)),
        };
        if let Some(why) = self.difference(&line, &path, &meta) {
            return self.find(&line.path, Difference::Changed, why);
        }
        if let RecordKind::HardLink { to } = &line.kind {
            return match self.link_difference(&path, &meta, to, buffer) {
                Ok(None) => {}
                Ok(Some(why)) => self.find(&line.path, Difference::Changed, why),
                Err(error) => self.find(&line.path, Difference::Unreadable, plain(&error)),
            };
        }
        if !matches!(line.kind, RecordKind::File { .. }) || self.job.quick {
            return;
        }
        if line.content == ExpectedContent::Unknown {
            self.counts.without_digest.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let Err(error) = self.content(line, &path, buffer) {
            self.find(path.as_bytes(), Difference::Unreadable, plain(&error));
        }
    }

    /// How an entry differs from the list, as far as can be told without reading it.
    fn difference(&self, line: &ExpectedEntry, path: &RelPath, meta: &Metadata) -> Option<String> {
        let is_link = matches!(line.kind, RecordKind::Symlink { .. });
        let is_kind = match &line.kind {
            RecordKind::File { .. } | RecordKind::HardLink { .. } => meta.is_file(),
            RecordKind::Directory => meta.is_dir(),
            RecordKind::Symlink { .. } => !meta.is_file() && !meta.is_dir(),
            RecordKind::Special(node) => meta.kind == FileKind::Special(*node),
            RecordKind::Unknown => true,
        };
        if !is_kind {
            return Some("it is of another kind".into());
        }
        if let Some(size) = line.size.filter(|&size| size != meta.size) {
            return Some(format!("{} bytes instead of {size}", meta.size));
        }
        match &line.kind {
            RecordKind::Symlink { target } => match self.root.read_link(path) {
                Ok(there) if there == *target => {}
                Ok(there) => {
                    return Some(format!("a link to {} instead of {}", escape(&there), escape(target)));
                }
                Err(_) => return Some("it is of another kind".into()),
            },
            RecordKind::File { .. }
            | RecordKind::HardLink { .. }
            | RecordKind::Directory
            | RecordKind::Special(_)
            | RecordKind::Unknown => {}
        }
        if !self.job.metadata {
            return None;
        }
        let has = |mode: u32| mode & 0o1777 == meta.mode & 0o1777;
        if let Some(mode) =
            line.mode.filter(|&mode| !is_link && !has(mode) && !line.place_mode.is_some_and(has))
            && self.root.keeps_modes(path, meta)
        {
            let mode = line.place_mode.unwrap_or(mode);
            return Some(format!("mode {:04o} instead of {mode:04o}", meta.mode));
        }
        let wanted = line.mtime.map(|(secs, nanos)| FileTime::new(secs, nanos))?;
        if self.is_time_of(path, meta, wanted) {
            return None;
        }
        let is_older = if wanted > meta.mtime { "older" } else { "newer" };
        Some(format!("its modification time is {is_older}"))
    }

    /// How a hard link differs from the file at `to`. Where a link could not be made, the copy has put a file
    /// with the same content there, so only `--metadata` asks for one inode, and only of file systems that have
    /// links.
    fn link_difference(
        &self,
        path: &RelPath,
        meta: &Metadata,
        to: &[u8],
        buffer: &mut [u8],
    ) -> std::io::Result<Option<String>> {
        let target = RelPath::from_bytes(to).map_err(std::io::Error::other)?;
        let Some(other) = self.root.metadata(&target)? else {
            return Ok(Some(format!("{}, which it links to, is not there", escape(to))));
        };
        // Inode numbers alone prove nothing: some file systems give many files one number.
        let of = |meta: &Metadata| (meta.dev, meta.ino, meta.size, meta.mtime, meta.nlink);
        if of(&other) == of(meta) && meta.nlink > 1 {
            return Ok(None);
        }
        if self.job.metadata && self.root.keeps_modes(path, meta) {
            return Ok(Some(format!("not a hard link to {}", escape(to))));
        }
        let is_same = other.is_file()
            && other.size == meta.size
            && (self.job.quick || {
                let copy = self.digest_of(&SourceFile::at(self.root, path)?, buffer)?;
                copy == self.digest_of_target(&target, &other, buffer)?
            });
        Ok((!is_same).then(|| format!("neither a hard link to {} nor a copy of it", escape(to))))
    }

    /// The digest of a file that copies stand for links to. Many may do so, but it is read once, as long as it
    /// stays the same file; a thread that needs it while another one reads it waits.
    fn digest_of_target(
        &self,
        path: &RelPath,
        there: &Metadata,
        buffer: &mut [u8],
    ) -> std::io::Result<Digest> {
        let known = self.counts.link_targets.digest_of(there);
        let mut known = known.lock().in_any_case();
        if let Some(digest) = *known {
            return Ok(digest);
        }
        let digest = self.digest_of(&SourceFile::at(self.root, path)?, buffer)?;
        *known = Some(digest);
        Ok(digest)
    }

    fn digest_of(&self, file: &SourceFile, buffer: &mut [u8]) -> std::io::Result<Digest> {
        let digest = file.digest(buffer, || !self.handle.is_cancelled())?;
        self.has_read(file.size());
        Ok(digest)
    }

    /// Counts bytes that were read, for the report and for who watches the progress.
    fn has_read(&self, bytes: u64) {
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.handle.moved(bytes);
    }

    /// Whether the file has the time `wanted`, as far as its file system keeps that.
    fn is_time_of(&self, path: &RelPath, meta: &Metadata, wanted: FileTime) -> bool {
        if are_within(meta.mtime, wanted, self.job.modify_window_secs) {
            return true;
        }
        let Some(precision) = self.root.kept_as(path, wanted, meta, ProbeNames::Forbid) else { return false };
        let _ = self.counts.limits.set(precision.limits());
        true
    }

    fn content(&self, line: ExpectedEntry, path: &RelPath, buffer: &mut [u8]) -> std::io::Result<()> {
        let file = SourceFile::at(self.root, path)?;
        let expected = match line.content {
            ExpectedContent::Tree(digest) => digest,
            ExpectedContent::Plain(algorithm, digest) => {
                return self.plain(&line.path, &file, algorithm, &digest, buffer);
            }
            ExpectedContent::Unknown => return Ok(()),
        };
        let chunks = file.size().div_ceil(CHUNK);
        if chunks <= SHARED_CHUNKS {
            let digest = self.digest_of(&file, buffer)?;
            return self.compare(&line.path, digest.0 == expected);
        }
        let large = Arc::new(SharedFile {
            path: line.path,
            tree: Mutex::new(FileTree::new(file.size())),
            expected,
            next: AtomicU64::new(0),
            left: AtomicU64::new(chunks),
            has_failed: AtomicBool::new(false),
            file,
        });
        for _ in 0..self.helpers {
            let _ = self.help.send(large.clone());
        }
        self.read(&large, buffer);
        Ok(())
    }

    fn compare(&self, path: &[u8], is_same: bool) -> std::io::Result<()> {
        if !is_same {
            self.find(path, Difference::Changed, "its content differs");
        }
        Ok(())
    }

    /// Reads chunks of a large file as long as there are any left.
    fn read(&self, large: &SharedFile, buffer: &mut [u8]) {
        let chunks = large.file.size().div_ceil(CHUNK);
        loop {
            let first = large.next.fetch_add(RUN, Ordering::AcqRel);
            if first >= chunks || self.handle.is_cancelled() {
                return;
            }
            let end = (first + RUN).min(chunks);
            if !large.has_failed.load(Ordering::Acquire)
                && let Err(why) = self.read_run(large, first, end, buffer)
                && !large.has_failed.swap(true, Ordering::AcqRel)
            {
                self.find(&large.path, Difference::Unreadable, plain(&why));
            }
            if large.left.fetch_sub(end - first, Ordering::AcqRel) == end - first
                && !large.has_failed.load(Ordering::Acquire)
            {
                self.finish(large);
            }
        }
    }

    fn read_run(&self, large: &SharedFile, first: u64, end: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let size = large.file.size();
        let mut cvs = Vec::with_capacity(RUN as usize);
        let mut next = first;
        // A hole has the digest of zeros without being read.
        while let Some(chunk) = large.file.next_data_chunk(next).filter(|&chunk| chunk < end) {
            let want = (size - chunk * CHUNK).min(CHUNK) as usize;
            if large.file.read_chunk(chunk, &mut buffer[..want])? != want {
                return Err(std::io::Error::other("it changed while it was read"));
            }
            cvs.push((chunk, ChunkCv(chunk_cv(&buffer[..want]))));
            next = chunk + 1;
            self.has_read(want as u64);
        }
        let mut tree = large.tree.lock().whole();
        for (chunk, cv) in cvs {
            tree.set(chunk, cv);
        }
        Ok(())
    }

    fn finish(&self, large: &SharedFile) {
        let tree = large.tree.lock().whole();
        match large.file.unchanged() {
            Ok(true) => drop(self.compare(&large.path, tree.root().0 == large.expected)),
            Ok(false) => self.find(&large.path, Difference::Unreadable, "it changed while it was read"),
            Err(error) => self.find(&large.path, Difference::Unreadable, plain(&error)),
        }
    }

    /// Compares a digest that can only be computed in the file's order.
    fn plain(
        &self,
        path: &[u8],
        file: &SourceFile,
        algorithm: Algorithm,
        expected: &[u8],
        buffer: &mut [u8],
    ) -> std::io::Result<()> {
        let mut hashers = Hashers::new(&[algorithm]);
        for chunk in 0..file.size().div_ceil(CHUNK) {
            if self.handle.is_cancelled() {
                return Ok(());
            }
            let len = file.read_chunk(chunk, buffer)?;
            hashers.update(&buffer[..len]);
            self.has_read(len as u64);
        }
        if !file.unchanged()? {
            return Err(std::io::Error::other("it changed while it was read"));
        }
        self.compare(path, hashers.finish().iter().all(|(_, digest)| digest == expected))
    }
}
