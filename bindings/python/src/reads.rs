//! Files that stay where they are.

use std::sync::{Arc, Mutex, PoisonError};

use farhaul::document::{ReadDocument, location};
use farhaul::errors::Code;
use farhaul::names::FileTime;
use farhaul::options::Algorithm;
use farhaul::read::{self, Depth, FileRange, LastingFile, LastingRemote, ListEntry, ListItem, Patience};
use farhaul::{Error, Handle};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::{OrRaise as _, exception};
use crate::owned::Owned;
use crate::waiting::wait;

/// A host, and a place on it where paths begin. A session that was lost is begun again by the next call.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct Remote(Owned<Arc<LastingRemote>>);

/// What a location is: `local`, `ssh`, `daemon` or `pipe`; its host as the text that names it, and its path.
#[pyfunction]
pub(crate) fn parse<'py>(
    py: Python<'py>,
    text: &str,
) -> PyResult<(&'static str, String, Bound<'py, PyBytes>)> {
    use farhaul::copy::LocationSpec;
    let place = location(text).or_raise(py)?;
    let (kind, scheme) = match &place {
        LocationSpec::Pipe => ("pipe", ""),
        LocationSpec::Local(_) => ("local", ""),
        LocationSpec::Ssh(..) => ("ssh", "ssh://"),
        LocationSpec::Daemon(..) => ("daemon", "fh://"),
    };
    let host = place.host().map_or_else(String::new, |host| {
        let user = host.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        let port = host.port.map_or_else(String::new, |port| format!(":{port}"));
        let name = if host.name.contains(':') { format!("[{}]", host.name) } else { host.name.clone() };
        format!("{scheme}{user}{name}{port}")
    });
    Ok((kind, host, PyBytes::new(py, place.path())))
}

#[pyfunction]
pub(crate) fn connect(py: Python<'_>, document: &str) -> PyResult<Remote> {
    let document = ReadDocument::read(document.as_bytes()).or_raise(py)?;
    let place = document.place().or_raise(py)?;
    let dial = move |caller: &Handle| read::Remote::called_by(caller, &place, document.network.clone());
    let place = LastingRemote::new(Box::new(dial));
    let held = place.clone();
    // A place that is not there is known at once.
    wait(py, || place.interrupt(), move || held.session(Patience::OneAttempt).map(drop))?.or_raise(py)?;
    Ok(Remote(Owned::new(place)))
}

/// Answers, or the error of the first one that failed if the session was lost, so that all are asked for again.
fn unless_lost<T>(
    remote: &read::Remote,
    answers: Vec<Result<T, Error>>,
) -> Result<Vec<Result<T, Error>>, Error> {
    if remote.ended().is_some()
        && let Some(lost) = answers.iter().find_map(|answer| answer.as_ref().err())
    {
        return Err(lost.clone());
    }
    Ok(answers)
}

/// An entry as the package's `Entry` is made of it.
fn entry<'py>(py: Python<'py>, entry: &ListEntry) -> PyResult<Bound<'py, PyTuple>> {
    let identity = &entry.identity;
    let ns = |secs: i64, nanos: u32| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    (
        PyBytes::new(py, &entry.path),
        entry.kind.name(),
        identity.size,
        ns(identity.mtime.secs, identity.mtime.nanos),
        entry.mode,
        entry.links,
        PyBytes::new(py, &entry.target),
        identity.inode,
        identity.device,
        ns(identity.ctime.secs, identity.ctime.nanos),
    )
        .into_pyobject(py)
}

impl Remote {
    /// Does something with the host; Ctrl-C meanwhile ends the session.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl Fn(&read::Remote) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let place = self.0.get(py)?;
        let held = place.clone();
        wait(py, || place.interrupt(), move || held.ask(Patience::OneAttempt, work))?.or_raise(py)
    }
}

#[pymethods]
impl Remote {
    fn stat<'py>(&self, py: Python<'py>, path: Vec<u8>, follow: bool) -> PyResult<Bound<'py, PyTuple>> {
        let work = move |remote: &read::Remote| match follow {
            true => remote.stat(&path),
            false => remote.stat_link(&path),
        };
        entry(py, &self.ask(py, work)?)
    }

    fn file(&self, py: Python<'_>, path: Vec<u8>) -> PyResult<RemoteFile> {
        let place = self.0.get(py)?;
        let held = place.clone();
        let open = move || LastingFile::open(&held, &path, Patience::OneAttempt);
        let file = wait(py, || place.interrupt(), open)?.or_raise(py)?;
        Ok(RemoteFile { file: Owned::new(Arc::new(file)), place: Owned::new(place.clone()) })
    }

    /// The entries of a directory; `depth` 0 is everything below it.
    fn list(&self, py: Python<'_>, path: Vec<u8>, depth: u64) -> PyResult<RemoteList> {
        let depth = if depth == 0 { Depth::All } else { Depth::Levels(depth) };
        let list = self.ask(py, move |remote| {
            // The first items also show whether the session is still there.
            let mut list = remote.list(&path, depth)?;
            let first = list.next().transpose()?;
            Ok((first, list))
        })?;
        let place = self.0.get(py)?.clone();
        Ok(RemoteList { list: Owned::new(Arc::new(Mutex::new(list))), place: Owned::new(place) })
    }

    /// The attributes of many paths; an exception in the place of those that there are not.
    fn stats<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<Vec<u8>>,
        follow: bool,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let stats = self.ask(py, move |remote| {
            let stats = remote.stats(paths.iter().cloned(), follow).map(|(_, entry)| entry);
            unless_lost(remote, stats.collect())
        })?;
        let answer = |stat: Result<ListEntry, Error>| match stat {
            Ok(found) => entry(py, &found).map(Bound::into_any),
            Err(error) => Ok(exception(py, &error, None).into_value(py).into_bound(py).into_any()),
        };
        stats.into_iter().map(answer).collect()
    }

    /// Parts of many files, each by its path, an offset and a length; an exception in the place of those that cannot be
    /// read.
    fn parts<'py>(
        &self,
        py: Python<'py>,
        parts: Vec<(Vec<u8>, u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let read = self.ask(py, move |remote| {
            let range = |(path, offset, len): &(Vec<u8>, u64, u64)| {
                (path.clone(), FileRange { offset: *offset, len: *len })
            };
            let read = remote.parts(parts.iter().map(range)).map(|(_, bytes)| bytes);
            unless_lost(remote, read.collect())
        })?;
        let answer = |bytes: Result<Vec<u8>, Error>| match bytes {
            Ok(bytes) => PyBytes::new(py, &bytes).into_any(),
            Err(error) => exception(py, &error, None).into_value(py).into_bound(py).into_any(),
        };
        Ok(read.into_iter().map(answer).collect())
    }

    /// The paths that match a pattern.
    fn find<'py>(&self, py: Python<'py>, pattern: Vec<u8>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let paths = self.ask(py, move |remote| remote.find(&pattern))?;
        Ok(paths.iter().map(|path| PyBytes::new(py, path)).collect())
    }
}

/// The first item of a list, unless it was taken, and those behind it.
type BegunList = (Option<ListItem>, read::RemoteList);

/// A list that is under way.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct RemoteList {
    list: Owned<Arc<Mutex<BegunList>>>,
    place: Owned<Arc<LastingRemote>>,
}

#[pymethods]
impl RemoteList {
    /// Up to `count` further items; none at the end. An item is an entry, a path with a code and a reason if it could not
    /// be looked at, or the path of a directory on which something is mounted.
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let (list, place) = (self.list.get(py)?.clone(), self.place.get(py)?);
        let work = move || -> Result<Vec<ListItem>, Error> {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            let (first, list) = &mut *list;
            first.take().map(Ok).into_iter().chain(list).take(count).collect()
        };
        let items = wait(py, || place.interrupt(), work)?.or_raise(py)?;
        items
            .iter()
            .map(|item| match item {
                ListItem::Entry(found) => entry(py, found),
                ListItem::Failed { path, code, reason } => {
                    (PyBytes::new(py, path), code.name(), reason).into_pyobject(py)
                }
                ListItem::NotEntered(path) => (PyBytes::new(py, path),).into_pyobject(py),
            })
            .collect()
    }
}

/// An open file.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct RemoteFile {
    file: Owned<Arc<LastingFile>>,
    place: Owned<Arc<LastingRemote>>,
}

impl RemoteFile {
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl Fn(&read::RemoteFile) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let (file, place) = (self.file.get(py)?.clone(), self.place.get(py)?);
        wait(py, || place.interrupt(), move || file.ask(Patience::OneAttempt, work))?.or_raise(py)
    }
}

#[pymethods]
impl RemoteFile {
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.file.get(py)?.size())
    }

    /// What tells this version of the file from others: size, time of the content, time of any change, inode.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<(u64, i128, i128, u64)> {
        let identity = self.file.get(py)?.identity();
        let ns = |time: FileTime| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        Ok((identity.size, ns(identity.mtime), ns(identity.ctime), identity.inode))
    }

    fn read_at<'py>(&self, py: Python<'py>, offset: u64, len: u64) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.ask(py, move |file| file.read_at(offset, len))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads into a buffer of bytes that can be written to.
    fn readinto(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let memory = Memory::of(buffer)?;
        self.ask(py, move |file| memory.fill(|bytes| file.read_into(offset, bytes)))
    }

    /// Reads many ranges; the answers are in the order of the ranges.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let work = move |file: &read::RemoteFile| {
            let wanted: Vec<_> = ranges.iter().map(|&(offset, len)| FileRange { offset, len }).collect();
            let mut queue = file.read_vectored(&wanted)?;
            let mut read: Vec<Vec<u8>> = vec![Vec::new(); wanted.len()];
            while let Some((number, bytes)) = queue.next() {
                let place = usize::try_from(number).ok().and_then(|number| read.get_mut(number));
                *place.ok_or_else(|| Error::bug("the number of a range"))? = bytes?;
            }
            Ok(read)
        };
        Ok(self.ask(py, work)?.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Reads many ranges, each into a buffer of its own, whose length is the range's. Returns how many bytes each got.
    fn read_ranges_into(&self, py: Python<'_>, ranges: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<Vec<usize>> {
        let places = ranges.iter().map(|(offset, buffer)| Ok((*offset, Memory::of(buffer)?)));
        let places = places.collect::<PyResult<Vec<_>>>()?;
        let work = move |file: &read::RemoteFile| {
            let wanted: Vec<_> = places
                .iter()
                .map(|(offset, memory)| FileRange { offset: *offset, len: memory.len() })
                .collect();
            let mut counts = vec![None; wanted.len()];
            let mut queue = file.read_vectored(&wanted)?;
            while let Some((number, bytes)) = queue.next() {
                let bytes = bytes?;
                let place = usize::try_from(number).ok().filter(|number| *number < places.len());
                let place = place.ok_or_else(|| Error::bug("the number of a range"))?;
                let count = places[place].1.fill(|to| {
                    to[..bytes.len()].copy_from_slice(&bytes);
                    Ok(bytes.len())
                })?;
                if counts[place].replace(count).is_some() {
                    return Err(Error::bug("a range that came twice"));
                }
            }
            let counts = counts.into_iter().collect::<Option<Vec<_>>>();
            counts.ok_or_else(|| Error::bug("a range that did not come"))
        };
        self.ask(py, work)
    }

    /// The digest of the whole file, computed at the far end.
    fn digest<'py>(&self, py: Python<'py>, algorithm: &str) -> PyResult<Bound<'py, PyBytes>> {
        let algorithm = Algorithm::from_name(algorithm).ok_or_else(|| {
            let known = Algorithm::ALL.map(Algorithm::name).join(", ");
            let what = format!("there is no algorithm of that name; there are {known}");
            exception(py, &Error::new(Code::BadOption, what), None)
        })?;
        let (digest, _) = self.ask(py, move |file| file.digest(algorithm, None))?;
        Ok(PyBytes::new(py, &digest))
    }
}

/// Memory of Python that is written to.
struct Memory(PyBuffer<u8>);

impl Memory {
    fn of(buffer: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let buffer = PyBuffer::get(buffer)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            let what = "the buffer must be contiguous and can be written to";
            return Err(pyo3::exceptions::PyBufferError::new_err(what));
        }
        Ok(Memory(buffer))
    }

    fn len(&self) -> u64 {
        self.0.item_count() as u64
    }

    /// Lets `fill` write to the memory.
    #[allow(unsafe_code, reason = "a thread without the interpreter writes where Python said")]
    fn fill(&self, fill: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Result<usize, Error> {
        let (at, len) = (self.0.buf_ptr().cast::<u8>(), self.0.item_count());
        if len == 0 {
            return fill(&mut []);
        }
        // SAFETY: the buffer is contiguous, can be written to, and stays where it is as long as `self`. A program that
        // touches it from another thread meanwhile sees some of the bytes that come, as with `readinto` of Python's own
        // files.
        fill(unsafe { std::slice::from_raw_parts_mut(at, len) })
    }
}
