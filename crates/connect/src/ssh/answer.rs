//! A question and its answer through the pipes of ssh: sends one frame and reads one, as long as the requester
//! and the far end allow.
//!
//! Always true: the wait ends soon after its requester has cancelled. Time in which ssh asks its user for
//! something does not count. A far end that does not read its pipe can still be heard.

use std::fs;
use std::io::{self, Read, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use farhaul_text::printable;
use farhaul_words::Event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::super::dial_requester::{DialRequester, LOOK_EVERY};
use super::super::hello::{self, HelloError};

/// After this long without an answer the user is told, as the far end may wait for something that he does not
/// see.
const TELL_AFTER: Duration = Duration::from_secs(5);
/// Text in place of an answer is complete when nothing more has come for this long.
const TEXT_TIME: Duration = Duration::from_secs(1);
/// The most bytes of such a text that are kept.
const TEXT_MAX: usize = 120;
/// The most time that one step counts, as this process may have been stopped for a while.
const STEP_MAX: Duration = Duration::from_secs(1);

/// The requester of a question, the host that is asked, and the time to wait.
#[derive(Clone, Copy)]
pub(crate) struct Wait<'a> {
    pub(crate) requester: &'a dyn DialRequester,
    /// The host as the user named it.
    pub(crate) host: &'a str,
    /// The id of the ssh process.
    pub(crate) ssh: u32,
    /// How long the answer may take; `None` for no limit.
    pub(crate) most: Option<Duration>,
}

/// Why the wait has ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    CalledOff,
    TookTooLong,
}

/// The result of a question.
pub(crate) enum Answer {
    Frame(zeroize::Zeroizing<Vec<u8>>),
    None(Ending),
}

/// Sends `frame` and reads the answer.
pub(crate) fn ask(
    (stdin, stdout): (&mut ChildStdin, &mut ChildStdout),
    frame: &[u8],
    wait: Wait<'_>,
) -> Result<Answer, HelloError> {
    let mut exchange = Exchange::new((stdin, stdout), frame, wait)?;
    let read = hello::read_frame(&mut exchange);
    if let Some(ending) = exchange.ending {
        return Ok(Answer::None(ending));
    }
    let body = read?;
    // A far end that could not start has closed its pipe; what it has printed says more than this error.
    match exchange.unsendable {
        Some(error) => Err(error.into()),
        None => Ok(Answer::Frame(body)),
    }
}

/// Reads what the far end says, and sends meanwhile what it is to hear.
pub(crate) struct Exchange<'a> {
    stdin: &'a mut ChildStdin,
    stdout: &'a mut ChildStdout,
    unsent: &'a [u8],
    unsendable: Option<io::Error>,
    wait: Wait<'a>,
    waited: Duration,
    looked: Instant,
    is_told: bool,
    text: Text,
    ending: Option<Ending>,
}

/// Text that has come in place of a frame, so far.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// How long nothing more has come.
    rested: Duration,
}

impl Read for Exchange<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.wait.requester.is_cancelled() {
                return Err(self.end(Ending::CalledOff));
            }
            if self.look()? {
                let count = self.stdout.read(into)?;
                self.note(&into[..count]);
                return Ok(count);
            }
            if !self.text.bytes.is_empty() && self.text.rested >= TEXT_TIME {
                return Ok(0);
            }
            if self.wait.most.is_some_and(|most| self.waited >= most) {
                return Err(self.end(Ending::TookTooLong));
            }
        }
    }
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        (stdin, stdout): (&'a mut ChildStdin, &'a mut ChildStdout),
        unsent: &'a [u8],
        wait: Wait<'a>,
    ) -> io::Result<Exchange<'a>> {
        // Nobody else uses this end of the pipe.
        let flags = fcntl_getfl(stdin.as_fd())?;
        fcntl_setfl(stdin.as_fd(), flags | OFlags::NONBLOCK)?;
        Ok(Exchange {
            stdin,
            stdout,
            unsent,
            unsendable: None,
            wait,
            waited: Duration::ZERO,
            looked: Instant::now(),
            is_told: false,
            text: Text::default(),
            ending: None,
        })
    }

    /// Why a read has failed, unless the channel has.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }
}

impl Exchange<'_> {
    fn end(&mut self, ending: Ending) -> io::Error {
        self.ending = Some(ending);
        io::ErrorKind::TimedOut.into()
    }

    /// Sends what can be sent; returns whether there is something to read.
    fn look(&mut self) -> io::Result<bool> {
        let is_sending = !self.unsent.is_empty();
        let mut fds = vec![PollFd::new(&*self.stdout, PollFlags::IN)];
        if is_sending {
            fds.push(PollFd::new(&*self.stdin, PollFlags::OUT));
        }
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (can_read, can_write) =
            (!fds[0].revents().is_empty(), fds.get(1).is_some_and(|fd| !fd.revents().is_empty()));
        drop(fds);
        if can_write {
            self.send();
        }
        if !can_read {
            self.pass_time();
        }
        Ok(can_read)
    }

    fn send(&mut self) {
        match self.stdin.write(self.unsent) {
            Ok(count) => {
                self.unsent = &self.unsent[count..];
                // A far end that takes what it is sent is not waited for.
                self.looked = Instant::now();
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                self.unsent = &[];
                self.unsendable = Some(error);
            }
        }
    }

    /// Keeps the beginning of text that is no frame.
    fn note(&mut self, bytes: &[u8]) {
        self.looked = Instant::now();
        let is_text =
            !self.text.bytes.is_empty() || bytes.first().is_some_and(|&first| hello::is_text(first));
        if is_text {
            let room = TEXT_MAX.saturating_sub(self.text.bytes.len());
            self.text.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.text.rested = Duration::ZERO;
        }
    }

    fn pass_time(&mut self) {
        let passed = std::mem::replace(&mut self.looked, Instant::now()).elapsed().min(STEP_MAX);
        self.text.rested += passed;
        if is_asking(self.wait.ssh) {
            return;
        }
        self.waited += passed;
        if self.waited >= TELL_AFTER && !self.is_told {
            self.is_told = true;
            let peer = printable(self.wait.host.as_bytes(), 255);
            self.wait.requester.tell(Event::AnswerAwaited { peer, seconds: self.waited.as_secs() });
        }
    }
}

/// Returns whether ssh asks its user for something, or a program that it has started does (such as the ssh to
/// a jump host): the process has the terminal open for that time only.
fn is_asking(process: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.any(|target| target == Path::new("/dev/tty")) || children(process).into_iter().any(is_asking)
}

/// The children of a process; empty if the kernel does not say.
fn children(process: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_terminal_open_asks() {
        assert!(!is_asking(std::process::id()));
        let Ok(_terminal) = fs::File::open("/dev/tty") else { return };
        assert!(is_asking(std::process::id()));
    }
}
