//! A program's own data.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use farhaul::Error;
use farhaul::document::{ListenDocument, StreamDocument};
use farhaul::stream::{self, AcceptedStream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::blocks::{ClaimedBlock, ReceivedBlock};
use crate::errors::{OrRaise as _, misuse};
use crate::jobs::{rate_options, seconds};
use crate::owned::Owned;
use crate::waiting::{LOOK_EVERY, is_main_thread, wait};

/// What a thread that waits in a stream asks: whether no handler of a signal has raised an exception. The exception is
/// kept for `after`.
fn watch_signals() -> (Box<dyn Fn() -> bool + Send + Sync>, Raised) {
    let raised = Raised::default();
    let kept = raised.clone();
    let goes_on = move || {
        if !is_main_thread() {
            return true;
        }
        let outcome = Python::try_attach(|py| py.check_signals());
        match outcome {
            Some(Err(error)) => {
                *kept.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                false
            }
            Some(Ok(())) => true,
            // The interpreter ends.
            None => false,
        }
    };
    (Box::new(goes_on), raised)
}

/// The exception of a handler of a signal, on its way to the call that it has ended.
#[derive(Clone, Default)]
struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// The result of a call; the exception that has ended it comes before its own error.
    fn after<T>(&self, py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
        result.map_err(|error| {
            let raised = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            raised.unwrap_or_else(|| crate::errors::exception(py, &error, None))
        })
    }
}

fn report_json(report: &farhaul::copy::SessionReport) -> PyResult<String> {
    serde_json::to_string(report).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The methods of an end of a stream: its own, and those that both ends have. A class has one block of methods.
macro_rules! stream_methods {
    ($end:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $end {
            $($own)*

            #[getter]
            fn name(&self, py: Python<'_>) -> PyResult<String> {
                Ok(self.stream.get(py)?.name().to_string())
            }

            #[getter]
            fn peer(&self, py: Python<'_>) -> PyResult<String> {
                Ok(self.stream.get(py)?.peer().to_string())
            }

            #[getter]
            fn peer_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
                Ok(self.stream.get(py)?.peer_key().map(str::to_string))
            }

            fn send_message(&self, py: Python<'_>, message: Vec<u8>) -> PyResult<()> {
                let stream = self.stream.get(py)?;
                self.raised.after(py, py.detach(|| stream.send_message(&message)))
            }

            fn message<'py>(&self, py: Python<'py>, timeout_s: f64) -> PyResult<Option<Bound<'py, PyBytes>>> {
                let stream = self.stream.get(py)?;
                let until = Instant::now() + seconds(timeout_s);
                loop {
                    let left = until.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
                    if let Some(bytes) = py.detach(|| stream.message(left)).or_raise(py)? {
                        return Ok(Some(PyBytes::new(py, &bytes)));
                    }
                    if let Err(raised) = py.check_signals() {
                        stream.handle().cancel();
                        return Err(raised);
                    }
                    if Instant::now() >= until {
                        return Ok(None);
                    }
                }
            }

            #[pyo3(signature = (policy, rate_bps, rate_min_bps))]
            fn set_rate(
                &self,
                py: Python<'_>,
                policy: &str,
                rate_bps: Option<u64>,
                rate_min_bps: Option<u64>,
            ) -> PyResult<()> {
                let rate = rate_options(py, policy, rate_bps, rate_min_bps)?;
                let stream = self.stream.get(py)?;
                py.detach(|| stream.set_rate(rate)).or_raise(py)
            }

            fn use_path(&self, py: Python<'_>, path: usize, is_used: bool) -> PyResult<()> {
                self.stream.get(py)?.use_path(path, is_used).or_raise(py)
            }

            fn snapshot(&self, py: Python<'_>) -> PyResult<String> {
                let stream = self.stream.get(py)?;
                let snapshot = py.detach(|| stream.handle().snapshot());
                serde_json::to_string(&snapshot).map_err(|error| PyValueError::new_err(error.to_string()))
            }

            fn cancel(&self, py: Python<'_>) -> PyResult<()> {
                self.stream.get(py)?.handle().cancel();
                Ok(())
            }
        }
    };
}

/// One end of a stream. Calls of several threads share it; closing takes it away.
struct StreamEnd<S: Send + Sync>(Owned<Mutex<Option<Arc<S>>>>);

impl<S: Send + Sync> StreamEnd<S> {
    fn new(stream: S) -> StreamEnd<S> {
        StreamEnd(Owned::new(Mutex::new(Some(Arc::new(stream)))))
    }

    fn get(&self, py: Python<'_>) -> PyResult<Arc<S>> {
        let stream = self.0.get(py)?.lock().unwrap_or_else(PoisonError::into_inner);
        stream.clone().ok_or_else(|| misuse(py, "this stream was closed"))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.0.get(py)?.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(stream));
        Ok(())
    }
}

/// The sending end of a stream.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct Sender {
    stream: StreamEnd<stream::StreamSender>,
    raised: Raised,
}

impl Sender {
    fn new(stream: stream::StreamSender) -> Sender {
        let (goes_on, raised) = watch_signals();
        stream.on_wait(goes_on);
        Sender { stream: StreamEnd::new(stream), raised }
    }
}

stream_methods!(Sender {
    /// Waits for a free block.
    fn claim(&self, py: Python<'_>) -> PyResult<ClaimedBlock> {
        let stream = self.stream.get(py)?;
        let block = match stream.try_claim() {
            Ok(None) => py.detach(|| stream.claim()),
            claimed => claimed.map(|block| block.expect("none was looked at before")),
        };
        Ok(ClaimedBlock::new(self.raised.after(py, block)?))
    }

    /// A block, if one is free now.
    fn try_claim(&self, py: Python<'_>) -> PyResult<Option<ClaimedBlock>> {
        Ok(self.stream.get(py)?.try_claim().or_raise(py)?.map(ClaimedBlock::new))
    }

    /// Sends the first `len` bytes of a block.
    fn put(
        &self,
        py: Python<'_>,
        block: &Bound<'_, ClaimedBlock>,
        len: usize,
        metadata: Vec<u8>,
    ) -> PyResult<u64> {
        let stream = self.stream.get(py)?;
        if metadata.len() > stream::METADATA_MAX {
            let what = format!("a block's metadata has at most {} bytes", stream::METADATA_MAX);
            return Err(misuse(py, what));
        }
        let block = block.get().take(py, len)?;
        self.raised.after(py, py.detach(|| stream.put(block, &metadata)))
    }

    /// Waits until the receiving program has let go of all blocks that were put before.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.stream.get(py)?;
        self.raised.after(py, py.detach(|| stream.wait()))
    }

    /// Ends the stream, and returns the figures of both ends as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let stream = self.stream.get(py)?;
        report_json(&self.raised.after(py, py.detach(|| stream.end()))?)
    }

    /// Breaks the stream off.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stream.close(py)
    }
});

/// The receiving end of a stream.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct Receiver {
    stream: StreamEnd<stream::StreamReceiver>,
    raised: Raised,
    /// Each block that Python has holds it, too.
    lent: Arc<()>,
}

impl Receiver {
    fn new(stream: stream::StreamReceiver) -> Receiver {
        let (goes_on, raised) = watch_signals();
        stream.on_wait(goes_on);
        Receiver { stream: StreamEnd::new(stream), raised, lent: Arc::default() }
    }
}

stream_methods!(Receiver {
    /// Waits for the next block; `None` if the sender has finished and there are no more.
    fn next(&self, py: Python<'_>) -> PyResult<Option<ReceivedBlock>> {
        let stream = self.stream.get(py)?;
        let block = self.raised.after(py, py.detach(|| stream.next()))?;
        Ok(block.map(|block| ReceivedBlock::new(block, self.lent.clone())))
    }

    /// Says that this program is done, and returns the figures of both ends as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let held = Arc::strong_count(&self.lent) - 1;
        if held > 0 {
            return Err(misuse(py, format!("{held} blocks of this stream are not released: finish would wait for them")));
        }
        let stream = self.stream.get(py)?;
        report_json(&self.raised.after(py, py.detach(|| stream.end()))?)
    }

    /// Breaks the stream off.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stream.close(py)
    }
});

#[pyfunction]
pub(crate) fn connect_to_send(py: Python<'_>, document: &str) -> PyResult<Sender> {
    let document = StreamDocument::read(document.as_bytes()).or_raise(py)?;
    let (target, options) = (document.target().or_raise(py)?, document.options());
    // There is no handle of a connection that is being made: it ends by itself.
    let stream = wait(py, || {}, move || stream::connect_to_send(&target, options))?.or_raise(py)?;
    Ok(Sender::new(stream))
}

#[pyfunction]
pub(crate) fn connect_to_receive(py: Python<'_>, document: &str) -> PyResult<Receiver> {
    let document = StreamDocument::read(document.as_bytes()).or_raise(py)?;
    let (target, options) = (document.target().or_raise(py)?, document.options());
    let stream = wait(py, || {}, move || stream::connect_to_receive(&target, options))?.or_raise(py)?;
    Ok(Receiver::new(stream))
}

/// Both ends in this process.
#[pyfunction]
pub(crate) fn pair(py: Python<'_>, document: &str) -> PyResult<(Sender, Receiver)> {
    let document = StreamDocument::read(document.as_bytes()).or_raise(py)?;
    let options = document.options();
    let (sender, receiver) = py.detach(|| stream::pair(options)).or_raise(py)?;
    Ok((Sender::new(sender), Receiver::new(receiver)))
}

/// The end of a stream as an object of Python.
fn accepted<'py>(py: Python<'py>, stream: AcceptedStream) -> PyResult<Bound<'py, PyAny>> {
    match stream {
        AcceptedStream::Sender(sender) => Ok(Bound::new(py, Sender::new(sender))?.into_any()),
        AcceptedStream::Receiver(receiver) => Ok(Bound::new(py, Receiver::new(receiver))?.into_any()),
    }
}

/// The stream of the client that started this program over ssh.
#[pyfunction]
pub(crate) fn accept_stdio(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let stream = wait(py, || {}, stream::accept_stdio)?.or_raise(py)?;
    accepted(py, stream)
}

/// Waits for streams on a port.
#[pyclass(frozen, module = "farhaul._native")]
pub(crate) struct Listener(Owned<stream::StreamListener>);

#[pyfunction]
pub(crate) fn listen(py: Python<'_>, document: &str) -> PyResult<Listener> {
    let options = ListenDocument::read(document.as_bytes()).and_then(|document| document.options());
    let options = options.or_raise(py)?;
    let listener = py.detach(|| stream::StreamListener::bind(options)).or_raise(py)?;
    Ok(Listener(Owned::new(listener)))
}

#[pymethods]
impl Listener {
    #[getter]
    fn addresses(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.0.get(py)?.local_addrs().iter().map(ToString::to_string).collect())
    }

    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.get(py)?.fingerprint().to_string())
    }

    /// Waits for the next stream; `None` if none comes in time.
    fn accept<'py>(&self, py: Python<'py>, timeout_s: f64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let listener = self.0.get(py)?;
        let until = Instant::now() + seconds(timeout_s);
        loop {
            let left = until.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
            if let Some(stream) = py.detach(|| listener.accept_timeout(left)).or_raise(py)? {
                return accepted(py, stream).map(Some);
            }
            py.check_signals()?;
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }
}
