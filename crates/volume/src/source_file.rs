//! Reads a source file chunk by chunk, from several threads, and tells whether it has changed.
//!
//! Always true: the opened file is the one that was listed (by device and inode), and a plain file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use farhaul_blocks::Block;
use rustix::fs::{self, Advice, SeekFrom};
use rustix::io::Errno;

use crate::CHUNK;
use crate::digest::{ChunkCv, Digest, FileTree, chunk_cv, whole_digest};
use crate::direct_io::DirectFile;
use crate::entry::{Entry, EntryKind, FileKind, FileTime, Metadata, SpecialNode};
use crate::extra_digests::{Algorithm, Hashers};
use crate::generated_source::GeneratedSource;
use crate::rel_path::RelPath;
use crate::root::Root;
use crate::scan::{SourceRef, size_of_device as device_size};

/// An open source.
#[derive(Debug)]
pub struct SourceFile(OpenSource);

/// Digests of one file's whole content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    pub tree: Digest,
    /// In the requested order.
    pub extra: Vec<(Algorithm, Vec<u8>)>,
}

#[derive(Debug)]
enum OpenSource {
    Disk(DiskFile),
    Generated(GeneratedSource),
}

#[derive(Debug)]
struct DiskFile {
    file: File,
    /// The second descriptor; `None` if the file cannot be read past the cache, or need not.
    direct: Option<DirectFile>,
    /// For a device, with the size that the device reports.
    meta: Metadata,
    sparse: bool,
}

impl SourceFile {
    /// Opens a file that the scan has listed. Fails if it has become another file, or has another size or
    /// time. Whoever combines its content with content that was read before has to compare
    /// [`SourceFile::ctime`], too.
    pub fn open(source: &SourceRef, entry: &Entry) -> io::Result<SourceFile> {
        if let Some(generated) = source.generated() {
            return Ok(SourceFile(OpenSource::Generated(generated)));
        }
        Ok(SourceFile(OpenSource::Disk(DiskFile::open(source, entry)?)))
    }

    /// Opens a plain file below a root as it is now.
    pub fn at(root: &Root, path: &RelPath) -> io::Result<SourceFile> {
        let file = root.open_read(path)?;
        let meta = Metadata::from(&fs::fstat(&file)?);
        if !meta.is_file() {
            return Err(changed());
        }
        Ok(SourceFile(OpenSource::Disk(DiskFile::new(file, meta, meta.allocated < meta.size))))
    }

    /// The digest of the whole content, read through the cache. `buffer` is as long as a chunk; `goes_on` is
    /// asked before each chunk.
    pub fn digest(&self, buffer: &mut [u8], goes_on: impl Fn() -> bool) -> io::Result<Digest> {
        let size = self.size();
        if let OpenSource::Disk(file) = &self.0 {
            // A single reader that also digests profits from read-ahead. Advice may fail.
            let _ = fs::fadvise(&file.file, 0, None, Advice::Sequential);
        }
        let mut tree = FileTree::new(size);
        let mut next = 0;
        while let Some(chunk) = self.next_data_chunk(next).filter(|chunk| chunk * CHUNK < size) {
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let want = (size - chunk * CHUNK).min(CHUNK) as usize;
            let read = match &self.0 {
                OpenSource::Disk(file) => file.read_at(&mut buffer[..want], chunk * CHUNK)?,
                OpenSource::Generated(generated) => generated.read_chunk(chunk, &mut buffer[..want]),
            };
            if read != want {
                return Err(changed());
            }
            let bytes = &buffer[..want];
            tree.set(chunk, ChunkCv(if size <= CHUNK { whole_digest(bytes) } else { chunk_cv(bytes) }));
            next = chunk + 1;
        }
        if self.unchanged()? { Ok(tree.root()) } else { Err(changed()) }
    }

    /// As [`SourceFile::digest`], with further digests that are computed in the same pass.
    pub fn digests(
        &self,
        buffer: &mut [u8],
        extra: &[Algorithm],
        goes_on: impl Fn() -> bool,
    ) -> io::Result<Digests> {
        if extra.is_empty() {
            return Ok(Digests { tree: self.digest(buffer, goes_on)?, extra: Vec::new() });
        }
        let size = self.size();
        let mut tree = FileTree::new(size);
        let mut hashers = Hashers::new(extra);
        for chunk in 0..size.div_ceil(CHUNK) {
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let want = (size - chunk * CHUNK).min(CHUNK) as usize;
            if self.read_chunk(chunk, &mut buffer[..want])? != want {
                return Err(changed());
            }
            let bytes = &buffer[..want];
            tree.set(chunk, ChunkCv(if size <= CHUNK { whole_digest(bytes) } else { chunk_cv(bytes) }));
            hashers.update(bytes);
        }
        if self.unchanged()? {
            Ok(Digests { tree: tree.root(), extra: hashers.finish() })
        } else {
            Err(changed())
        }
    }

    pub fn size(&self) -> u64 {
        match &self.0 {
            OpenSource::Disk(file) => file.meta.size,
            OpenSource::Generated(generated) => generated.size(),
        }
    }

    /// Reads chunk `index` into `buffer`, as much as fits; fewer bytes only at the end of the file.
    pub fn read_chunk(&self, index: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            OpenSource::Disk(file) => file.read_chunk(index, buffer),
            OpenSource::Generated(generated) => Ok(generated.read_chunk(index, buffer)),
        }
    }

    /// As [`SourceFile::read_chunk`], into the first `len` bytes of a block; generated zeros are not written
    /// again over zeros.
    pub fn read_block(&self, index: u64, block: &mut Block, len: usize) -> io::Result<usize> {
        match &self.0 {
            OpenSource::Generated(generated) => Ok(generated.read_block(index, block, len)),
            OpenSource::Disk(_) => self.read_chunk(index, &mut block[..len]),
        }
    }

    /// Reads the whole of a small file; `buffer` should have its size.
    pub fn read_whole(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_chunk(0, buffer)
    }

    /// The first chunk from `from` on that has data. A file without holes has data everywhere, and so has one
    /// on a file system that cannot tell.
    pub fn next_data_chunk(&self, from: u64) -> Option<u64> {
        match &self.0 {
            OpenSource::Disk(file) => file.next_data_chunk(from),
            OpenSource::Generated(generated) => {
                from.checked_mul(CHUNK).filter(|&start| start < generated.size()).map(|_| from)
            }
        }
    }

    /// The time of the last change of content or metadata, when the file was opened.
    pub fn ctime(&self) -> FileTime {
        match &self.0 {
            OpenSource::Disk(file) => file.meta.ctime,
            OpenSource::Generated(_) => FileTime::default(),
        }
    }

    /// Whether the content ends at the size in the file's metadata. That is only checked for a file without
    /// allocated blocks, as its content may be made when it is read.
    pub fn ends_at_its_size(&self) -> io::Result<bool> {
        match &self.0 {
            OpenSource::Disk(file) if file.meta.allocated == 0 && file.meta.is_file() => {
                Ok(file.read_at(&mut [0], file.meta.size)? == 0)
            }
            OpenSource::Disk(_) | OpenSource::Generated(_) => Ok(true),
        }
    }

    /// Whether the file is unchanged since it was opened.
    pub fn unchanged(&self) -> io::Result<bool> {
        match &self.0 {
            OpenSource::Disk(file) => file.unchanged(),
            OpenSource::Generated(_) => Ok(true),
        }
    }
}

impl DiskFile {
    fn open(source: &SourceRef, entry: &Entry) -> io::Result<DiskFile> {
        let file = source.open()?;
        let meta = Metadata::from(&fs::fstat(&file)?);
        if source.is_device() {
            return DiskFile::of_device(file, meta, entry);
        }
        let listed = |size: u64| {
            (meta.dev, meta.ino, meta.size, meta.mtime) == (entry.dev, entry.ino, size, entry.mtime)
        };
        let EntryKind::File { size, sparse } = entry.kind else { return Err(changed()) };
        if !meta.is_file() || !listed(size) {
            return Err(changed());
        }
        Ok(DiskFile::new(file, meta, sparse))
    }

    /// Opens a block device that the user has named. Nothing tells whether its content has changed.
    fn of_device(file: File, meta: Metadata, entry: &Entry) -> io::Result<DiskFile> {
        let EntryKind::File { size, .. } = entry.kind else { return Err(changed()) };
        let is_device = matches!(meta.kind, FileKind::Special(SpecialNode::BlockDevice { .. }));
        if !is_device || (meta.dev, meta.ino) != (entry.dev, entry.ino) || device_size(&file)? != size {
            return Err(changed());
        }
        // Several threads read it at once, each where the last one left off, and no part of a disk tells how
        // fast it is as a whole, so no direct I/O is tried. Advice may fail.
        let _ = fs::fadvise(&file, 0, None, Advice::Sequential);
        Ok(DiskFile { file, direct: None, meta: Metadata { size, ..meta }, sparse: false })
    }

    fn new(file: File, meta: Metadata, sparse: bool) -> DiskFile {
        let direct = if meta.size > CHUNK { DirectFile::of_source(&file) } else { None };
        if meta.size > CHUNK && direct.is_none() {
            // Advice may fail.
            let _ = fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        DiskFile { file, direct, meta, sparse }
    }

    fn read_chunk(&self, index: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(start) = index.checked_mul(CHUNK) else { return Ok(0) };
        let want = buffer.len().min(CHUNK as usize);
        match &self.direct {
            Some(direct) if DirectFile::takes(&buffer[..want]) => {
                direct.read(&self.file, &mut buffer[..want], start, |buffer, offset| {
                    self.read_at(buffer, offset)
                })
            }
            _ => self.read_at(&mut buffer[..want], start),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn next_data_chunk(&self, from: u64) -> Option<u64> {
        let start = from.checked_mul(CHUNK).filter(|&start| start < self.meta.size)?;
        if !self.sparse {
            return Some(from);
        }
        match fs::seek(&self.file, SeekFrom::Data(start)) {
            Ok(offset) => Some((offset / CHUNK).max(from)).filter(|chunk| chunk * CHUNK < self.meta.size),
            Err(Errno::NXIO) => None,
            Err(_) => Some(from),
        }
    }

    fn unchanged(&self) -> io::Result<bool> {
        let now = Metadata::from(&fs::fstat(&self.file)?);
        if !self.meta.is_file() {
            return Ok(device_size(&self.file)? == self.meta.size);
        }
        Ok((now.size, now.mtime, now.ctime) == (self.meta.size, self.meta.mtime, self.meta.ctime))
    }
}

/// The error if a source is not what it was when it was listed.
#[derive(Debug, thiserror::Error)]
#[error("the source changed after it was listed")]
struct SourceChange;

fn changed() -> io::Error {
    io::Error::other(SourceChange)
}

/// Whether the error says that the source has changed, so that it may be worth listing it again.
pub fn is_changed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<SourceChange>())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Past the cache and through it, with an end that does not fill a page, and short if the file has
    /// shrunk.
    #[test]
    fn whole_chunks_read_the_same_from_the_cache_and_from_the_disk() {
        let temp = tempfile::tempdir().unwrap();
        let (root, path) = (Root::open(temp.path()).unwrap(), RelPath::from_bytes(b"file").unwrap());
        let content: Vec<u8> = (0..12 * CHUNK + 77).map(|at| (at / 7 + (at >> 20)) as u8).collect();
        std::fs::write(temp.path().join("file"), &content).unwrap();
        let pool = farhaul_blocks::BlockPool::new(1, CHUNK as usize).unwrap();
        let mut block = pool.take();
        for is_cold in [false, true] {
            let source = SourceFile::at(&root, &path).unwrap();
            let OpenSource::Disk(DiskFile { file, .. }) = &source.0 else { unreachable!() };
            if is_cold {
                file.sync_all().unwrap();
                fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
            }
            for (index, expected) in content.chunks(CHUNK as usize).enumerate() {
                block.fill(0xee);
                assert_eq!(
                    source.read_chunk(index as u64, &mut block[..expected.len()]).unwrap(),
                    expected.len()
                );
                assert!(block[..expected.len()] == *expected, "chunk {index}, cold: {is_cold}");
            }
        }
        let source = SourceFile::at(&root, &path).unwrap();
        File::options().write(true).open(temp.path().join("file")).unwrap().set_len(CHUNK + 5000).unwrap();
        assert_eq!(source.read_chunk(1, &mut block).unwrap(), 5000);
        assert_eq!(source.read_chunk(2, &mut block).unwrap(), 0);
        assert!(block[..5000] == content[CHUNK as usize..][..5000]);
    }

    #[test]
    fn the_digest_of_a_file_is_that_of_its_bytes_holes_or_not() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        let path = RelPath::from_bytes(b"file").unwrap();
        let mut buffer = vec![0; CHUNK as usize];
        for size in [0, 1, CHUNK, CHUNK + 1, 5 * CHUNK + 77] {
            let file = File::create(temp.path().join("file")).unwrap();
            file.set_len(size).unwrap();
            if size > 0 {
                file.write_all_at(b"x", size - 1).unwrap();
            }
            let content = std::fs::read(temp.path().join("file")).unwrap();
            let source = SourceFile::at(&root, &path).unwrap();
            assert_eq!(source.digest(&mut buffer, || true).unwrap().0, whole_digest(&content));
            assert!(size == 0 || source.digest(&mut buffer, || false).is_err());
            let all = source.digests(&mut buffer, &[Algorithm::Blake3], || true).unwrap();
            assert_eq!(all.tree.0, whole_digest(&content));
            assert_eq!(all.extra, [(Algorithm::Blake3, blake3::hash(&content).as_bytes().to_vec())]);
        }
        assert!(is_changed(&changed()) && !is_changed(&io::Error::from(Errno::NOENT)));
        std::os::unix::fs::symlink("file", temp.path().join("link")).unwrap();
        assert!(SourceFile::at(&root, &RelPath::from_bytes(b"link").unwrap()).is_err());
    }
}
