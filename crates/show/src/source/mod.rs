//! Where frames come from: a file that is cut, a directory of files, a pipe, a generated picture.
//!
//! Always true: the pieces of a frame are read in order; no source holds a whole frame.

mod chunked_file;
pub(crate) mod files;
pub(crate) mod picture;
mod pipe;

use std::path::PathBuf;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::amounts;

use crate::control::ShowControl;
use crate::label::FRAME_LEN_MAX;
use files::{CutFile, FrameFiles};
use picture::{Picture, PictureSize};
use pipe::PipeSource;

/// How a pipe is cut into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipeCut {
    /// Each frame has this many bytes.
    Fixed(u64),
    /// Before each frame comes its length: four bytes, little-endian.
    Prefixed,
}

/// Where the frames of a stream come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// One file, cut into frames of this many bytes; the last frame has the rest.
    File(PathBuf, u64),
    /// Each file is a frame: those of a directory, or those that a pattern stands for, in the order of their names.
    Files(PathBuf),
    /// A pipe, or standard input if there is no path.
    Pipe(Option<PathBuf>, PipeCut),
    /// A picture that is made for each frame, with the frame's number and a checksum.
    Test(PictureSize),
}

/// The size of frames that are cut from a file, if nothing else is said.
const FRAME_USUAL: u64 = 1 << 20;

impl SourceSpec {
    /// Reads a source as it is written on the command line and in show.toml. `frame` is the size of its frames, or
    /// `prefixed`.
    pub fn parse(text: &str, frame: Option<&str>) -> Result<SourceSpec, Error> {
        let size = |text: &str| {
            let size = amounts::size(text).filter(|&size| size <= FRAME_LEN_MAX);
            size.ok_or_else(|| {
                bad(format!("{text:?} is no size of a frame; write bytes up to 1G, such as 256K"))
            })
        };
        let whole = |kind: &str| match frame {
            None => Ok(()),
            Some(_) => Err(bad(format!("frames of {kind} have their own sizes: leave out `frame`"))),
        };
        let pipe = |path: Option<PathBuf>| match frame {
            Some("prefixed") => Ok(SourceSpec::Pipe(path, PipeCut::Prefixed)),
            Some(frame) => Ok(SourceSpec::Pipe(path, PipeCut::Fixed(size(frame)?))),
            None => Err(bad(
                "how is the pipe cut into frames? Give `frame` a size, such as 256K, or prefixed".into(),
            )),
        };
        match text.split_once(':') {
            Some((_, "")) => Err(bad(format!("{text:?} lacks what comes behind the colon"))),
            Some(("file", path)) => Ok(SourceSpec::File(path.into(), frame.map_or(Ok(FRAME_USUAL), size)?)),
            Some(("dir", path)) => whole("dir:").map(|()| SourceSpec::Files(path.into())),
            Some(("pipe", path)) => pipe(Some(path.into())),
            Some(("test", picture)) => {
                whole("test:").and_then(|()| PictureSize::parse(picture)).map(SourceSpec::Test)
            }
            _ if text == "-" => pipe(None),
            _ => Err(bad(format!(
                "{text:?} is no source; write file:F, dir:D, pipe:P, - or test:WIDTHxHEIGHT"
            ))),
        }
    }
}

fn bad(what: String) -> Error {
    Error::new(Code::BadOption, what)
}

/// A frame that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameStart {
    pub(crate) size: u64,
    pub(crate) metadata: Vec<u8>,
}

/// An open source.
pub(crate) enum Source {
    Cut(CutFile),
    Files(FrameFiles),
    Pipe(PipeSource),
    Picture(Picture),
}

impl Source {
    pub(crate) fn open(spec: &SourceSpec, control: &ShowControl) -> Result<Source, Error> {
        Ok(match spec {
            SourceSpec::File(path, frame) => Source::Cut(CutFile::open(path, *frame)?),
            SourceSpec::Files(path) => Source::Files(FrameFiles::find(path)?),
            SourceSpec::Pipe(path, cut) => {
                Source::Pipe(PipeSource::open(path.as_deref(), *cut, control.clone())?)
            }
            SourceSpec::Test(size) => Source::Picture(Picture::new(*size)),
        })
    }

    /// The number of frames, if it is known.
    pub(crate) fn frames(&self) -> Option<u64> {
        match self {
            Source::Cut(file) => Some(file.frames()),
            Source::Files(files) => Some(files.frames()),
            Source::Pipe(_) | Source::Picture(_) => None,
        }
    }

    /// The bytes of each frame but the last one, if all are equal.
    pub(crate) fn frame_len(&self) -> Option<u64> {
        match self {
            Source::Cut(file) => Some(file.frame_len()),
            Source::Files(_) => None,
            Source::Pipe(pipe) => pipe.frame_len(),
            Source::Picture(picture) => Some(picture.len()),
        }
    }

    /// The most bytes of a frame.
    pub(crate) fn frame_max(&self) -> u64 {
        match self {
            Source::Files(files) => files.frame_max(),
            Source::Cut(_) | Source::Pipe(_) | Source::Picture(_) => {
                self.frame_len().unwrap_or(FRAME_LEN_MAX)
            }
        }
    }

    /// Whether a frame can be read again, and frames can be left out.
    pub(crate) fn can_go_back(&self) -> bool {
        !matches!(self, Source::Pipe(_))
    }

    /// Begins a frame; `None` if there are no more. A pipe has only the next one.
    pub(crate) fn begin(&mut self, frame: u64) -> Result<Option<FrameStart>, Error> {
        match self {
            Source::Cut(file) => Ok(file.begin(frame)),
            Source::Files(files) => files.begin(frame),
            Source::Pipe(pipe) => pipe.begin(),
            Source::Picture(picture) => Ok(Some(picture.begin(frame))),
        }
    }

    /// Fills `into` with the bytes at `offset` of the frame that was begun.
    pub(crate) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        match self {
            Source::Cut(file) => file.read(offset, into),
            Source::Files(files) => files.read(offset, into),
            Source::Pipe(pipe) => pipe.read(into),
            Source::Picture(picture) => {
                picture.read(offset, into);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_they_are_written() {
        for (text, frame, spec) in [
            ("file:/a/b", None, SourceSpec::File("/a/b".into(), 1 << 20)),
            ("file:a:b", Some("256K"), SourceSpec::File("a:b".into(), 256 << 10)),
            ("dir:/data/*.tif", None, SourceSpec::Files("/data/*.tif".into())),
            ("pipe:/run/p", Some("prefixed"), SourceSpec::Pipe(Some("/run/p".into()), PipeCut::Prefixed)),
            ("-", Some("5"), SourceSpec::Pipe(None, PipeCut::Fixed(5))),
        ] {
            assert_eq!(SourceSpec::parse(text, frame).unwrap(), spec);
        }
        for (text, frame) in [
            ("a", None),
            ("file:", None),
            ("file:a", Some("2G")),
            ("file:a", Some("0")),
            ("dir:a", Some("1K")),
            ("-", None),
            ("pipe:a", Some("x")),
            ("test:1920", None),
            ("test:0x5", None),
            ("test:99999x99999", None),
        ] {
            assert_eq!(SourceSpec::parse(text, frame).unwrap_err().code(), Code::BadOption, "{text}");
        }
    }
}
