//! One file, in which the frames come one after another.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::shown_path;
use farhaul::Error;
use farhaul::errors::Code;

pub(crate) struct OneFile {
    file: File,
    shown: String,
    /// If all frames have this size, a frame's place follows from its number.
    frame_len: Option<u64>,
    /// Where the next frame begins, if it does not.
    next: u64,
    /// The end of the whole frames, and of those among them before which none is missing.
    written: u64,
    end: u64,
}

impl OneFile {
    pub(crate) fn create(path: &Path, frame_len: Option<u64>) -> Result<OneFile, Error> {
        let shown = shown_path(path);
        let file = File::options().write(true).create(true).truncate(true).open(path);
        let file = file.map_err(|error| {
            Error::with_source(Code::of_files(&error), format!("cannot write {shown}"), error)
        })?;
        Ok(OneFile { file, shown, frame_len, next: 0, written: 0, end: 0 })
    }

    fn place(&self, frame: u64) -> Option<u64> {
        self.frame_len.map_or(Some(self.next), |len| frame.checked_mul(len))
    }

    pub(crate) fn write(&mut self, frame: u64, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let too_large =
            || Error::new(Code::TooLarge, format!("{} would have more bytes than a file can", self.shown));
        let at = self.place(frame).and_then(|place| place.checked_add(offset)).ok_or_else(too_large)?;
        self.file.write_all_at(bytes, at).map_err(|error| {
            Error::with_source(Code::of_files(&error), format!("cannot write {}", self.shown), error)
        })
    }

    pub(crate) fn complete(&mut self, frame: u64, size: u64) {
        let end = self.place(frame).unwrap_or(self.next).saturating_add(size);
        self.next = end;
        self.written = self.written.max(end);
    }

    /// All frames below `next` are whole. What is behind a frame that is missing does not stay.
    pub(crate) fn over(&mut self, next: u64) {
        self.end = self.frame_len.map_or(self.written, |len| self.written.min(next.saturating_mul(len)));
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        // Part of a frame that never became whole may stand behind the last one.
        self.cut()
    }

    fn cut(&self) -> Result<(), Error> {
        let is_plain = self.file.metadata().is_ok_and(|meta| meta.is_file());
        match is_plain.then(|| self.file.set_len(self.end)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(Error::with_source(Code::of_files(&error), format!("cannot end {}", self.shown), error))
            }
        }
    }
}

impl Drop for OneFile {
    fn drop(&mut self) {
        // Whoever has called `finish` has heard of an error.
        let _ = self.cut();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_before_which_none_is_missing_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut file = OneFile::create(&path, Some(3)).unwrap();
        for (frame, bytes) in [(2, b"ccc"), (0, b"aaa")] {
            file.write(frame, 0, bytes).unwrap();
            file.complete(frame, 3);
        }
        file.over(1);
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"aaa");
        let mut file = OneFile::create(&path, None).unwrap();
        file.write(0, 0, b"ab").unwrap();
        file.write(0, 2, b"c").unwrap();
        file.complete(0, 3);
        file.write(1, 0, b"d").unwrap();
        file.over(1);
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
    }
}
