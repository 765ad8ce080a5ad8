//! The access log: a line of JSON for each answer, written by a thread of its own.
//!
//! Always true: no request waits for the log. Lines for which the queue has no room are lost, and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::response::Response;
use farhaul_http::RequestOrigin;
use farhaul_words::Error;
use serde::Serialize;

use crate::metrics::Metrics;

/// How many lines may wait for the disk.
const WAITING_MAX: usize = 8192;
/// How often it is looked whether somebody has renamed the file, to begin another one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the last lines may take.
const FINISH_WITHIN: Duration = Duration::from_secs(1);
/// The longest address that is written.
const ADDRESS_MAX: usize = 4096;

#[derive(Debug, Serialize)]
struct Line {
    time: String,
    client: String,
    reader: String,
    method: &'static str,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    status: u16,
    /// Of the body, as far as the connection has taken it.
    bytes: u64,
    seconds: f64,
    /// Whether the answer has ended as it had begun.
    whole: bool,
}

/// The log, or nothing if none is wanted. The thread ends with the last sender.
pub(crate) struct AccessLog {
    lines: Option<SyncSender<Line>>,
    metrics: Arc<Metrics>,
}

/// The thread that writes.
pub(crate) struct LogWriter(Option<JoinHandle<()>>);

impl LogWriter {
    /// Waits until all lines are written. A request that still waits for the far end keeps the log open, and is not
    /// waited for.
    pub(crate) fn finish(self) {
        let end = Instant::now() + FINISH_WITHIN;
        while self.0.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl AccessLog {
    pub(crate) fn open(path: Option<&Path>, metrics: Arc<Metrics>) -> Result<(AccessLog, LogWriter), Error> {
        let Some(path) = path else { return Ok((AccessLog { lines: None, metrics }, LogWriter(None))) };
        let cannot = Error::io(format!("cannot write {}", path.display()));
        let file = open(path).map_err(cannot)?;
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let path = path.to_path_buf();
        let write = move || write_all(&waiting, &path, file);
        let thread =
            std::thread::Builder::new().name("access-log".into()).spawn(write).map_err(Error::no_thread)?;
        Ok((AccessLog { lines: Some(lines), metrics }, LogWriter(Some(thread))))
    }

    /// Watches an answer until it is over.
    pub(crate) fn watch(self: &Arc<AccessLog>, asked: Asked, response: Response) -> Response {
        self.metrics.answer_begins();
        let status = response.status().as_u16();
        let log = self.clone();
        let length = response.headers().get(header::CONTENT_LENGTH);
        let expected = length.and_then(|length| length.to_str().ok()?.parse().ok());
        response.map(|body| {
            let is_whole = body.is_end_stream();
            Body::new(WatchedBody { body, log, asked, status, expected, bytes: 0, is_whole })
        })
    }
}

/// What is written about a request.
pub(crate) struct Asked {
    begun: Instant,
    method: &'static str,
    client: String,
    address: String,
    range: Option<String>,
    pub(crate) reader: String,
}

impl Asked {
    pub(crate) fn of(parts: &Parts) -> Asked {
        let method = match &parts.method {
            method if *method == Method::GET => "GET",
            method if *method == Method::HEAD => "HEAD",
            method if *method == Method::OPTIONS => "OPTIONS",
            method if method.as_str() == "PROPFIND" => "PROPFIND",
            // A client may send any word.
            _ => "other",
        };
        let short = |text: &str| text.chars().take(ADDRESS_MAX).collect::<String>();
        Asked {
            begun: Instant::now(),
            method,
            client: RequestOrigin::of(parts).address().map_or_else(|| "unix".into(), |at| at.to_string()),
            address: short(parts.uri.path()),
            range: parts.headers.get(header::RANGE).and_then(|range| range.to_str().ok()).map(short),
            reader: String::new(),
        }
    }
}

struct WatchedBody {
    body: Body,
    log: Arc<AccessLog>,
    asked: Asked,
    status: u16,
    /// The length that the head of the answer has promised. Nobody asks for what would come after it.
    expected: Option<u64>,
    bytes: u64,
    is_whole: bool,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            None => self.is_whole = true,
            Some(Ok(frame)) => {
                self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.is_whole = self.body.is_end_stream() || self.expected == Some(self.bytes);
            }
            Some(Err(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        let Asked { begun, method, .. } = self.asked;
        self.log.metrics.answer_ends(method, self.status, self.bytes);
        let Some(lines) = &self.log.lines else { return };
        let asked = &mut self.asked;
        let line = Line {
            time: jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default().to_string(),
            client: std::mem::take(&mut asked.client),
            reader: std::mem::take(&mut asked.reader),
            method,
            address: std::mem::take(&mut asked.address),
            range: asked.range.take(),
            status: self.status,
            bytes: self.bytes,
            seconds: (begun.elapsed().as_secs_f64() * 1e6).round() / 1e6,
            whole: self.is_whole,
        };
        if lines.try_send(line).is_err() {
            self.log.metrics.log_lost();
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

fn write_all(waiting: &Receiver<Line>, path: &PathBuf, mut file: File) {
    let mut text = Vec::new();
    let mut looked = Instant::now();
    loop {
        match waiting.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                // What waits is written at once.
                for line in std::iter::once(line).chain(waiting.try_iter().take(WAITING_MAX)) {
                    if serde_json::to_writer(&mut text, &line).is_ok() {
                        text.push(b'\n');
                    }
                }
                // A full disk loses lines, and nothing else suffers.
                let _ = file.write_all(&text);
                text.clear();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            let own = file.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
            let named = std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
            if own != named
                && let Ok(again) = open(path)
            {
                file = again;
            }
        }
    }
}
