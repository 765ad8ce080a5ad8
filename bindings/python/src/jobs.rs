//! Copies, syncs and verifications that run.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farhaul::copy::{ReportVerdict, RunningTransfer, Transfer, TransferFailure};
use farhaul::document::{TransferDocument, VerifyDocument};
use farhaul::errors::Code;
use farhaul::events::{EventLevel, EventReader};
use farhaul::{Error, Handle};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::{OrRaise as _, exception};
use crate::owned::Owned;
use crate::waiting::LOOK_EVERY;

/// The end of a job: its report as JSON, and what has gone wrong.
#[derive(Default)]
struct JobEnd {
    outcome: Mutex<Option<(String, Option<Error>)>>,
    ended: Condvar,
}

/// A copy, a sync or a verification that runs.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct Job {
    handle: Owned<Handle>,
    end: Arc<JobEnd>,
}

impl Job {
    fn of<R: ReportVerdict + Serialize>(
        py: Python<'_>,
        started: Result<RunningTransfer<R>, TransferFailure<R>>,
    ) -> PyResult<Job> {
        let running = started.map_err(|failure| {
            let (report, error) = outcome(Err(failure));
            exception(py, &error.unwrap_or_else(|| Error::bug("a start that failed")), Some(&report))
        })?;
        let (handle, end) = (running.handle().clone(), Arc::new(JobEnd::default()));
        let kept = end.clone();
        let wait = move || {
            let ended = outcome(running.wait());
            *kept.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            kept.ended.notify_all();
        };
        let thread = std::thread::Builder::new().name("job".into()).spawn(wait);
        thread.map_err(|source| exception(py, &Error::io("cannot start a thread")(source), None))?;
        Ok(Job { handle: Owned::new(handle), end })
    }

    /// The end of the job, if it comes until then.
    fn ended_by(&self, until: Instant) -> Option<(String, Option<Error>)> {
        let mut outcome = self.end.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if outcome.is_some() || left.is_zero() {
                return outcome.clone();
            }
            outcome = self.end.ended.wait_timeout(outcome, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The report as JSON. If only entries have failed, that is an error, too.
fn outcome<R: ReportVerdict + Serialize>(ended: Result<R, TransferFailure<R>>) -> (String, Option<Error>) {
    let json = |report: &R| serde_json::to_string(report).unwrap_or_default();
    match ended {
        Ok(report) => (json(&report), None),
        Err(TransferFailure { report, error }) => {
            let error = error.unwrap_or_else(|| Error::new(Code::FilesFailed, report.complaint()));
            (json(&report), Some(error))
        }
    }
}

#[pyfunction]
pub(crate) fn start_transfer(py: Python<'_>, document: &str) -> PyResult<Job> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let job = TransferDocument::read(document.as_bytes()).and_then(|document| document.job(now_s));
    let job = job.or_raise(py)?;
    Job::of(py, py.detach(|| Transfer::of(job).start()))
}

#[pyfunction]
pub(crate) fn start_verify(py: Python<'_>, document: &str) -> PyResult<Job> {
    let job = VerifyDocument::read(document.as_bytes()).and_then(|document| document.job()).or_raise(py)?;
    let started = py.detach(|| {
        farhaul::verify(job.list, job.directory)
            .algorithm(job.algorithm)
            .extra(job.extra)
            .metadata(job.metadata)
            .quick(job.quick)
            .modify_window(job.modify_window_secs)
            .start()
    });
    Job::of(py, started)
}

/// The bits per second that a text such as `2G` stands for.
#[pyfunction]
pub(crate) fn rate(text: &str) -> Option<u64> {
    farhaul::sisters::amounts::rate(text)
}

/// The bytes that a text such as `256M` stands for.
#[pyfunction]
pub(crate) fn size(text: &str) -> Option<u64> {
    farhaul::sisters::amounts::size(text)
}

/// The word of Python for the options that can be changed while something runs.
pub(crate) fn rate_options(
    py: Python<'_>,
    policy: &str,
    rate_bps: Option<u64>,
    rate_min_bps: Option<u64>,
) -> PyResult<farhaul::options::RateOptions> {
    let policy = serde_json::from_value(serde_json::Value::from(policy)).map_err(|_| {
        let what = format!("there is no policy '{policy}'; there are fixed, fair, high and low");
        exception(py, &Error::new(Code::BadOption, what), None)
    })?;
    Ok(farhaul::options::RateOptions { policy, rate_bps, rate_min_bps })
}

#[pymethods]
impl Job {
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.handle.get(py)?.id().to_string())
    }

    /// The state at this moment, as JSON.
    fn snapshot(&self, py: Python<'_>) -> PyResult<String> {
        let handle = self.handle.get(py)?;
        let snapshot = py.detach(|| handle.snapshot());
        serde_json::to_string(&snapshot).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn events(&self, py: Python<'_>, level: &str) -> PyResult<Events> {
        let level = match level {
            "notice" => EventLevel::Notice,
            "detail" => EventLevel::Detail,
            "trace" => EventLevel::Trace,
            _ => {
                let what = "the levels of events are notice, detail and trace";
                return Err(exception(py, &Error::new(Code::BadOption, what), None));
            }
        };
        Ok(Events(Owned::new(self.handle.get(py)?.events(level))))
    }

    #[pyo3(signature = (policy, rate_bps, rate_min_bps))]
    fn set_rate(
        &self,
        py: Python<'_>,
        policy: &str,
        rate_bps: Option<u64>,
        rate_min_bps: Option<u64>,
    ) -> PyResult<()> {
        let (handle, rate) = (self.handle.get(py)?, rate_options(py, policy, rate_bps, rate_min_bps)?);
        py.detach(|| handle.set_rate(rate)).or_raise(py)
    }

    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle.get(py)?;
        py.detach(|| handle.pause());
        Ok(())
    }

    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle.get(py)?;
        py.detach(|| handle.resume());
        Ok(())
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle.get(py)?;
        py.detach(|| handle.cancel());
        Ok(())
    }

    /// Waits for the end, and returns the report as JSON; `None` if the end does not come in time. An exception that a
    /// handler of a signal raises meanwhile cancels the job.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<String>> {
        let handle = self.handle.get(py)?;
        let until = Instant::now() + seconds(timeout_s);
        loop {
            let look = until.min(Instant::now() + LOOK_EVERY);
            match py.detach(|| self.ended_by(look)) {
                Some((report, None)) => return Ok(Some(report)),
                Some((report, Some(error))) => return Err(exception(py, &error, Some(&report))),
                None => {}
            }
            if let Err(raised) = py.check_signals() {
                handle.cancel();
                return Err(raised);
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }
}

/// Whoever lets go of a job wants it no more.
impl Drop for Job {
    fn drop(&mut self) {
        Python::try_attach(|py| self.handle.get(py).map(Handle::cancel).unwrap_or_default());
    }
}

/// A length of time from Python; what is too long for this clock is a century.
pub(crate) fn seconds(seconds: f64) -> Duration {
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
    let span =
        if seconds > 0.0 { Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST) } else { Duration::ZERO };
    span.min(LONGEST)
}

/// A reader of what happens in a job.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct Events(Owned<EventReader>);

#[pymethods]
impl Events {
    /// The next event as JSON; `None` if none comes in time or the job is over.
    fn next(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<String>> {
        let reader = self.0.get(py)?;
        let until = Instant::now() + seconds(timeout_s);
        loop {
            let left = until.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
            let event = py.detach(|| reader.next(left));
            py.check_signals()?;
            match event {
                Some(event) => {
                    let json = serde_json::to_string(&event);
                    return json.map(Some).map_err(|error| PyValueError::new_err(error.to_string()));
                }
                None if reader.is_over() || Instant::now() >= until => return Ok(None),
                None => {}
            }
        }
    }

    #[getter]
    fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.get(py)?.is_over())
    }
}
