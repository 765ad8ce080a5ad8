//! A file that is read at any offset by whole chunks, so that its content comes past the page cache where that is
//! faster. `volume` decides it chunk by chunk.

use std::io;
use std::path::Path;

use crate::shown_path;
use farhaul::Error;
use farhaul::errors::Code;
use farhaul_volume::{CHUNK, RelPath, Root, SourceFile, is_changed};

/// Memory for direct I/O begins at a multiple of this.
const ALIGN: usize = 4096;

pub(crate) struct ChunkedFile {
    file: SourceFile,
    shown: String,
    /// The chunk that was read last, for pieces that are no whole chunks.
    memory: Vec<u8>,
    kept: Option<(u64, usize)>,
}

impl ChunkedFile {
    pub(crate) fn open(path: &Path) -> Result<ChunkedFile, Error> {
        let shown = shown_path(path);
        let opened = opened(path).map_err(|error| cannot_read(&shown, error))?;
        Ok(ChunkedFile { file: opened, shown, memory: Vec::new(), kept: None })
    }

    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }

    /// Fills `into` from `offset` on; an error if the file ends before.
    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (chunk, within) = (at / CHUNK, (at % CHUNK) as usize);
            let left = into.len() - done;
            let read = if within == 0 && left as u64 >= CHUNK {
                self.file.read_chunk(chunk, &mut into[done..done + CHUNK as usize])
            } else {
                self.copy(chunk, within, &mut into[done..])
            };
            match read.map_err(|error| cannot_read(&self.shown, error))? {
                0 => return Err(changed(&self.shown)),
                len => done += len,
            }
        }
        Ok(())
    }

    /// An error if the file has changed since it was opened.
    pub(crate) fn is_unchanged(&self) -> Result<(), Error> {
        match self.file.unchanged().map_err(|error| cannot_read(&self.shown, error))? {
            true => Ok(()),
            false => Err(changed(&self.shown)),
        }
    }

    fn copy(&mut self, chunk: u64, within: usize, into: &mut [u8]) -> io::Result<usize> {
        if self.memory.is_empty() {
            self.memory = vec![0; CHUNK as usize + ALIGN];
        }
        let begin = self.memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        let memory = &mut self.memory[begin..begin + CHUNK as usize];
        let len = match self.kept {
            Some((kept, len)) if kept == chunk => len,
            _ => {
                let len = self.file.read_chunk(chunk, memory)?;
                self.kept = Some((chunk, len));
                len
            }
        };
        let there = memory.get(within..len).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        Ok(count)
    }
}

/// The user's own path may lead through links.
fn opened(path: &Path) -> io::Result<SourceFile> {
    let path = path.canonicalize()?;
    let not_a_file = || io::Error::from(io::ErrorKind::IsADirectory);
    let (folder, name) = path.parent().zip(path.file_name()).ok_or_else(not_a_file)?;
    let name = RelPath::from_bytes(name.as_encoded_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    SourceFile::at(&Root::open(folder)?, &name)
}

fn cannot_read(shown: &str, error: io::Error) -> Error {
    if is_changed(&error) {
        return Error::new(Code::NotFound, format!("{shown} is no plain file"))
            .with_hint("read pipes and devices with pipe:");
    }
    Error::with_source(Code::of_files(&error), format!("cannot read {shown}"), error)
}

fn changed(shown: &str) -> Error {
    Error::new(Code::SourceChanged, format!("{shown} has changed while it was read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let content: Vec<u8> = (0..3 * CHUNK + 12_345).map(|at| (at * 7 + at / 256) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let mut file = ChunkedFile::open(&path).unwrap();
        assert_eq!(file.size(), content.len() as u64);
        for (offset, len) in
            [(0, 10), (0, 1 << 20), (5, 1 << 20), (1 << 20, 1 << 20), (3 << 20, 12_345), (700_000, 2_000_000)]
        {
            let mut into = vec![0; len];
            file.read(offset as u64, &mut into).unwrap();
            assert!(into == content[offset..offset + len], "{offset} {len}");
        }
        assert_eq!(file.read(3 << 20, &mut vec![0; 12_346]).unwrap_err().code(), Code::SourceChanged);
        file.is_unchanged().unwrap();
        std::fs::write(&path, b"other").unwrap();
        assert_eq!(file.is_unchanged().unwrap_err().code(), Code::SourceChanged);
        let error = |path: &Path| ChunkedFile::open(path).err().unwrap().code();
        assert_eq!(error(&folder.path().join("b")), Code::NotFound);
        assert_eq!(error(folder.path()), Code::NotFound);
    }
}
