//! Copies and syncs of files: jobs that run while the program goes on.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::copy::{Report, Transfer};
use farhaul::document::{self, TransferDocument};
use farhaul::errors::Code;
use farhaul::options::RateOptions;
use farhaul::{Error, Handle};

use crate::arguments::{
    Filled, Place, Sized1, bytes, data_mut, flag, misuse, number, optional_bytes, options, set, wait,
};
use crate::border::{call, done};
use crate::codes::{FH_LATER, FH_OK};
use crate::context::{Context, MemoryShare, fh_context, fh_report, rate_of};
use crate::handles::{self, LastError, Thing};

/// A copy or a sync that runs.
pub struct fh_job {
    _private: [u8; 0],
}

/// Gets each event of a job as JSON, as docs/reference/events.md has it, from a thread of the library. The text is gone
/// when it returns. It must not wait for its own job or close anything.
pub type fh_event_callback = Option<unsafe extern "C" fn(user: *mut c_void, event_json: *const c_char)>;

/// How to copy. What is 0 or NULL has its default, or what options_json says.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fh_copy_options {
    pub size: usize,
    /// Bytes of blocks at each end, of the context's memory_bytes. 0: 256 MiB, or what is left.
    pub memory_bytes: u64,
    /// Bits a second of IP packets, at most.
    pub rate_bps: u64,
    /// Called with each event, and with `user`.
    pub on_event: fh_event_callback,
    pub user: *mut c_void,
    /// Everything else: the document of a transfer without its locations, {"options": {...}, "connection": {...},
    /// "manifest": ..., "receipt": ...} as in docs/reference/c.md.
    pub options_json: *const c_char,
}

// SAFETY: numbers and addresses, all of 8 bytes; a NULL callback is none.
unsafe impl Sized1 for fh_copy_options {
    const NAME: &'static str = "fh_copy_options";
    const FIRST_SIZE: usize = 48;
}

pub(crate) struct Job {
    pub(crate) last_error: LastError,
    pub(crate) handle: Handle,
    pub(crate) rate: RateOptions,
    outcome: Arc<Outcome>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) memory: MemoryShare,
}

/// How a job has ended, once it has.
#[derive(Default)]
struct Outcome {
    ended: Mutex<Option<(Report, Option<Error>)>>,
    changed: Condvar,
}

/// What the program gets back in its callback.
struct User(*mut c_void);

// SAFETY: the address is only handed back to the program, which knows that another thread brings it.
unsafe impl Send for User {}

thread_local! {
    /// Whether this thread is inside a callback of the program.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// A callback that waits for its own job would wait for itself.
pub(crate) fn not_in_callback() -> Result<(), Error> {
    match IN_CALLBACK.get() {
        true => Err(misuse("a callback must not wait for a job or close it")),
        false => Ok(()),
    }
}

impl Job {
    pub(crate) fn close(&self) {
        self.handle.cancel();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    pub(crate) fn report_json(&self) -> Option<String> {
        let ended = self.outcome.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.as_ref().and_then(|(report, _)| serde_json::to_string(report).ok())
    }

    /// Waits for the end; `None` if it does not come in time.
    fn wait(&self, wait: Duration) -> Option<(fh_report, Option<Error>)> {
        let until = Instant::now().checked_add(wait);
        let mut ended = self.outcome.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((report, error)) = &*ended {
                return Some((fh_report::of(&report.session), error.clone()));
            }
            let left =
                until.map_or(Duration::from_secs(1), |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            ended = self.outcome.changed.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Begins to copy files and trees, as `farhaul cp` does: `sources` and the destination are written as on its command
/// line. Returns at once; fh_wait waits for the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_copy(
    context: *mut fh_context,
    sources: *const *const c_char,
    source_count: usize,
    destination: *const c_char,
    options: *const fh_copy_options,
    job: *mut *mut fh_job,
) -> i32 {
    let handle = number(context);
    done(handle, || {
        let context = handles::context(handle)?;
        // SAFETY: as the header says, here and below; nothing writes to the sources.
        let sources = unsafe { data_mut(sources.cast_mut(), source_count, "sources")? };
        // SAFETY: see above.
        let sources =
            sources.iter().map(|source| unsafe { bytes(*source, "sources") }).collect::<Result<_, _>>()?;
        // SAFETY: see above.
        unsafe { begin(&context, "copy", sources, destination, options, job) }
    })
}

/// Begins to make the destination like the content of one source directory, as `farhaul sync` does. Nothing is deleted
/// unless options_json says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_sync(
    context: *mut fh_context,
    source: *const c_char,
    destination: *const c_char,
    options: *const fh_copy_options,
    job: *mut *mut fh_job,
) -> i32 {
    let handle = number(context);
    done(handle, || {
        let context = handles::context(handle)?;
        // SAFETY: as the header says.
        unsafe { begin(&context, "sync", vec![bytes(source, "source")?], destination, options, job) }
    })
}

/// # Safety
///
/// As the header says of `fh_copy`.
unsafe fn begin(
    context: &Arc<Context>,
    kind: &str,
    sources: Vec<&[u8]>,
    destination: *const c_char,
    options: *const fh_copy_options,
    job: *mut *mut fh_job,
) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let (destination, given, place) =
        unsafe { (bytes(destination, "destination")?, self::options(options)?, Place::new(job, "job")?) };
    // SAFETY: as the caller says.
    let text = unsafe { optional_bytes(given.options_json) }.unwrap_or(b"{}");
    let document = document_of(text, kind, &sources, destination)?;
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut copy = document.job(now_s.map_or(0, |since| since.as_secs() as i64))?;
    copy.sources = sources
        .iter()
        .map(|source| context.locate(source, &document.connection))
        .collect::<Result<_, _>>()?;
    copy.destination = context.locate(destination, &document.connection)?;
    let network = &mut copy.options.network;
    let said = document.options.network.memory_bytes;
    let said = (said != farhaul::options::NetworkOptions::default().memory_bytes).then_some(said);
    let memory = MemoryShare::of(context, set(given.memory_bytes).or(said))?;
    network.memory_bytes = memory.bytes;
    network.rate_bps = set(given.rate_bps).or(network.rate_bps);
    *network = network.clone().checked()?;
    let rate = rate_of(network);
    let mut transfer = Transfer::of(copy);
    if let Some(on_event) = given.on_event {
        let user = User(given.user);
        transfer = transfer.on_event(move |event| {
            let user = &user;
            let json = serde_json::to_string(event).ok().and_then(|json| CString::new(json).ok());
            if let Some(json) = json {
                IN_CALLBACK.set(true);
                // SAFETY: the program has handed over a function of this kind, and keeps `user` until the job's end.
                unsafe { on_event(user.0, json.as_ptr()) };
                IN_CALLBACK.set(false);
            }
        });
    }
    let running =
        transfer.start().map_err(|failure| failure.error.unwrap_or_else(|| Error::bug("a start")))?;
    let (transfer_handle, outcome) = (running.handle().clone(), Arc::new(Outcome::default()));
    let told = outcome.clone();
    let thread = std::thread::Builder::new().name("job".into()).spawn(move || {
        let ended = match running.wait() {
            Ok(report) => (report, None),
            Err(failure) => {
                let said = failure.to_string();
                let failed = |code| Error::new(code, said);
                let code = failure.report.failed.first().map_or(Code::FilesFailed, |entry| entry.code);
                let error =
                    failure.error.or_else(|| failure.report.shortfall()).unwrap_or_else(|| failed(code));
                (*failure.report, Some(error))
            }
        };
        *told.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        told.changed.notify_all();
    });
    let thread = Mutex::new(Some(thread.map_err(Error::no_thread)?));
    let job =
        Job { last_error: LastError::default(), handle: transfer_handle, rate, outcome, thread, memory };
    place.set_handle(handles::insert(Thing::Job(Arc::new(job)))?);
    Ok(())
}

/// The document of a transfer: what the program says in JSON, and the locations that it has named beside it.
fn document_of(
    text: &[u8],
    kind: &str,
    sources: &[&[u8]],
    destination: &[u8],
) -> Result<TransferDocument, Error> {
    let mut fields: serde_json::Map<String, serde_json::Value> = document::read(text, "options_json")?;
    if let Some(field) =
        ["kind", "sources", "destination"].into_iter().find(|field| fields.contains_key(*field))
    {
        let what = format!("options_json: `{field}` is said by the function and its arguments");
        return Err(Error::new(Code::BadOption, what));
    }
    let escaped = |place: &[u8]| serde_json::Value::String(farhaul::sisters::escape(place));
    fields.insert("kind".into(), kind.into());
    fields.insert("sources".into(), sources.iter().map(|source| escaped(source)).collect());
    fields.insert("destination".into(), escaped(destination));
    let whole = serde_json::Value::Object(fields).to_string();
    document::read(whole.as_bytes(), "options_json")
}

/// Waits for the end of a job. FH_LATER: it runs. Otherwise FH_OK, or the
/// code of what has failed; `report` may be NULL and is filled as far as it went.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_wait(job: *mut fh_job, wait_us: i64, report: *mut fh_report) -> i32 {
    let handle = number(job);
    call(handle, || {
        let job = handles::job(handle)?;
        // SAFETY: as the header says.
        let filled = unsafe { Filled::optional(report)? };
        let wait = wait(wait_us)?;
        if !wait.is_zero() {
            not_in_callback()?;
        }
        let Some((report, error)) = job.wait(wait) else { return Ok(FH_LATER) };
        if let Some(filled) = filled {
            filled.fill(report);
        }
        error.map_or(Ok(FH_OK), Err)
    })
}

/// Pauses a job (`is_paused` 1), or lets it go on (0).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fh_pause(job: *mut fh_job, is_paused: u32) -> i32 {
    let handle = number(job);
    done(handle, || {
        let job = handles::job(handle)?;
        match flag(is_paused, "is_paused")? {
            true => job.handle.pause(),
            false => job.handle.resume(),
        }
        Ok(())
    })
}
