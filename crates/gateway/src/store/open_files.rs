//! Files that were opened: their versions, and handles of the far end that are kept for the next request.
//!
//! Always true: both tables are bounded. A file whose version has changed is another [`OpenFile`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use farhaul::names::FileTime;
use farhaul::read::{FileIdentity, FileRange, RangeQueue, RemoteFile};
use farhaul_cache::{ChunkAddress, FileVersion, Place};
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};

use super::pattern::{Pattern, Way};
use super::sums::Sums;
use super::{CHUNK, FarEnd};

/// The most files that are remembered.
const FILES_MAX: usize = 16 << 10;
/// The most handles that are kept at the far end, which has a limit of its own for each session.
const HANDLES_MAX: usize = 128;
/// A file that has changed less than this long ago is not kept on the disk: within one tick of the far host's clock it
/// could change once more and have the same times.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// A version of a file.
pub(crate) struct OpenFile {
    pub(crate) path: Vec<u8>,
    pub(crate) identity: FileIdentity,
    pub(crate) version: FileVersion,
    handle: Mutex<Option<Arc<RemoteFile>>>,
    pattern: Mutex<Pattern>,
    pub(crate) sums: Mutex<Sums>,
}

impl OpenFile {
    fn new(path: &[u8], base: &[u8], handle: RemoteFile) -> OpenFile {
        let identity = *handle.identity();
        let pair = |time: FileTime| (time.secs, time.nanos);
        let at_place = if base.is_empty() { path.to_vec() } else { [base, b"/", path].concat() };
        let version = FileVersion {
            path: at_place,
            size: identity.size,
            mtime: pair(identity.mtime),
            ctime: pair(identity.ctime),
            inode: identity.inode,
        };
        OpenFile {
            path: path.to_vec(),
            identity,
            version,
            handle: Mutex::new(Some(Arc::new(handle))),
            pattern: Mutex::default(),
            sums: Mutex::default(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.identity.size
    }

    /// Whether chunks of this version may be kept on the disk.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let before = i64::try_from(now.saturating_sub(SETTLED_AFTER).as_secs()).unwrap_or(i64::MAX);
        self.identity.ctime.secs < before && self.identity.mtime.secs < before
    }

    pub(crate) fn chunk_len(&self, index: u64) -> u64 {
        CHUNK.min(self.size().saturating_sub(index * CHUNK))
    }

    pub(crate) fn address(&self, place: &Place, index: u64) -> ChunkAddress {
        ChunkAddress::new(place, &self.version, index)
    }

    /// The file at the far end, opened again if its session was lost. Blocks.
    pub(crate) fn remote(&self, far_end: &FarEnd) -> Result<Arc<RemoteFile>, Error> {
        let kept = self.handle.lock().in_any_case().clone();
        if let Some(handle) = kept {
            return Ok(handle);
        }
        self.reopen(far_end)
    }

    /// Opens the file again. Fails if there is another version now.
    pub(crate) fn reopen(&self, far_end: &FarEnd) -> Result<Arc<RemoteFile>, Error> {
        let handle = far_end.with(|remote| remote.file(&self.path))?;
        if *handle.identity() != self.identity {
            return Err(Error::new(Code::SourceChanged, "the file has changed while it was read"));
        }
        let handle = Arc::new(handle);
        *self.handle.lock().in_any_case() = Some(handle.clone());
        Ok(handle)
    }

    /// Bytes of this version from the far end. Blocks.
    pub(crate) fn read(&self, far_end: &FarEnd, range: FileRange) -> Result<Vec<u8>, Error> {
        let read = |file: Arc<RemoteFile>| match file.read_at(range.offset, range.len)? {
            bytes if bytes.len() as u64 == range.len => Ok(bytes),
            _ => Err(Error::new(Code::SourceChanged, "the file has less than when it was opened")),
        };
        match read(self.remote(far_end)?) {
            Err(error) if error.code() != Code::SourceChanged => read(self.reopen(far_end)?),
            done => done,
        }
    }

    /// Asks for a range before it is known whether the file is still this version; `None` if no handle is kept.
    pub(crate) fn ask_early(&self, range: FileRange) -> Option<RangeQueue> {
        let handle = self.handle.lock().in_any_case().clone()?;
        let mut queue = handle.queue();
        queue.submit(range).ok().map(|_| queue)
    }

    /// How ranges are read, and which chunks are fetched ahead of their reader.
    pub(crate) fn plan(&self, ranges: &[FileRange], is_here: impl Fn(u64) -> bool) -> (Way, Vec<u64>) {
        self.pattern.lock().in_any_case().plan(ranges, self.size(), is_here)
    }

    fn let_go(&self) {
        *self.handle.lock().in_any_case() = None;
    }
}

/// All files that were opened lately.
pub(crate) struct OpenFiles {
    place: Place,
    base: Vec<u8>,
    holds: Duration,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<Vec<u8>, KeptFile>,
    /// Those whose handles are kept; the oldest first.
    handles: VecDeque<Arc<OpenFile>>,
}

struct KeptFile {
    file: Arc<OpenFile>,
    /// When the far end was last asked.
    asked: Instant,
}

impl OpenFiles {
    pub(super) fn new(place: Place, base: Vec<u8>, holds: Duration) -> OpenFiles {
        OpenFiles { place, base, holds, table: Mutex::default() }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The file at this path when it was last opened, and whether it need not be asked again.
    pub(crate) fn known(&self, path: &[u8]) -> Option<(Arc<OpenFile>, bool)> {
        let table = self.table.lock().in_any_case();
        let kept = table.files.get(path)?;
        Some((kept.file.clone(), kept.asked.elapsed() < self.holds))
    }

    /// The file at this path. Asks the far end unless its last answer still holds. Blocks.
    pub(super) fn open(&self, path: &[u8], far_end: &FarEnd) -> Result<Arc<OpenFile>, Error> {
        if let Some((file, true)) = self.known(path) {
            return Ok(file);
        }
        let asked = Instant::now();
        let opened = far_end.with(|remote| remote.file(path));
        let opened = match opened {
            // The far end has no room for another handle. Those that are kept here are only for speed.
            Err(error) if error.code() == Code::ShareUsed => {
                self.let_go();
                far_end.with(|remote| remote.file(path))
            }
            opened => opened,
        };
        let mut table = self.table.lock().in_any_case();
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => {
                table.files.remove(path);
                return Err(error);
            }
        };
        if let Some(kept) = table.files.get_mut(path)
            && kept.file.identity == *handle.identity()
        {
            let file = kept.file.clone();
            kept.asked = asked;
            *file.handle.lock().in_any_case() = Some(Arc::new(handle));
            table.keep_handle(&file);
            return Ok(file);
        }
        let file = Arc::new(OpenFile::new(path, &self.base, handle));
        if table.files.len() >= FILES_MAX {
            table.files.clear();
        }
        table.files.insert(path.to_vec(), KeptFile { file: file.clone(), asked });
        table.keep_handle(&file);
        Ok(file)
    }

    /// Lets go of all handles.
    fn let_go(&self) {
        let handles = std::mem::take(&mut self.table.lock().in_any_case().handles);
        handles.iter().for_each(|file| file.let_go());
    }
}

impl Table {
    fn keep_handle(&mut self, file: &Arc<OpenFile>) {
        if self.handles.back().is_some_and(|last| Arc::ptr_eq(last, file)) {
            return;
        }
        self.handles.retain(|kept| !Arc::ptr_eq(kept, file));
        self.handles.push_back(file.clone());
        if self.handles.len() > HANDLES_MAX
            && let Some(oldest) = self.handles.pop_front()
        {
            oldest.let_go();
        }
    }
}
