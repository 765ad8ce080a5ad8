//! Runs a program of the configuration: gives it JSON on standard input, keeps its output for the log, and
//! kills it at its limit.
//!
//! Always true: no shell is involved; the program starts with descriptors 0, 1 and 2 only, default signals, a
//! cleared environment, `/` as its directory and a process group of its own; when [`run`] returns, the
//! program is reaped and its group is empty. A process that has left the group (`setsid`) stays alive: this
//! is how a program leaves a process behind on purpose.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::errors::Code;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use serde::{Deserialize, Serialize};

/// How many bytes of a program's output are kept: the last ones, where errors stand.
pub const OUTPUT_MAX: usize = 16 << 10;
/// How long a program may take to exit after SIGTERM before it gets SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// How often a running program is asked for whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a program is looked at whose end the kernel cannot tell.
const LOOK_OFTEN: Duration = Duration::from_millis(20);
/// How many bytes are read at a time: as many as a pipe holds.
const PIECE: usize = 64 << 10;
/// The most bytes that are read after the program's end: a process that has left the group could write
/// forever.
const REST_MAX: usize = 1 << 20;
/// The most arguments of a program. More are probably a mistake.
const ARGS_MAX: usize = 256;
/// The `PATH` of programs if this process has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program and its arguments, as the configuration has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// An absolute path.
    pub program: PathBuf,
    /// The arguments. They are passed on as they are: nothing expands them.
    #[serde(default)]
    pub args: Vec<String>,
}

/// How a run of a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramEnd {
    /// The exit code; `None` if a signal ended the program.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// True if it was killed because it ran longer than its limit.
    pub timed_out: bool,
    /// True if it was killed because somebody asked for it ([`ProgramStop`]).
    pub stopped: bool,
    /// The last bytes of its standard output and standard error, in the order in which they came.
    pub output: Vec<u8>,
    /// The number of all bytes that it wrote, kept or not.
    pub output_bytes: u64,
    /// How long it ran.
    pub took: Duration,
}

impl ProgramEnd {
    /// True if it exited with 0 by itself.
    pub fn is_success(&self) -> bool {
        self.status == Some(0) && !self.timed_out && !self.stopped
    }

    /// How it ended, in words for the log.
    pub fn verdict(&self) -> String {
        let took = self.took.as_secs_f64();
        match (self.timed_out, self.stopped, self.status, self.signal) {
            (true, ..) => format!("killed at its limit, after {took:.1} s"),
            (_, true, ..) => format!("stopped after {took:.1} s"),
            (_, _, Some(status), _) => format!("exited with {status} after {took:.1} s"),
            (_, _, None, Some(signal)) => format!("ended by signal {signal} after {took:.1} s"),
            (_, _, None, None) => format!("ended in an unknown way after {took:.1} s"),
        }
    }
}

/// Ends a running program early, from another thread. Clones stop the same programs.
#[derive(Debug, Clone)]
pub struct ProgramStop(Arc<OwnedFd>);

impl ProgramStop {
    /// A stop that nobody has used yet.
    pub fn new() -> io::Result<ProgramStop> {
        Ok(ProgramStop(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Sends SIGTERM to the program now, and SIGKILL later if that does not end it. Programs that start
    /// afterwards are stopped, too.
    pub fn stop(&self) {
        // This can fail only after 2^64 calls.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl Program {
    /// Checks what does not depend on the disk.
    pub fn check(&self) -> Result<(), Error> {
        let fault = if !self.program.is_absolute() {
            "is not an absolute path"
        } else if self.args.len() > ARGS_MAX {
            "has too many arguments"
        } else if self.args.iter().any(|arg| arg.contains('\0')) {
            "has an argument with a zero byte"
        } else {
            return Ok(());
        };
        Err(Error::new(Code::BadOption, format!("the hook's program {} {fault}", self.program.display())))
    }

    /// Checks the file before it is run, as `exec` gives only an error number.
    fn look(&self) -> Result<(), Error> {
        let path = self.program.display();
        let meta = std::fs::metadata(&self.program).map_err(|error| cannot_run(&self.program, error))?;
        let refuse = |what: &str| Err(Error::new(Code::BadOption, format!("cannot run {path}: {what}")));
        match meta.permissions().mode() {
            _ if !meta.is_file() => refuse("it is not a file"),
            mode if mode & 0o111 == 0 => refuse("it is not executable"),
            mode if mode & 0o002 != 0 => refuse("anybody may write to it"),
            _ => Ok(()),
        }
    }
}

fn cannot_run(program: &Path, error: io::Error) -> Error {
    Error::with_source(Code::BadOption, format!("cannot run {}", program.display()), error)
}

/// Runs a program to its end. `variables` are put into its environment; their names begin with `FARHAUL_`.
///
/// It is an error if the program cannot be started. Whatever it does after that is a [`ProgramEnd`].
pub fn run(
    program: &Program,
    input: &serde_json::Value,
    variables: &[(String, String)],
    limit: Duration,
    stop: Option<&ProgramStop>,
) -> Result<ProgramEnd, Error> {
    program.check()?;
    let mut input = serde_json::to_vec(input).map_err(|error| Error::bug(format!("hooks: {error}")))?;
    input.push(b'\n');
    let passed = PassedFiles { files: Vec::new(), input: &|_| input.clone() };
    run_with(
        program,
        passed,
        variables,
        limit,
        RunWatch { stop, is_wanted: &|| true, output_max: OUTPUT_MAX },
    )
}

/// What a program gets beside its arguments and its environment.
pub struct PassedFiles<'a> {
    /// Descriptors that it has under the numbers that they have here.
    pub files: Vec<OwnedFd>,
    /// Makes its standard input from the id of its process.
    pub input: &'a dyn Fn(u32) -> Vec<u8>,
}

/// How a program is watched while it runs.
#[derive(Clone, Copy)]
pub struct RunWatch<'a> {
    /// Ends it early.
    pub stop: Option<&'a ProgramStop>,
    /// Asked several times a second: once this is false, the program is stopped as by [`ProgramStop`].
    pub is_wanted: &'a dyn Fn() -> bool,
    /// How many bytes of its output are kept.
    pub output_max: usize,
}

/// As [`run`], with files that the program reads.
pub fn run_with(
    program: &Program,
    passed: PassedFiles<'_>,
    variables: &[(String, String)],
    limit: Duration,
    watch: RunWatch<'_>,
) -> Result<ProgramEnd, Error> {
    program.look()?;
    let failed = Error::io("cannot make a pipe for a hook");
    let (output, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let started = Instant::now();
    let mut child = start(program, variables, writer, passed.files)?;
    let input = (passed.input)(child.id());
    let finished = RunningProgram::new(&mut child, output, input, started)
        .map_err(|error| Error::of_host(format!("cannot run {}", program.program.display()), error))
        .map(|running| running.attend(limit, watch));
    match finished {
        Ok(tail) => reap(child, tail, started),
        Err(error) => {
            abandon(&mut child);
            Err(error)
        }
    }
}

fn start(
    program: &Program,
    variables: &[(String, String)],
    writer: OwnedFd,
    passed: Vec<OwnedFd>,
) -> Result<Child, Error> {
    let again = writer.try_clone().map_err(Error::io("cannot make a pipe for a hook"))?;
    let mut command = Command::new(&program.program);
    command
        .args(&program.args)
        .env_clear()
        .envs(environment(std::env::vars_os(), variables))
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(again);
    farhaul_child::inherit_only(&mut command, passed)
        .spawn()
        .map_err(|error| cannot_run(&program.program, error))
}

/// The environment of a program: of our own variables `PATH`, the language and the home, and then the given
/// variables.
fn environment(
    ours: impl Iterator<Item = (OsString, OsString)>,
    variables: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsString| {
        name.to_str().is_some_and(|name| ["PATH", "HOME", "LANG"].contains(&name) || name.starts_with("LC_"))
    };
    let mut all = vec![(OsString::from("PATH"), OsString::from(PATH))];
    all.extend(ours.filter(|(name, _)| passes(name)));
    // The program could not be started with a zero byte in a value.
    let told = variables.iter().filter(|(name, value)| {
        debug_assert!(name.starts_with("FARHAUL_"), "hooks set only variables of Farhaul");
        !name.contains(['\0', '=']) && !value.contains('\0')
    });
    all.extend(told.map(|(name, value)| (name.into(), value.into())));
    all
}

/// Kills the group and reaps the program if its input and output cannot be served.
fn abandon(child: &mut Child) {
    if let Some(group) = group_of(child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

fn group_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn reap(mut child: Child, tail: ProgramResult, started: Instant) -> Result<ProgramEnd, Error> {
    let status = child.wait().map_err(Error::io("cannot learn how a hook ended"))?;
    Ok(ProgramEnd {
        status: status.code(),
        signal: status.signal(),
        timed_out: tail.timed_out,
        stopped: tail.stopped,
        output: tail.output.bytes,
        output_bytes: tail.output.count,
        took: started.elapsed(),
    })
}

/// The last bytes of an output that comes in pieces.
#[derive(Debug)]
struct Tail {
    bytes: Vec<u8>,
    count: u64,
    /// How many bytes are kept in the end.
    len_max: usize,
}

impl Tail {
    /// Holds at most twice as many bytes as are kept in the end, so that bytes are seldom moved.
    fn push(&mut self, piece: &[u8]) {
        self.count += piece.len() as u64;
        let piece = &piece[piece.len().saturating_sub(self.len_max)..];
        if self.bytes.len() + piece.len() > 2 * self.len_max {
            self.trim(self.len_max - piece.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    fn trim(&mut self, len: usize) {
        self.bytes.drain(..self.bytes.len().saturating_sub(len));
    }
}

/// How far a program has come towards its end.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// It may run until this time.
    Running(Instant),
    /// It has got SIGTERM; at this time it gets SIGKILL.
    Asked(Instant),
    /// It has got SIGKILL, and ends unless the kernel delays it.
    Killed,
}

/// The result of a program that has ended, but is not reaped yet.
struct ProgramResult {
    output: Tail,
    timed_out: bool,
    stopped: bool,
}

struct RunningProgram {
    group: Pid,
    /// Becomes readable when the program ends; without it, the program is looked at often.
    process: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    output: Option<OwnedFd>,
    input: Vec<u8>,
    /// How many bytes of the input are written.
    written: usize,
    started: Instant,
    tail: ProgramResult,
}

impl RunningProgram {
    fn new(
        child: &mut Child,
        output: OwnedFd,
        input: Vec<u8>,
        started: Instant,
    ) -> io::Result<RunningProgram> {
        let group = group_of(child).ok_or(io::ErrorKind::InvalidData)?;
        let process = match pidfd_open(group, PidfdFlags::empty()) {
            // Kernels before 5.3 lack the call, and the filter of a container may refuse it.
            Err(Errno::NOSYS | Errno::PERM) => None,
            opened => Some(opened?),
        };
        let stdin = child.stdin.take().map(OwnedFd::from);
        for end in stdin.iter().chain([&output]) {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        let output_tail = Tail { bytes: Vec::new(), count: 0, len_max: OUTPUT_MAX };
        let tail = ProgramResult { output: output_tail, timed_out: false, stopped: false };
        Ok(RunningProgram { group, process, stdin, output: Some(output), input, written: 0, started, tail })
    }

    /// Writes its input and reads its output until it ends; then kills what is left of its group.
    fn attend(mut self, limit: Duration, watch: RunWatch<'_>) -> ProgramResult {
        self.tail.output.len_max = watch.output_max;
        // A limit that the clock cannot hold is replaced by a year.
        let far = self.started + Duration::from_secs(365 * 24 * 3600);
        let mut phase = Phase::Running(self.started.checked_add(limit).unwrap_or(far).min(far));
        loop {
            let seen = self.wait(phase, watch.stop);
            if seen.writable {
                self.feed();
            }
            if seen.readable {
                self.listen(PIECE);
            }
            if seen.ended {
                break;
            }
            phase = self.next(phase, seen.stopped || !(watch.is_wanted)(), Instant::now());
        }
        // The program is not reaped yet, so no other group can have the same id.
        let _ = kill_process_group(self.group, Signal::KILL);
        self.listen(REST_MAX);
        self.tail.output.trim(watch.output_max);
        self.tail
    }

    fn next(&mut self, phase: Phase, stopped: bool, now: Instant) -> Phase {
        match phase {
            Phase::Running(until) if stopped || now >= until => {
                self.tail.stopped = stopped;
                self.tail.timed_out = !stopped;
                let _ = kill_process_group(self.group, Signal::TERM);
                // A program stopped by SIGSTOP handles SIGTERM only after SIGCONT.
                let _ = kill_process_group(self.group, Signal::CONT);
                Phase::Asked(now + GRACE)
            }
            Phase::Asked(until) if now >= until => {
                let _ = kill_process_group(self.group, Signal::KILL);
                Phase::Killed
            }
            Phase::Running(_) | Phase::Asked(_) | Phase::Killed => phase,
        }
    }

    /// Sleeps until a descriptor is ready or the phase ends.
    fn wait(&self, phase: Phase, stop: Option<&ProgramStop>) -> PollResult {
        let until = |until: Instant| until.saturating_duration_since(Instant::now());
        let phase_end = match phase {
            Phase::Running(at) => Some(until(at).min(LOOK_EVERY)),
            Phase::Asked(at) => Some(until(at)),
            Phase::Killed => None,
        };
        let look = self.process.is_none().then_some(LOOK_OFTEN);
        let timeout = phase_end.into_iter().chain(look).min().and_then(|wait| Timespec::try_from(wait).ok());
        let stop = stop.filter(|_| matches!(phase, Phase::Running(_)));
        let wanted = [
            self.process.as_ref().map(|process| (process.as_fd(), PollFlags::IN)),
            self.stdin.as_ref().map(|stdin| (stdin.as_fd(), PollFlags::OUT)),
            self.output.as_ref().map(|output| (output.as_fd(), PollFlags::IN)),
            stop.map(|stop| (stop.0.as_fd(), PollFlags::IN)),
        ];
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(wanted.len());
        let places = wanted.map(|one: Option<(BorrowedFd<'_>, PollFlags)>| {
            one.map(|(descriptor, flags)| {
                polled.push(PollFd::from_borrowed_fd(descriptor, flags));
                polled.len() - 1
            })
        });
        // `poll` can fail by an interruption or for lack of kernel memory: then nothing is ready.
        let ready = poll(&mut polled, timeout.as_ref()).unwrap_or(0) > 0;
        let is =
            |place: Option<usize>| ready && place.is_some_and(|place| !polled[place].revents().is_empty());
        let [process, writable, readable, stopped] = places.map(is);
        let ended = (process || self.process.is_none()) && self.has_ended();
        PollResult { ended, writable, readable, stopped }
    }

    /// True if the program has ended. Does not reap it.
    fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(self.group), look), Ok(None) | Err(Errno::INTR))
    }

    /// Writes as much as the pipe takes. If the program has closed its input, the rest is dropped.
    fn feed(&mut self) {
        let Some(stdin) = &self.stdin else { return };
        match rustix::io::write(stdin, &self.input[self.written..]) {
            Ok(written) => self.written += written,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => self.written = self.input.len(),
        }
        if self.written >= self.input.len() {
            self.stdin = None;
        }
    }

    /// Reads what is there, up to `len_max` bytes.
    fn listen(&mut self, len_max: usize) {
        let mut piece = [0; 4096];
        let mut read = 0;
        while let Some(output) = self.output.as_ref().filter(|_| read < len_max) {
            match rustix::io::read(output, &mut piece) {
                Ok(0) => self.output = None,
                Ok(len) => {
                    self.tail.output.push(&piece[..len]);
                    read += len;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.output = None,
            }
        }
    }
}

/// The result of `poll`.
struct PollResult {
    ended: bool,
    writable: bool,
    readable: bool,
    stopped: bool,
}

#[cfg(test)]
mod tests;
