//! Copies, syncs and verifications for programs. A program describes what to do, then runs it to its end, or
//! starts it and keeps its handle.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul_copy::{
    BetweenJob, CopyJob, FailedEntry, LocationSpec, REPORT_SCHEMA, Report, SyncOptions, TransferOptions,
    VERIFY_SCHEMA, VerifyJob, VerifyReport,
};
use farhaul_fork::Origin;
use farhaul_session::{Handle, SessionLimits, contained};
use farhaul_volume::Algorithm;
use farhaul_words::{Error, EventLevel, Snapshot, TimedEvent};

/// Copies files and trees, as `farhaul cp` does. Sources and destination are written as on its command line:
/// a local path, `[user@]host:path` over SSH, `fh://host[:port]/path` at a daemon. Both may be at daemons.
///
/// ```no_run
/// let report = farhaul::copy(["run7/"], "archive:/data/run7").run()?;
/// println!("{} files", report.files);
/// # Ok::<(), farhaul::copy::TransferFailure<farhaul::copy::Report>>(())
/// ```
pub fn copy<S: AsRef<OsStr>>(
    sources: impl IntoIterator<Item = S>,
    destination: impl AsRef<OsStr>,
) -> Transfer {
    let parse = |name: &OsStr| LocationSpec::parse(name).map(|place| place.to_location());
    let sources = sources.into_iter().map(|source| parse(source.as_ref())).collect::<Result<Vec<_>, _>>();
    let job = sources.and_then(|sources| Ok(CopyJob::new(sources, parse(destination.as_ref())?)));
    Transfer { job, watch: Callbacks::default() }
}

/// Runs a job to its end. In a copy between two daemons, one of them sends to the other and no content passes
/// through this process. The report is filled as far as the transfer went, also when there is an error.
pub fn run_copy(job: CopyJob, handle: &Handle) -> (Report, Option<Error>) {
    match BetweenJob::is_one(&job) {
        true => farhaul_control::copy(job, handle),
        false => farhaul_copy::copy(job, handle),
    }
}

/// Makes the destination like the contents of the source directory, as `farhaul sync` does. Nothing is
/// deleted unless [`Transfer::sync_options`] says so.
pub fn sync(source: impl AsRef<OsStr>, destination: impl AsRef<OsStr>) -> Transfer {
    copy([source], destination).sync_options(SyncOptions::default())
}

/// Compares a directory with a manifest, or with a list as `sha256sum` writes one, as `farhaul verify` does.
pub fn verify(list: impl Into<PathBuf>, directory: impl Into<PathBuf>) -> Verification {
    let (list, directory) = (list.into(), directory.into());
    let algorithm = Algorithm::Sha256;
    Verification {
        job: VerifyJob {
            list,
            directory,
            algorithm,
            extra: false,
            metadata: false,
            modify_window_secs: 0,
            quick: false,
        },
        watch: Callbacks::default(),
    }
}

/// A copy or a sync that has not been started yet.
#[must_use = "nothing is copied until it is run or started"]
pub struct Transfer {
    /// The job, or the error in the names of its locations.
    job: Result<CopyJob, Error>,
    watch: Callbacks,
}

impl Transfer {
    /// A transfer that runs this job.
    pub fn of(job: CopyJob) -> Transfer {
        Transfer { job: Ok(job), watch: Callbacks::default() }
    }

    /// Replaces all options by these. The options of a sync stay if the new ones have none.
    pub fn options(mut self, options: TransferOptions) -> Transfer {
        if let Ok(job) = &mut self.job {
            let sync = job.options.sync.take();
            job.options = options;
            job.options.sync = job.options.sync.take().or(sync);
        }
        self
    }

    /// Makes it a sync with these options.
    pub fn sync_options(mut self, sync: SyncOptions) -> Transfer {
        if let Ok(job) = &mut self.job {
            job.options.sync = Some(sync);
        }
        self
    }

    /// Lets `change` change anything in the job, such as the key file of a target or the manifest.
    pub fn with(mut self, change: impl FnOnce(&mut CopyJob)) -> Transfer {
        if let Ok(job) = &mut self.job {
            change(job);
        }
        self
    }

    /// Puts the transfer under these caps on the rate and this budget, whichever end sends. Its weight
    /// decides its share of the rate; [`Handle::set_weight`] changes that while the transfer runs.
    pub fn within(mut self, within: SessionLimits) -> Transfer {
        if let Ok(job) = &mut self.job {
            job.means = within;
        }
        self
    }

    /// Calls `see` at intervals of `every` while the transfer runs, and once at the end.
    pub fn on_progress(mut self, every: Duration, see: impl FnMut(&Snapshot) + Send + 'static) -> Transfer {
        self.watch.see = Some((every, Box::new(see)));
        self
    }

    /// Calls `hear` with each event of the transfer.
    pub fn on_event(mut self, hear: impl FnMut(&TimedEvent) + Send + 'static) -> Transfer {
        self.watch.hear = Some(Box::new(hear));
        self
    }

    /// Runs the transfer and waits for its end.
    pub fn run(self) -> Result<Report, TransferFailure<Report>> {
        self.start()?.wait()
    }

    /// Starts the transfer in a thread of its own.
    pub fn start(self) -> Result<RunningTransfer<Report>, TransferFailure<Report>> {
        let job = self.job.map_err(TransferFailure::early)?;
        start(self.watch, move |handle| run_copy(job, handle))
    }
}

/// A verification that has not been started yet.
#[must_use = "nothing is verified until it is run or started"]
pub struct Verification {
    job: VerifyJob,
    watch: Callbacks,
}

impl Verification {
    /// Also reports entries that are in the directory but not in the list.
    pub fn extra(mut self, extra: bool) -> Verification {
        self.job.extra = extra;
        self
    }

    /// Also compares modes and modification times.
    pub fn metadata(mut self, metadata: bool) -> Verification {
        self.job.metadata = metadata;
        self
    }

    /// Compares only what needs no reading of contents, such as sizes.
    pub fn quick(mut self, quick: bool) -> Verification {
        self.job.quick = quick;
        self
    }

    /// Treats modification times as equal if they differ by at most this many seconds.
    pub fn modify_window(mut self, secs: u64) -> Verification {
        self.job.modify_window_secs = secs;
        self
    }

    /// Sets the algorithm of the digests in a list that is not a manifest, if its lines do not say it.
    pub fn algorithm(mut self, algorithm: Algorithm) -> Verification {
        self.job.algorithm = algorithm;
        self
    }

    /// As [`Transfer::on_progress`].
    pub fn on_progress(
        mut self,
        every: Duration,
        see: impl FnMut(&Snapshot) + Send + 'static,
    ) -> Verification {
        self.watch.see = Some((every, Box::new(see)));
        self
    }

    /// Runs the verification to its end. A difference is a failure, whose report has the findings.
    pub fn run(self) -> Result<VerifyReport, TransferFailure<VerifyReport>> {
        self.start()?.wait()
    }

    /// Starts the verification in a thread of its own.
    pub fn start(self) -> Result<RunningTransfer<VerifyReport>, TransferFailure<VerifyReport>> {
        let job = self.job;
        start(self.watch, move |handle| farhaul_copy::verify(&job, handle, &mut |_| {}))
    }
}

/// A transfer or a verification that runs. Dropping it cancels it and waits for its end, but not in a forked child:
/// there it does nothing.
pub struct RunningTransfer<R> {
    origin: Origin,
    handle: Handle,
    work: Option<JoinHandle<(R, Option<Error>)>>,
    watching: Option<WatchThread>,
}

impl<R: ReportVerdict> RunningTransfer<R> {
    /// Returns the handle that shows, controls and stops it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns whether it has ended. In a forked child it has.
    pub fn is_finished(&self) -> bool {
        !self.origin.is_here() || self.work.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end and returns the report.
    pub fn wait(mut self) -> Result<R, TransferFailure<R>> {
        if !self.origin.is_here() {
            return Err(TransferFailure::early(Error::forked("the transfer")));
        }
        let (report, error) = self.join().unwrap_or_else(|| R::of(Error::interrupted()));
        match error {
            None if report.is_ok() => Ok(report),
            error => Err(TransferFailure { report: Box::new(report), error }),
        }
    }
}

impl<R> RunningTransfer<R> {
    fn join(&mut self) -> Option<(R, Option<Error>)> {
        let ended = self.work.take().and_then(|work| work.join().ok());
        if let Some((stop, watching)) = self.watching.take() {
            drop(stop);
            // A panic of a callback does not make the transfer fail.
            let _ = watching.join();
        }
        ended
    }
}

impl<R> Drop for RunningTransfer<R> {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // It goes on in the parent, whose handle may be locked here for ever.
            std::mem::forget(self.handle.clone());
            return;
        }
        if self.work.is_some() {
            self.handle.cancel();
            self.join();
        }
    }
}

/// Why a transfer or a verification has not succeeded. If only some entries of a transfer failed, all others
/// have arrived.
#[derive(Debug)]
pub struct TransferFailure<R> {
    /// The report, filled as far as it went.
    pub report: Box<R>,
    /// Why it ended early, if it did; `None` if only entries failed or differ.
    pub error: Option<Error>,
}

impl<R: ReportVerdict> TransferFailure<R> {
    fn early(error: Error) -> TransferFailure<R> {
        let (report, error) = R::of(error);
        TransferFailure { report: Box::new(report), error }
    }
}

impl<R: ReportVerdict> fmt::Display for TransferFailure<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => error.fmt(formatter),
            None => formatter.write_str(&self.report.complaint()),
        }
    }
}

impl<R: ReportVerdict + fmt::Debug> std::error::Error for TransferFailure<R> {}

/// What the reports of transfers and verifications have in common.
pub trait ReportVerdict: Sized + Send + 'static {
    /// Returns whether everything succeeded.
    fn is_ok(&self) -> bool;
    /// Says in one line what has not succeeded.
    fn complaint(&self) -> String;
    /// Returns the report of something that ended with this error before it began.
    #[doc(hidden)]
    fn of(error: Error) -> (Self, Option<Error>);
}

impl ReportVerdict for Report {
    fn is_ok(&self) -> bool {
        self.ok
    }

    fn complaint(&self) -> String {
        if let Some(error) = self.shortfall() {
            return error.to_string();
        }
        match &self.failed[..] {
            [FailedEntry { path, reason, .. }, ..] => {
                format!("{} entries failed, such as {path}: {reason}", self.failed_count)
            }
            [] => format!("{} entries failed", self.failed_count),
        }
    }

    fn of(error: Error) -> (Report, Option<Error>) {
        let report = Report { schema: REPORT_SCHEMA, ..Report::default() };
        (report.ended_by(Some(&error)), Some(error))
    }
}

impl ReportVerdict for VerifyReport {
    fn is_ok(&self) -> bool {
        self.ok
    }

    fn complaint(&self) -> String {
        let count = self.missing + self.changed + self.extra + self.unreadable;
        match &self.findings[..] {
            [first, ..] => format!("{count} differ, such as {}: {}", first.path, first.reason),
            [] => format!("{count} differ"),
        }
    }

    fn of(error: Error) -> (VerifyReport, Option<Error>) {
        let report = VerifyReport {
            schema: VERIFY_SCHEMA,
            error: Some(error.to_string()),
            error_detail: Some((&error).into()),
            ..VerifyReport::default()
        };
        (report, Some(error))
    }
}

type SnapshotCallback = Box<dyn FnMut(&Snapshot) + Send>;
type EventCallback = Box<dyn FnMut(&TimedEvent) + Send>;
/// The thread that calls the callbacks, and a sender: dropping the sender ends the thread.
type WatchThread = (Sender<()>, JoinHandle<()>);

/// The callbacks of a program.
#[derive(Default)]
struct Callbacks {
    see: Option<(Duration, SnapshotCallback)>,
    hear: Option<EventCallback>,
}

/// How often to look for events, and so how late a program hears of one at most.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Callbacks {
    fn start(self, handle: &Handle) -> Result<Option<WatchThread>, Error> {
        if self.see.is_none() && self.hear.is_none() {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let events = self.hear.map(|hear| (handle.events(EventLevel::Trace), hear));
        let (handle, see) = (handle.clone(), self.see);
        let watch = move || watch(&handle, see, events, &stopped);
        let thread = std::thread::Builder::new().name("watch".into()).spawn(watch);
        Ok(Some((stop, thread.map_err(Error::io("cannot start a thread"))?)))
    }
}

fn watch(
    handle: &Handle,
    mut see: Option<(Duration, SnapshotCallback)>,
    mut events: Option<(farhaul_session::EventReader, EventCallback)>,
    stopped: &Receiver<()>,
) {
    let mut due = see.as_ref().map(|(every, _)| Instant::now() + *every);
    loop {
        let is_over = stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Disconnected);
        if let Some((events, hear)) = &mut events {
            events.take().iter().for_each(hear);
        }
        if let (Some((every, see)), Some(due)) = (&mut see, &mut due)
            && (is_over || Instant::now() >= *due)
        {
            see(&handle.snapshot());
            *due = Instant::now() + *every;
        }
        if is_over {
            return;
        }
    }
}

fn start<R: ReportVerdict>(
    watch: Callbacks,
    work: impl FnOnce(&Handle) -> (R, Option<Error>) + Send + 'static,
) -> Result<RunningTransfer<R>, TransferFailure<R>> {
    let handle = Handle::new();
    let watching = watch.start(&handle).map_err(TransferFailure::early)?;
    let held = handle.clone();
    let run = move || contained(|| work(&held)).unwrap_or_else(R::of);
    let work = std::thread::Builder::new().name("transfer".into()).spawn(run);
    let work = work.map_err(|source| TransferFailure::early(Error::io("cannot start a thread")(source)))?;
    Ok(RunningTransfer { origin: Origin::here(), handle, work: Some(work), watching })
}
