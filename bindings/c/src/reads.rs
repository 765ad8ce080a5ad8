//! Files that stay where they are: attributes, lists, ranges.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::options::RateOptions;
use farhaul::read::{Depth, FileRange, ListEntry, ListItem, PathKind, Remote, RemoteFile};

use crate::arguments::{Filled, Place, Sized1, bytes, data_mut, misuse, number, options};
use crate::border::{code_of, done};
use crate::codes::FH_OK;
use crate::context::{MemoryShare, fh_context, location, rate_of};
use crate::handles::{self, LastError, Thing};
use crate::names::Names;
use crate::streams::{fh_connect_options, network_within};

/// A place whose files can be read.
pub struct fh_remote {
    _private: [u8; 0],
}

/// An open file of a remote.
pub struct fh_file {
    _private: [u8; 0],
}

/// A file, a directory or something else.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_entry {
    pub size: usize,
    /// In a list: the path below the directory, empty for the directory itself. It lives until the callback returns.
    pub path: *const c_char,
    /// In a list: FH_OK, or why this entry could not be looked at; the rest is 0 then.
    pub code: i32,
    /// 1 file, 2 directory, 3 symbolic link, 4 pipe, 5 socket, 6 character device, 7 block device.
    pub kind: u32,
    /// The permission bits, 07777.
    pub mode: u32,
    /// When the content was last changed: seconds since 1970, and nanoseconds beside them.
    pub mtime_ns: u32,
    pub mtime_s: i64,
    /// Bytes of content.
    pub bytes: u64,
}

// SAFETY: numbers and addresses without gaps.
unsafe impl Sized1 for fh_entry {
    const NAME: &'static str = "fh_entry";
    const FIRST_SIZE: usize = 48;
}

/// Gets each entry of a list, on the thread that has called fh_list. Another value than 0 ends the list.
pub type fh_entry_callback = Option<unsafe extern "C" fn(user: *mut c_void, entry: *const fh_entry) -> i32>;

/// A part of a file that is read.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_range {
    /// Where it begins in the file.
    pub offset: u64,
    /// Where its bytes go, and how many are wanted.
    pub data: *mut c_void,
    pub len: usize,
    /// Set by fh_read_ranges: how many there were (fewer only at the end of the file), and the code of this range.
    pub got: usize,
    pub code: i32,
}

pub(crate) struct OpenRemote {
    pub(crate) last_error: LastError,
    pub(crate) remote: Remote,
    pub(crate) names: Names,
    pub(crate) rate: RateOptions,
    pub(crate) memory: MemoryShare,
}

pub(crate) struct OpenFile {
    pub(crate) last_error: LastError,
    file: RemoteFile,
    /// Behind the file, which is closed first.
    pub(crate) remote: Arc<OpenRemote>,
}

/// Connects to a directory or a file: a local path, [USER@]HOST:PATH over ssh, fh://HOST[:PORT]/PATH. Later paths begin
/// there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_remote_open(
    context: *mut fh_context,
    location: *const c_char,
    options: *const fh_connect_options,
    remote: *mut *mut fh_remote,
) -> i32 {
    let handle = number(context);
    done(handle, || {
        let context = handles::context(handle)?;
        // SAFETY: as the header says.
        let (location, given, place) =
            unsafe { (self::location(location)?, self::options(options)?, Place::new(remote, "remote")?) };
        // SAFETY: as the header says.
        let (network, connection, memory) = unsafe { network_within(&context, &given)? };
        let (rate, location) = (rate_of(&network), context.locate(location, &connection)?);
        let remote = Remote::at(&location, network.clone())?;
        let names = Names::at(location, network);
        let remote = OpenRemote { last_error: LastError::default(), remote, names, rate, memory };
        place.set_handle(handles::insert(Thing::Remote(Arc::new(remote)))?);
        Ok(())
    })
}

/// Opens a file. Reads return the content of this moment; once the file has changed they fail with FH-SOURCE-CHANGED.
/// `file_bytes` gets its size, and may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_file_open(
    remote: *mut fh_remote,
    path: *const c_char,
    file: *mut *mut fh_file,
    file_bytes: *mut u64,
) -> i32 {
    let handle = number(remote);
    done(handle, || {
        let remote = handles::remote(handle)?;
        // SAFETY: as the header says.
        let (path, place) = unsafe { (bytes(path, "path")?, Place::new(file, "file")?) };
        // SAFETY: as the header says.
        let size = unsafe { Place::new(file_bytes, "file_bytes") };
        let file = OpenFile { last_error: LastError::default(), file: remote.remote.file(path)?, remote };
        if let Ok(size) = size {
            size.set(file.file.size());
        }
        place.set_handle(handles::insert(Thing::File(Arc::new(file)))?);
        Ok(())
    })
}

/// Reads `len` bytes from `offset` on. `got` gets how many there were: fewer only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_read_at(
    file: *mut fh_file,
    offset: u64,
    data: *mut c_void,
    len: usize,
    got: *mut usize,
) -> i32 {
    let handle = number(file);
    done(handle, || {
        let file = handles::file(handle)?;
        // SAFETY: as the header says.
        let (room, got) = unsafe { (data_mut(data.cast::<u8>(), len, "data")?, Place::new(got, "got")?) };
        if offset.checked_add(len as u64).is_none() {
            return Err(misuse("the range ends beyond 2^64"));
        }
        got.set(file.file.read_into(offset, room)?);
        Ok(())
    })
}

/// Reads many ranges at once, in one round trip as far as the path allows. Returns the code of the first range that
/// failed; each range has its own, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_read_ranges(file: *mut fh_file, ranges: *mut fh_range, count: usize) -> i32 {
    let handle = number(file);
    done(handle, || {
        let file = handles::file(handle)?;
        // SAFETY: as the header says.
        let ranges = unsafe { data_mut(ranges, count, "ranges")? };
        let mut rooms = Vec::with_capacity(ranges.len());
        for range in ranges.iter_mut() {
            (range.got, range.code) = (0, FH_OK);
            // SAFETY: as the header says: each range has memory of its own.
            rooms.push(unsafe { data_mut(range.data.cast::<u8>(), range.len, "data")? });
        }
        let wanted: Vec<_> =
            ranges.iter().map(|range| FileRange { offset: range.offset, len: range.len as u64 }).collect();
        let mut answers = file.file.read_vectored(&wanted)?;
        let mut first_error = None;
        while let Some((index, read)) = answers.next() {
            let index = index as usize;
            match read {
                Ok(bytes) if index < rooms.len() && bytes.len() <= rooms[index].len() => {
                    rooms[index][..bytes.len()].copy_from_slice(&bytes);
                    ranges[index].got = bytes.len();
                }
                Ok(_) => return Err(Error::bug("an answer to no range")),
                Err(error) => {
                    if let Some(range) = ranges.get_mut(index) {
                        range.code = code_of(&error);
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    })
}

/// The attributes of a path below a remote; symbolic links are followed. `path` "" is the location itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_stat(remote: *mut fh_remote, path: *const c_char, entry: *mut fh_entry) -> i32 {
    let handle = number(remote);
    done(handle, || {
        let remote = handles::remote(handle)?;
        // SAFETY: as the header says.
        let (path, filled) = unsafe { (bytes(path, "path")?, Filled::new(entry)?) };
        filled.fill(fh_entry::of(&remote.remote.stat(path)?, std::ptr::null()));
        Ok(())
    })
}

/// Lists a directory, `levels` deep (1: what is in it; 0: everything below it), the directory itself first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_list(
    remote: *mut fh_remote,
    path: *const c_char,
    levels: u64,
    on_entry: fh_entry_callback,
    user: *mut c_void,
) -> i32 {
    let handle = number(remote);
    done(handle, || {
        let remote = handles::remote(handle)?;
        // SAFETY: as the header says.
        let path = unsafe { bytes(path, "path")? };
        let on_entry = on_entry.ok_or_else(|| misuse("the pointer on_entry is NULL"))?;
        let depth = if levels == 0 { Depth::All } else { Depth::Levels(levels) };
        let list = remote.remote.list(path, depth)?;
        for item in list {
            let item = item?;
            let (path, code, found) = match item {
                ListItem::Entry(entry) => (entry.path.clone(), FH_OK, Some(entry)),
                ListItem::Failed { path, code, .. } => (path, code.number().into(), None),
                // It has come before, as an entry.
                ListItem::NotEntered(_) => continue,
            };
            let Ok(path) = CString::new(path) else {
                return Err(Error::new(Code::Misbehaved, "the far end lists a name with a zero byte"));
            };
            let entry = match &found {
                Some(found) => fh_entry::of(found, path.as_ptr()),
                None => fh_entry::failed(code, path.as_ptr()),
            };
            // SAFETY: the program has handed over a function of this kind; the entry outlives the call.
            if unsafe { on_entry(user, &raw const entry) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

impl fh_entry {
    fn of(entry: &ListEntry, path: *const c_char) -> fh_entry {
        fh_entry {
            size: size_of::<fh_entry>(),
            path,
            code: FH_OK,
            kind: match entry.kind {
                PathKind::File => 1,
                PathKind::Directory => 2,
                PathKind::Symlink => 3,
                PathKind::Fifo => 4,
                PathKind::Socket => 5,
                PathKind::CharDevice => 6,
                PathKind::BlockDevice => 7,
            },
            mode: entry.mode,
            mtime_ns: entry.identity.mtime.nanos,
            mtime_s: entry.identity.mtime.secs,
            bytes: entry.identity.size,
        }
    }

    fn failed(code: i32, path: *const c_char) -> fh_entry {
        let size = size_of::<fh_entry>();
        fh_entry { size, path, code, kind: 0, mode: 0, mtime_ns: 0, mtime_s: 0, bytes: 0 }
    }
}
