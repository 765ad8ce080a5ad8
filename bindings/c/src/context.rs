//! Contexts, and what concerns every handle: closing, errors, progress, the rate.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farhaul::Error;
use farhaul::copy::{Location, SessionReport};
use farhaul::document::Connection;
use farhaul::errors::Code;
use farhaul::events::{Snapshot, TransferState};
use farhaul::options::{NetworkOptions, RateOptions};

use crate::arguments::{
    Filled, Place, Sized1, bytes, data_mut, misuse, number, optional_bytes, options, set, write_text,
};
use crate::border::{call, code_of, done};
use crate::codes::{FH_ERROR_FORKED, FH_OK};
use crate::handles::{self, Kind, LastError, Thing};

/// What all that a program makes belongs to.
pub struct fh_context {
    _private: [u8; 0],
}

/// What all that is made from a context has in common.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_options {
    pub size: usize,
    /// The most bytes of blocks of all streams, copies and remotes together. 0: 1 GiB.
    pub memory_bytes: u64,
    /// The file of this user's key for fh://. NULL: ~/.config/farhaul/id_ed25519.
    pub identity_file: *const c_char,
    /// The file of known daemons. NULL: ~/.config/farhaul/known_hosts.
    pub known_hosts_file: *const c_char,
}

// SAFETY: numbers and addresses, all of 8 bytes.
unsafe impl Sized1 for fh_options {
    const NAME: &'static str = "fh_options";
    const FIRST_SIZE: usize = 32;
}

/// Figures of a stream or of a job that has ended.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_report {
    pub size: usize,
    /// Bytes of content that have arrived.
    pub bytes: u64,
    /// Bytes of packets that the sending end has sent.
    pub wire_bytes_sent: u64,
    /// Segments that were sent again because they were lost.
    pub segments_retransmitted: u64,
    /// From the beginning of the session to its end.
    pub seconds: f64,
    /// Bits of content a second.
    pub goodput_bps: f64,
    /// The smallest round trip, in milliseconds.
    pub rtt_min_ms: f64,
    /// The share of packets that were lost, 0 to 1.
    pub loss_fraction: f64,
    /// Processor seconds of the threads of this end, and of the other one.
    pub cpu_seconds_local: f64,
    pub cpu_seconds_remote: f64,
    /// Bytes of memory of this end's blocks, and those of them in huge pages; 0 if the system does not say it.
    pub block_bytes: u64,
    pub huge_page_bytes: u64,
}

// SAFETY: numbers, all of 8 bytes.
unsafe impl Sized1 for fh_report {
    const NAME: &'static str = "fh_report";
    const FIRST_SIZE: usize = 80;
}

/// How a stream or a job stands.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_progress {
    pub size: usize,
    /// Bytes of content that are safe at the receiver, and how many there will be as far as is known.
    pub bytes_done: u64,
    pub bytes_total: u64,
    /// The same of files.
    pub files_done: u64,
    pub files_total: u64,
    /// Entries that have failed.
    pub failed: u64,
    /// Bits of content a second, over the last seconds.
    pub goodput_bps: f64,
    /// Since it was begun.
    pub seconds: f64,
    /// 0 starting, 1 running, 2 being paused, 3 paused, 4 ended.
    pub state: u64,
}

// SAFETY: numbers, all of 8 bytes.
unsafe impl Sized1 for fh_progress {
    const NAME: &'static str = "fh_progress";
    const FIRST_SIZE: usize = 72;
}

pub(crate) struct Context {
    pub(crate) last_error: LastError,
    memory_left: AtomicU64,
    connection: Connection,
}

const MEMORY_BYTES: u64 = 1 << 30;
/// What one thing takes if nothing else is said.
const SHARE_BYTES: u64 = 256 << 20;

/// A part of a context's memory, given back when dropped.
pub(crate) struct MemoryShare {
    context: Arc<Context>,
    pub(crate) bytes: u64,
}

impl MemoryShare {
    /// Takes `wanted` bytes; without a wish, what is usual or left.
    pub(crate) fn of(context: &Arc<Context>, wanted: Option<u64>) -> Result<MemoryShare, Error> {
        let least = farhaul::sisters::MEMORY_MIN;
        let part = |left: u64| wanted.unwrap_or(SHARE_BYTES.min(left).max(least));
        let take = |left: u64| left.checked_sub(part(left));
        match context.memory_left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            Ok(left) => Ok(MemoryShare { context: context.clone(), bytes: part(left) }),
            Err(left) => {
                let what =
                    format!("{} bytes of memory are wanted, and the context has {left} left", part(left));
                Err(Error::new(Code::NoMemory, what)
                    .with_hint("close what is not needed any more, or give fh_open more memory_bytes"))
            }
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.context.memory_left.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

impl Context {
    /// How to get to a host: what the program says, and the context's files where it says nothing.
    pub(crate) fn connection(&self, mut said: Connection) -> Connection {
        if said.identity.is_empty() {
            said.identity.clone_from(&self.connection.identity);
        }
        said.known_hosts = said.known_hosts.or_else(|| self.connection.known_hosts.clone());
        said
    }

    /// Where a location is. The context's files are for daemons only.
    pub(crate) fn locate(&self, place: &[u8], said: &Connection) -> Result<Location, Error> {
        use std::os::unix::ffi::OsStrExt as _;
        let place = farhaul::copy::LocationSpec::parse(std::ffi::OsStr::from_bytes(place))?;
        match place {
            farhaul::copy::LocationSpec::Daemon(..) => self.connection(said.clone()).locate(&place),
            _ => said.locate(&place),
        }
    }
}

/// Makes a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_open(options: *const fh_options, context: *mut *mut fh_context) -> i32 {
    done(0, || {
        // SAFETY: as the header says.
        let (options, context) = unsafe { (self::options(options)?, Place::new(context, "context")?) };
        // SAFETY: as the header says.
        let path = |text| unsafe { optional_bytes(text) }.map(farhaul::sisters::escape);
        let connection = Connection {
            identity: path(options.identity_file).into_iter().collect(),
            known_hosts: path(options.known_hosts_file),
            ..Connection::default()
        };
        let memory_left = AtomicU64::new(set(options.memory_bytes).unwrap_or(MEMORY_BYTES));
        let made = Context { last_error: LastError::default(), memory_left, connection };
        context.set_handle(handles::insert(Thing::Context(Arc::new(made)))?);
        Ok(())
    })
}

/// Closes any handle, and a context with it all that was made from it; the memory of its blocks is gone then. A stream
/// ends in order after fh_wait_for_receiver, or after fh_take has returned FH_END, if the other program ends it within
/// 10 s, too; otherwise the far end is told that it is incomplete. A job is cancelled, and its end is awaited. Calls of
/// other threads that wait on the handle return FH_INTERRUPTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_close(handle: *mut c_void) -> i32 {
    let handle = number(handle);
    call(handle, || {
        let thing = handles::take(handle, None, |thing| match thing {
            Thing::Job(_) | Thing::Context(_) => crate::copies::not_in_callback(),
            _ => Ok(()),
        })?;
        match close(thing) {
            Ok(()) => Ok(FH_OK),
            // The handle is gone, so nobody could ask for the text.
            Err(error) => Ok(code_of(&error)),
        }
    })
}

fn close(thing: Thing) -> Result<(), Error> {
    match thing {
        Thing::Context(context) => {
            let mut things = handles::take_all_of(&context);
            // Streams end before their blocks are let go, so that no block counts as processed that was not.
            things.sort_by_key(|thing| thing.kind() == Kind::Block);
            things.into_iter().map(close).fold(Ok(()), Result::and)
        }
        Thing::Stream(stream) => stream.close(),
        Thing::Job(job) => {
            job.close();
            Ok(())
        }
        Thing::Block(_) | Thing::Listener(_) | Thing::Remote(_) | Thing::File(_) => Ok(()),
    }
}

/// The text of an error: what, where, and what to do. With the handle that the failed call was given as its first
/// argument, and the code that it returned, it is that of the handle's last error with this code; with NULL, or if
/// there is none, the meaning of the code. Returns the text's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_error_text(
    handle: *const c_void,
    code: i32,
    text: *mut c_char,
    room: usize,
) -> usize {
    let mut len = 0;
    call(0, || {
        // SAFETY: as the header says.
        let room = unsafe { data_mut(text.cast::<u8>(), room, "text")? };
        let noted = handles::look(number(handle), None, |thing| thing.notes().get()).ok().flatten();
        let said = match noted.filter(|error| code_of(error) == code) {
            Some(error) => match error.hint() {
                Some(hint) => format!("{error} ({hint})"),
                None => error.to_string(),
            },
            None => meaning(code),
        };
        len = write_text(&said, room);
        Ok(FH_OK)
    });
    len
}

/// The name of a code, such as "FH-NO-SPACE", as in docs/reference/errors.md. It lives as long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn fh_error_name(code: i32) -> *const c_char {
    let name = match code {
        0 => c"FH-OK",
        1 => c"FH-END",
        2 => c"FH-LATER",
        code => names::of(code).unwrap_or(c"FH-UNKNOWN"),
    };
    name.as_ptr()
}

mod names {
    use std::collections::BTreeMap;
    use std::ffi::{CStr, CString};

    use farhaul::errors::Code;
    use farhaul::sisters::PerProcess;

    /// The name of a code, with a zero byte.
    pub(super) fn of(code: i32) -> Option<&'static CStr> {
        static NAMES: PerProcess<BTreeMap<i32, CString>> = PerProcess::new();
        let names = NAMES.get_or_init(|| {
            let named = |code: &Code| (code.number().into(), CString::new(code.name()).unwrap_or_default());
            Code::ALL.iter().map(named).collect()
        });
        names.get(&code).map(CString::as_c_str)
    }
}

fn meaning(code: i32) -> String {
    match code {
        FH_OK => "The call has done what was asked.".into(),
        1 => "There is no more.".into(),
        2 => "Nothing has come in time.".into(),
        code => match u16::try_from(code).ok().and_then(Code::of_number) {
            Some(known) => known.meaning().into(),
            None => format!("There is no code {code} in this version."),
        },
    }
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn fh_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Sets the rate of a running stream, job or remote, in bits a second of IP packets; 0: no ceiling. Either end of a
/// stream may do so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_set_rate(handle: *mut c_void, rate_bps: u64) -> i32 {
    let handle = number(handle);
    done(handle, || {
        let rate = |network: &RateOptions| RateOptions { rate_bps: set(rate_bps), ..*network };
        match handles::look(handle, None, running)?? {
            Running::Stream(stream) => stream.set_rate(rate(&stream.rate)),
            Running::Job(job) => job.handle.set_rate(rate(&job.rate)),
            Running::Remote(remote) => remote.remote.handle().set_rate(rate(&remote.rate)),
        }
    })
}

/// How a stream, a job or a remote stands now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_get_progress(handle: *mut c_void, progress: *mut fh_progress) -> i32 {
    let handle = number(handle);
    done(handle, || {
        // SAFETY: as the header says.
        let progress = unsafe { Filled::new(progress)? };
        let seen = match handles::look(handle, None, running)?? {
            Running::Stream(stream) => stream.handle().snapshot(),
            Running::Job(job) => job.handle.snapshot(),
            Running::Remote(remote) => remote.remote.handle().snapshot(),
        };
        progress.fill(fh_progress::of(&seen));
        Ok(())
    })
}

/// Ends a stream, a job or a remote from any thread: calls that wait on it return FH_INTERRUPTED. The handle stays,
/// and is to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_cancel(handle: *mut c_void) -> i32 {
    let handle = number(handle);
    done(handle, || {
        match handles::look(handle, None, running)?? {
            Running::Stream(stream) => stream.handle().cancel(),
            Running::Job(job) => job.handle.cancel(),
            Running::Remote(remote) => {
                remote.remote.handle().cancel();
                remote.names.cancel();
            }
        }
        Ok(())
    })
}

/// The whole report of a stream or a job that has ended, as the JSON that `farhaul cp --json` prints. `len` gets the
/// length of the whole text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_report_json(
    handle: *mut c_void,
    json: *mut c_char,
    room: usize,
    len: *mut usize,
) -> i32 {
    let handle = number(handle);
    done(handle, || {
        // SAFETY: as the header says.
        let (room, len) = unsafe { (data_mut(json.cast::<u8>(), room, "json")?, Place::new(len, "len")?) };
        let json = match handles::look(handle, None, running)?? {
            Running::Stream(stream) => stream.report_json(),
            Running::Job(job) => job.report_json(),
            Running::Remote(_) => return Err(misuse("a remote has no report")),
        };
        let json = json.ok_or_else(|| misuse("it has not ended"))?;
        len.set(write_text(&json, room));
        Ok(())
    })
}

/// What has a rate and figures.
enum Running {
    Stream(Arc<crate::streams::Stream>),
    Job(Arc<crate::copies::Job>),
    Remote(Arc<crate::reads::OpenRemote>),
}

fn running(thing: &mut Thing) -> Result<Running, Error> {
    Ok(match thing {
        Thing::Stream(stream) => Running::Stream(stream.clone()),
        Thing::Job(job) => Running::Job(job.clone()),
        Thing::Remote(remote) => Running::Remote(remote.clone()),
        _ => return Err(misuse("this is the handle of neither a stream nor a job nor a remote")),
    })
}

impl fh_progress {
    fn of(seen: &Snapshot) -> fh_progress {
        fh_progress {
            size: size_of::<fh_progress>(),
            bytes_done: seen.bytes_done,
            bytes_total: seen.bytes_total,
            files_done: seen.files_done,
            files_total: seen.files_total,
            failed: seen.failed,
            goodput_bps: seen.goodput_bps,
            seconds: seen.seconds,
            state: match seen.state {
                TransferState::Starting => 0,
                TransferState::Running => 1,
                TransferState::Pausing => 2,
                TransferState::Paused => 3,
                TransferState::Ended => 4,
            },
        }
    }
}

impl fh_report {
    pub(crate) fn of(report: &SessionReport) -> fh_report {
        fh_report {
            size: size_of::<fh_report>(),
            bytes: report.bytes,
            wire_bytes_sent: report.wire_bytes_sent,
            segments_retransmitted: report.segments_retransmitted,
            seconds: report.seconds,
            goodput_bps: report.goodput_bps,
            rtt_min_ms: report.rtt_min_ms,
            loss_fraction: report.loss_fraction,
            cpu_seconds_local: report.cpu_seconds_local,
            cpu_seconds_remote: report.cpu_seconds_remote,
            block_bytes: report.block_memory.map_or(0, |memory| memory.bytes),
            huge_page_bytes: report.block_memory.map_or(0, |memory| memory.huge_bytes),
        }
    }
}

/// The rate as it was set at the beginning, of which [`fh_set_rate`] changes the ceiling.
pub(crate) fn rate_of(network: &NetworkOptions) -> RateOptions {
    network.rate_options()
}

/// A location that must be there.
///
/// # Safety
///
/// As for [`bytes`].
pub(crate) unsafe fn location<'a>(text: *const c_char) -> Result<&'a [u8], Error> {
    // SAFETY: as the caller says.
    unsafe { bytes(text, "location") }
}

const _: () = assert!(FH_ERROR_FORKED != FH_OK);
