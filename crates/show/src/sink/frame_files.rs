//! A directory with a file for each frame, under a temporary name until the frame is whole.
//!
//! Always true: a name that a sender has chosen is one component of the directory, and never begins with a dot, so
//! that it neither leaves the directory nor meets a temporary name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::shown_path;
use farhaul::Error;
use farhaul::errors::{Code, Misbehaviour};
use farhaul::sisters::escape;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::label::PieceLabel;
use crate::source::files::{is_frame_name, name_in};

/// The most names that are kept, so that two frames of one name become two files.
const GIVEN_MAX: usize = 1 << 16;

pub(crate) struct FrameDirectory {
    folder: OwnedFd,
    shown: String,
    open: BTreeMap<u64, OpenFrame>,
    /// The names that this stream has given, if they are not those of numbers.
    given: BTreeSet<String>,
}

struct OpenFrame {
    file: File,
    temporary: String,
    /// `None` until the first piece has come, which has the name.
    name: Option<String>,
}

impl FrameDirectory {
    /// Opens the directory, and makes it if there is none.
    pub(crate) fn open(path: &Path) -> Result<FrameDirectory, Error> {
        let shown = shown_path(path);
        match mkdirat(CWD, path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(&shown, "make", errno.into())),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(&shown, "open", errno.into()))?;
        Ok(FrameDirectory { folder, shown, open: BTreeMap::new(), given: BTreeSet::new() })
    }

    pub(crate) fn write(&mut self, label: &PieceLabel<'_>, bytes: &[u8]) -> Result<(), Error> {
        if !self.open.contains_key(&label.frame) {
            let temporary = format!(".frame-{:08}.{}.part", label.frame, std::process::id());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&self.folder, &temporary, flags, Mode::from_raw_mode(0o666));
            let file = file.map_err(|errno| failed(&self.shown, "write in", errno.into()))?.into();
            self.open.insert(label.frame, OpenFrame { file, temporary, name: None });
        }
        let name = (label.offset == 0).then(|| self.name_of(label)).transpose()?;
        let Some(open) = self.open.get_mut(&label.frame) else {
            return Err(Error::bug("a frame that was just opened"));
        };
        if let Some(name) = name {
            open.name = Some(name);
        }
        open.file.write_all_at(bytes, label.offset).map_err(|error| failed(&self.shown, "write in", error))
    }

    /// The name of a frame's file: the sender's, or one made of the number.
    fn name_of(&mut self, label: &PieceLabel<'_>) -> Result<String, Error> {
        let numbered = format!("frame-{:08}", label.frame);
        let Some(name) = name_in(label.metadata) else { return Ok(numbered) };
        if !is_frame_name(&name) {
            let what = format!(
                "frame {} has the name {:?}, which no file here can have",
                label.frame,
                escape(name.as_bytes())
            );
            return Err(Error::misbehaved(Misbehaviour::BadFrameName, what));
        }
        match self.given.len() < GIVEN_MAX && self.given.insert(name.clone()) {
            true => Ok(name),
            false => Ok(format!("{numbered}-{name}")),
        }
    }

    pub(crate) fn complete(&mut self, frame: u64) -> Result<(), Error> {
        let Some(OpenFrame { file, temporary, name }) = self.open.remove(&frame) else {
            return Err(Error::bug("a whole frame that has no file"));
        };
        drop(file);
        let name = name.unwrap_or_else(|| format!("frame-{frame:08}"));
        renameat(&self.folder, &temporary, &self.folder, &name)
            .map_err(|errno| failed(&self.shown, "give a name in", errno.into()))
    }

    pub(crate) fn forget(&mut self, frame: u64) {
        if let Some(open) = self.open.remove(&frame) {
            if let Some(name) = &open.name {
                self.given.remove(name);
            }
            // If it stays, the next run of this frame replaces it.
            let _ = unlinkat(&self.folder, &open.temporary, AtFlags::empty());
        }
    }
}

impl Drop for FrameDirectory {
    fn drop(&mut self) {
        for frame in self.open.keys().copied().collect::<Vec<_>>() {
            self.forget(frame);
        }
    }
}

fn failed(shown: &str, verb: &str, error: std::io::Error) -> Error {
    Error::with_source(Code::of_files(&error), format!("cannot {verb} {shown}"), error)
}
