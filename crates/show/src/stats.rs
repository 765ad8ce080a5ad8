//! Tells how a show stands: a process with streams listens on a private socket, and whoever connects gets one JSON
//! document.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul_http::PrivateSocket;

use crate::counts::{STATS_SCHEMA, ShowStats, StreamCounts, StreamRole};
use crate::plan::{is_name, runtime_directory};

/// The longest answer that is read.
const ANSWER_MAX: u64 = 16 << 20;
/// How long an asker may take to read the answer, and a process to give it.
const TALK_WAIT: Duration = Duration::from_secs(5);

/// The figures of all streams of this process.
#[derive(Debug, Clone)]
pub struct ShowFigures {
    /// The show's name.
    pub show: String,
    /// The streams.
    pub streams: Vec<Arc<StreamCounts>>,
}

impl ShowFigures {
    /// How the show stands now.
    pub fn stats(&self) -> ShowStats {
        ShowStats {
            schema: STATS_SCHEMA.into(),
            show: self.show.clone(),
            pid: std::process::id(),
            streams: self.streams.iter().map(|counts| counts.stats()).collect(),
        }
    }
}

/// Answers until it is dropped.
#[derive(Debug)]
pub struct StatsServer {
    path: std::path::PathBuf,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StatsServer {
    /// Begins to answer for a show whose process has this role.
    pub fn start(figures: ShowFigures, role: StreamRole) -> Result<StatsServer, Error> {
        is_name(&figures.show)?;
        let path = runtime_directory().join(socket_name(&figures.show, role));
        let socket = PrivateSocket::listen(&path).map_err(|error| match error.code() {
            Code::AlreadyRuns => {
                let what = format!("a process with streams of the name {} runs already", figures.show);
                Error::new(Code::AlreadyRuns, what).with_hint("give this one another `name`")
            }
            _ => error,
        })?;
        let ends = Arc::new(AtomicBool::new(false));
        let seen = ends.clone();
        let answer = move || {
            while let Ok((stream, _)) = socket.listener.accept() {
                if seen.load(Ordering::Acquire) {
                    break;
                }
                // An asker that goes, or does not read, has no answer.
                let _ = answer(stream, &figures);
            }
        };
        let thread =
            std::thread::Builder::new().name("stats".into()).spawn(answer).map_err(Error::no_thread)?;
        Ok(StatsServer { path, ends, thread: Some(thread) })
    }
}

fn answer(mut stream: UnixStream, figures: &ShowFigures) -> std::io::Result<()> {
    stream.set_write_timeout(Some(TALK_WAIT))?;
    let text = serde_json::to_vec(&figures.stats())?;
    stream.write_all(&text)
}

impl Drop for StatsServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        let thread = self.thread.take();
        // The thread waits for an asker; this one wakes it. If nobody can connect any more, it ends with the process.
        if let Some(thread) = thread.filter(|_| UnixStream::connect(&self.path).is_ok()) {
            let _ = thread.join();
        }
    }
}

fn socket_name(show: &str, role: StreamRole) -> String {
    match role {
        StreamRole::Send => format!("{show}.send.sock"),
        StreamRole::Recv => format!("{show}.recv.sock"),
    }
}

/// Asks all processes of this user that have streams of this name.
pub fn ask_stats(show: &str) -> Result<Vec<ShowStats>, Error> {
    is_name(show)?;
    let mut found = Vec::new();
    for role in [StreamRole::Send, StreamRole::Recv] {
        let path = runtime_directory().join(socket_name(show, role));
        let mut stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                continue;
            }
            Err(error) => {
                let what = format!("cannot ask at {}", path.display());
                return Err(Error::with_source(Code::of_files(&error), what, error));
            }
        };
        let mut text = Vec::new();
        let read = stream.set_read_timeout(Some(TALK_WAIT));
        let read = read.and_then(|()| (&mut stream).take(ANSWER_MAX).read_to_end(&mut text));
        let stats = read.and_then(|_| serde_json::from_slice(&text).map_err(std::io::Error::from));
        found.push(stats.map_err(|error| {
            Error::with_source(
                Code::NoService,
                format!("no answer that makes sense comes from {}", path.display()),
                error,
            )
        })?);
    }
    match found.is_empty() {
        false => Ok(found),
        true => Err(Error::new(Code::NoService, format!("no process of this user has streams of the name {show}"))
            .with_hint("name the show, or the stream if it was begun alone, of a `farhaul stream send` or `farhaul stream recv` that runs")),
    }
}
