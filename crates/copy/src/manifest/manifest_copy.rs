//! The manifest of a copy between two other hosts: its text arrives in pieces and is kept in a file here.
//!
//! Always true: the file has only whole lines of a manifest, however the text was cut, and whoever sent it.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use farhaul_session::handle::Handle;
use farhaul_words::{Error, Misbehaviour};

use super::super::interruptible_io::TransferOutput;
use super::super::report::Report;
use super::{ManifestLine, cannot_go_on, create_file, now, parse, text};

/// The most bytes of a line: three names of 4 KiB, each escaped and in base64.
const LINE_MAX: usize = 256 << 10;

/// Takes the text of a manifest and writes it to a file.
#[derive(Debug)]
pub struct ManifestCopy {
    path: PathBuf,
    file: BufWriter<TransferOutput>,
    /// The beginning of a line whose end has not arrived.
    rest: Vec<u8>,
    stage: Stage,
    /// Why no more is written.
    failure: Option<Error>,
}

/// How far the text has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Nothing,
    Entries,
    End,
}

impl ManifestCopy {
    /// Begins a manifest file, replacing an existing one. No write waits for a reader once `handle` is
    /// cancelled.
    pub fn create(path: &Path, handle: &Handle) -> Result<ManifestCopy, Error> {
        let file = create_file(path, handle)?;
        let file = BufWriter::with_capacity(super::WRITE_BYTES, file);
        Ok(ManifestCopy { path: path.into(), file, rest: Vec::new(), stage: Stage::Nothing, failure: None })
    }

    /// Takes the next piece. An error is the sender's fault; an error of writing is returned by
    /// [`ManifestCopy::finish`].
    pub fn take(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.rest.extend_from_slice(piece);
        let mut begin = 0;
        while let Some(len) = self.rest[begin..].iter().position(|&byte| byte == b'\n') {
            let line = &self.rest[begin..begin + len];
            self.stage = match (self.stage, parse(line)) {
                (Stage::Nothing, Ok(ManifestLine::Begin)) | (Stage::Entries, Ok(ManifestLine::Entry(_))) => {
                    Stage::Entries
                }
                (Stage::Entries, Ok(ManifestLine::End { .. })) => Stage::End,
                (Stage::Nothing | Stage::Entries | Stage::End, _) => return Err(senseless()),
            };
            begin += len + 1;
        }
        if self.failure.is_none()
            && let Err(error) = self.file.write_all(&self.rest[..begin])
        {
            self.failure = Some(self.cannot(error));
        }
        self.rest.drain(..begin);
        if self.rest.len() > LINE_MAX { Err(senseless()) } else { Ok(()) }
    }

    /// Ends the file. If the text broke off, this end adds the missing first and last lines.
    pub fn finish(mut self, report: &Report) -> Result<(), Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut last = Vec::new();
        if self.stage == Stage::Nothing {
            last = text::begin(now());
        }
        if self.stage != Stage::End {
            last.extend(text::end(report));
        }
        let written = self.file.write_all(&last).and_then(|()| self.file.flush());
        written.map_err(|error| self.cannot(error))
    }

    fn cannot(&self, error: std::io::Error) -> Error {
        cannot_go_on(&self.path.display().to_string(), error)
    }
}

fn senseless() -> Error {
    let what = "the text that it sends for the manifest is not one";
    Error::misbehaved(Misbehaviour::SenselessMessage, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{EntryFate, ManifestLog, ManifestRecord};
    use super::*;

    /// The text of a manifest with one entry.
    fn whole() -> Vec<u8> {
        let temp = tempfile::tempdir().unwrap();
        let log = ManifestLog::create(&temp.path().join("m"), false, &Handle::new()).unwrap();
        log.add(ManifestRecord::of_path(b"a/\xff", EntryFate::Sent));
        log.finish(&Report::default()).unwrap();
        std::fs::read(temp.path().join("m")).unwrap()
    }

    #[test]
    fn it_is_the_same_however_it_is_cut() {
        let (temp, whole) = (tempfile::tempdir().unwrap(), whole());
        for size in [1, 7, 1 << 20] {
            let path = temp.path().join("m");
            let mut copy = ManifestCopy::create(&path, &Handle::new()).unwrap();
            whole.chunks(size).for_each(|piece| copy.take(piece).unwrap());
            copy.finish(&Report::default()).unwrap();
            assert_eq!(std::fs::read(path).unwrap(), whole, "{size}");
        }
    }

    #[test]
    fn one_that_breaks_off_has_an_end_and_whole_lines() {
        let (temp, whole) = (tempfile::tempdir().unwrap(), whole());
        for len in 0..whole.len() {
            let path = temp.path().join("m");
            let mut copy = ManifestCopy::create(&path, &Handle::new()).unwrap();
            copy.take(&whole[..len]).unwrap();
            copy.finish(&Report::default()).unwrap();
            let text = std::fs::read(path).unwrap();
            let lines: Vec<_> = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
            assert_eq!(parse(lines[0]), Ok(ManifestLine::Begin));
            assert!(matches!(parse(lines[lines.len() - 1]), Ok(ManifestLine::End { .. })), "{len}");
        }
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let (temp, whole) = (tempfile::tempdir().unwrap(), whole());
        let text = String::from_utf8(whole).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let again = format!("{text}{}\n", lines[1]);
        let headless = format!("{}\n", lines[1]);
        let twice = format!("{}\n{}\n", lines[0], lines[0]);
        for wrong in [&again, &headless, &twice, "\u{1b}[2J\n", "{}\n", &"x".repeat(LINE_MAX + 1)] {
            let mut copy = ManifestCopy::create(&temp.path().join("m"), &Handle::new()).unwrap();
            assert!(copy.take(wrong.as_bytes()).is_err(), "{:.80}", wrong);
        }
    }

    #[test]
    fn a_disk_that_is_full_is_told_at_the_end() {
        let mut copy = ManifestCopy::create(Path::new("/dev/full"), &Handle::new()).unwrap();
        copy.take(&whole()).unwrap();
        assert!(copy.finish(&Report::default()).is_err());
        assert!(ManifestCopy::create(Path::new("/nonexistent/m"), &Handle::new()).is_err());
    }
}
