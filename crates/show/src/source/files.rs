//! Frames from files: one file that is cut, or a file for each frame.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::shown_path;
use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::is_pattern;
use farhaul_volume::{GlobAllowance, GlobBase, expand};
use serde::{Deserialize, Serialize};

use super::FrameStart;
use super::chunked_file::ChunkedFile;
use crate::label::{FRAME_LEN_MAX, FRAME_METADATA_MAX};

/// The metadata of a frame that was a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileFacts {
    /// The name of the file, without its directory.
    pub(crate) name: String,
}

/// A name of a frame has at most this many bytes.
const NAME_MAX: usize = 200;

/// The name that a frame's metadata has for its file, if the frame was a file.
pub(crate) fn name_in(metadata: &[u8]) -> Option<String> {
    serde_json::from_slice::<FileFacts>(metadata).ok().map(|facts| facts.name)
}

/// Whether a file in a directory of frames can have this name: one component that is not hidden.
pub(crate) fn is_frame_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// One file, cut into frames of one size.
pub(crate) struct CutFile {
    file: ChunkedFile,
    frame_len: u64,
    begin: u64,
}

impl CutFile {
    pub(crate) fn open(path: &Path, frame_len: u64) -> Result<CutFile, Error> {
        Ok(CutFile { file: ChunkedFile::open(path)?, frame_len, begin: 0 })
    }

    pub(crate) fn frames(&self) -> u64 {
        self.file.size().div_ceil(self.frame_len)
    }

    pub(crate) fn frame_len(&self) -> u64 {
        self.frame_len
    }

    pub(crate) fn begin(&mut self, frame: u64) -> Option<FrameStart> {
        self.begin = frame.checked_mul(self.frame_len).filter(|&begin| begin < self.file.size())?;
        let size = self.frame_len.min(self.file.size() - self.begin);
        Some(FrameStart { size, metadata: Vec::new() })
    }

    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.file.read(self.begin + offset, into)
    }
}

/// A file for each frame, in the order of their names.
pub(crate) struct FrameFiles {
    paths: Vec<PathBuf>,
    frame_max: u64,
    open: Option<ChunkedFile>,
}

impl FrameFiles {
    /// The files of a directory, or those that a pattern stands for.
    pub(crate) fn find(place: &Path) -> Result<FrameFiles, Error> {
        let shown = shown_path(place);
        let cannot = |error: std::io::Error| {
            Error::with_source(Code::of_files(&error), format!("cannot list {shown}"), error)
        };
        let mut paths: Vec<PathBuf> = if place.is_dir() {
            let entries = std::fs::read_dir(place).map_err(cannot)?;
            let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
            let is_hidden =
                |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
            paths.map_err(cannot)?.into_iter().filter(|path| !is_hidden(path)).collect()
        } else if is_pattern(place.as_os_str().as_bytes()) {
            let found = expand(&GlobBase::User, place.as_os_str().as_bytes(), &mut GlobAllowance::default());
            let path = |bytes: Vec<u8>| PathBuf::from(std::ffi::OsStr::from_bytes(&bytes));
            found.map_err(cannot)?.into_iter().map(path).collect()
        } else {
            return Err(Error::new(Code::NotADirectory, format!("{shown} is no directory")).with_hint(
                "name a directory of frames or a pattern such as dir:run7/*.tif; a single file is file:F",
            ));
        };
        let mut frame_max = 0;
        let mut sizes = Ok(());
        paths.retain(|path| match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() && meta.len() > FRAME_LEN_MAX => {
                sizes = Err(too_large(path));
                false
            }
            Ok(meta) => {
                frame_max = meta.len().max(frame_max);
                meta.is_file()
            }
            // If it is gone, it is no frame.
            Err(_) => false,
        });
        sizes?;
        if paths.is_empty() {
            return Err(Error::new(Code::NotFound, format!("there are no files in {shown}")));
        }
        paths.sort_by(|one, other| one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes()));
        Ok(FrameFiles { paths, frame_max, open: None })
    }

    pub(crate) fn frames(&self) -> u64 {
        self.paths.len() as u64
    }

    pub(crate) fn frame_max(&self) -> u64 {
        self.frame_max
    }

    pub(crate) fn begin(&mut self, frame: u64) -> Result<Option<FrameStart>, Error> {
        if let Some(open) = self.open.take() {
            open.is_unchanged()?;
        }
        let Some(path) = usize::try_from(frame).ok().and_then(|frame| self.paths.get(frame)) else {
            return Ok(None);
        };
        let file = ChunkedFile::open(path)?;
        let size = file.size();
        if size > self.frame_max {
            let shown = shown_path(path);
            return Err(Error::new(
                Code::SourceChanged,
                format!("{shown} has grown since the files were listed"),
            ));
        }
        self.open = Some(file);
        // A name that is no text, or too long, is not sent along.
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_frame_name(name));
        let facts = name.map(|name| serde_json::to_vec(&FileFacts { name: name.into() }));
        let metadata = facts.and_then(Result::ok).filter(|facts| facts.len() <= FRAME_METADATA_MAX);
        Ok(Some(FrameStart { size, metadata: metadata.unwrap_or_default() }))
    }

    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        match &mut self.open {
            Some(file) => file.read(offset, into),
            None => Err(Error::bug("a frame is read that was not begun")),
        }
    }
}

fn too_large(path: &Path) -> Error {
    let shown = shown_path(path);
    Error::new(Code::TooLarge, format!("{shown} has more than 1 GiB, which is the most of a frame"))
        .with_hint("send it cut, with file:F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_file_has_frames_of_one_size_and_a_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let content: Vec<u8> = (0..25).collect();
        std::fs::write(&path, &content).unwrap();
        let mut cut = CutFile::open(&path, 10).unwrap();
        assert_eq!(cut.frames(), 3);
        for (frame, bytes) in content.chunks(10).enumerate() {
            let start = cut.begin(frame as u64).unwrap();
            let mut into = vec![0; start.size as usize];
            cut.read(0, &mut into).unwrap();
            assert_eq!(into, bytes);
        }
        assert!(cut.begin(3).is_none() && cut.begin(u64::MAX).is_none());
    }

    #[test]
    fn files_are_frames_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("b.tif", "bb"), ("a.tif", "a"), ("c.txt", ""), (".d", "dddd")] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        std::fs::create_dir(folder.path().join("e")).unwrap();
        let names = |place: &Path| {
            let mut files = FrameFiles::find(place).unwrap();
            let mut names = Vec::new();
            while let Some(start) = files.begin(names.len() as u64).unwrap() {
                let FileFacts { name } = serde_json::from_slice(&start.metadata).unwrap();
                names.push((name, start.size));
            }
            assert_eq!(files.frames(), names.len() as u64);
            names
        };
        let owned = |list: &[(&str, u64)]| {
            list.iter().map(|(name, size)| (name.to_string(), *size)).collect::<Vec<_>>()
        };
        assert_eq!(names(folder.path()), owned(&[("a.tif", 1), ("b.tif", 2), ("c.txt", 0)]));
        assert_eq!(names(&folder.path().join("*.tif")), owned(&[("a.tif", 1), ("b.tif", 2)]));
        let error = |place: &Path| FrameFiles::find(place).err().unwrap().code();
        assert_eq!(error(&folder.path().join("e")), Code::NotFound);
        assert_eq!(error(&folder.path().join("a.tif")), Code::NotADirectory);
    }

    #[test]
    fn a_file_that_changes_between_list_and_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "12").unwrap();
        let mut files = FrameFiles::find(folder.path()).unwrap();
        std::fs::write(&path, "123").unwrap();
        assert_eq!(files.begin(0).unwrap_err().code(), Code::SourceChanged);
    }
}
