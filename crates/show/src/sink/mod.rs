//! Where frames go: one file, a file for each frame, a pipe, or nowhere.
//!
//! Always true: under a frame's own name stand only whole frames. What a pipe has taken cannot be taken back, so a
//! pipe gets frames that may be dropped only when they are whole.

mod frame_files;
mod one_file;
mod pipe;
mod whole_frames;

use std::path::PathBuf;

use farhaul::Error;
use farhaul::errors::Code;

use crate::control::ShowControl;
use crate::label::PieceLabel;
use frame_files::FrameDirectory;
use one_file::OneFile;
use pipe::PipeSink;
use whole_frames::WholeFrames;

/// Where the frames of a stream go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkSpec {
    /// One file, in which the frames come one after another.
    File(PathBuf),
    /// A directory with a file for each frame.
    Dir(PathBuf),
    /// A pipe, or standard output if there is no path.
    Pipe(Option<PathBuf>),
    /// Nowhere.
    Null,
}

impl SinkSpec {
    /// Reads a sink as it is written on the command line.
    pub fn parse(text: &str) -> Result<SinkSpec, Error> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(SinkSpec::File(path.into())),
            Some(("dir", path)) if !path.is_empty() => Ok(SinkSpec::Dir(path.into())),
            Some(("pipe", path)) if !path.is_empty() => Ok(SinkSpec::Pipe(Some(path.into()))),
            _ if text == "pipe" || text == "-" => Ok(SinkSpec::Pipe(None)),
            _ if text == "null" => Ok(SinkSpec::Null),
            _ => {
                let what = format!("{text:?} is no place for frames; write file:F, dir:D, pipe:P, - or null");
                Err(Error::new(Code::BadOption, what))
            }
        }
    }
}

/// How the frames of a stream come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// The bytes of each frame but the last one, if all are equal.
    pub(crate) frame_len: Option<u64>,
    pub(crate) frame_max: u64,
    /// Whether pieces come in order.
    pub(crate) in_order: bool,
    /// Whether frames may be dropped.
    pub(crate) may_drop: bool,
    /// The most bytes of frames that are kept until it is their turn.
    pub(crate) memory: u64,
}

/// An open sink.
pub(crate) enum Sink {
    File(OneFile),
    Dir(FrameDirectory),
    Pipe(PipeSink),
    /// Frames that may be dropped, on their way into a file or a pipe.
    Whole(Box<WholeFrames>),
    Null,
}

impl Sink {
    /// Opens a sink for frames that come in this manner.
    pub(crate) fn open(spec: &SinkSpec, manner: Manner, control: &ShowControl) -> Result<Sink, Error> {
        let in_turn = |sink: Sink| -> Result<Sink, Error> {
            match manner.may_drop {
                true => WholeFrames::new(sink, manner).map(|frames| Sink::Whole(Box::new(frames))),
                false => Ok(sink),
            }
        };
        let no_order = |what: &str| {
            let text = format!("{what} needs frames in order, and this stream has several paths");
            Err(Error::new(Code::BadOption, text)
                .with_hint("give the stream one path, or its frames a deadline"))
        };
        let comes_in_turn = manner.in_order || manner.may_drop;
        match spec {
            SinkSpec::File(_) if !comes_in_turn && manner.frame_len.is_none() => {
                no_order("one file for frames of different sizes")
            }
            SinkSpec::File(path) => {
                let places = if manner.may_drop { None } else { manner.frame_len };
                in_turn(Sink::File(OneFile::create(path, places)?))
            }
            SinkSpec::Dir(path) => Ok(Sink::Dir(FrameDirectory::open(path)?)),
            SinkSpec::Pipe(_) if !comes_in_turn => no_order("a pipe"),
            SinkSpec::Pipe(path) => in_turn(Sink::Pipe(PipeSink::open(path.as_deref(), control.clone())?)),
            SinkSpec::Null => Ok(Sink::Null),
        }
    }

    /// Takes a piece.
    pub(crate) fn write(&mut self, label: &PieceLabel<'_>, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Sink::File(file) => file.write(label.frame, label.offset, bytes),
            Sink::Dir(folder) => folder.write(label, bytes),
            Sink::Pipe(pipe) => pipe.write(label.offset, bytes),
            Sink::Whole(frames) => frames.write(label, bytes),
            Sink::Null => Ok(()),
        }
    }

    /// The frame is whole.
    pub(crate) fn complete(&mut self, frame: u64, size: u64) -> Result<(), Error> {
        match self {
            Sink::File(file) => {
                file.complete(frame, size);
                Ok(())
            }
            Sink::Dir(folder) => folder.complete(frame),
            Sink::Pipe(pipe) => {
                pipe.complete();
                Ok(())
            }
            Sink::Whole(frames) => {
                frames.complete(frame);
                Ok(())
            }
            Sink::Null => Ok(()),
        }
    }

    /// The frame will not be whole: it is dropped, or will come again from its beginning.
    pub(crate) fn forget(&mut self, frame: u64) {
        match self {
            Sink::Dir(folder) => folder.forget(frame),
            Sink::Whole(frames) => frames.forget(frame),
            // What is there of a frame that comes again is written over, or left out the second time.
            Sink::File(_) | Sink::Pipe(_) | Sink::Null => {}
        }
    }

    /// All frames below `next` are over. Of those that are kept until it is their turn, hands out what can be.
    pub(crate) fn over(&mut self, next: u64) -> Result<(), Error> {
        match self {
            Sink::Whole(frames) => frames.over(next),
            Sink::File(file) => {
                file.over(next);
                Ok(())
            }
            Sink::Dir(_) | Sink::Pipe(_) | Sink::Null => Ok(()),
        }
    }

    /// Whether kept frames take more memory than they may.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Sink::Whole(frames) if frames.is_full())
    }

    /// The first frame that is whole and waits for its turn, and when it was handed over.
    pub(crate) fn waiting(&self) -> Option<(u64, u64)> {
        match self {
            Sink::Whole(frames) => frames.waiting(),
            Sink::File(_) | Sink::Dir(_) | Sink::Pipe(_) | Sink::Null => None,
        }
    }

    /// Whether frames can come again from the first one on, in place of those that are there.
    pub(crate) fn can_begin_again(&self) -> bool {
        match self {
            Sink::Pipe(_) => false,
            Sink::Whole(frames) => frames.can_begin_again(),
            Sink::File(_) | Sink::Dir(_) | Sink::Null => true,
        }
    }

    /// There are no more frames.
    pub(crate) fn finish(self) -> Result<(), Error> {
        match self {
            Sink::File(file) => file.finish(),
            Sink::Whole(frames) => frames.finish(),
            Sink::Dir(_) | Sink::Pipe(_) | Sink::Null => Ok(()),
        }
    }
}
