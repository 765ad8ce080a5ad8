//! ssh's own messages, for a process that nobody watches: they still reach its standard error, and the last of
//! them become a part of the error.
//!
//! Always true: a bounded number of lines of bounded length is kept. Nothing waits for long for messages, as a
//! connection that ssh shares may keep the pipe open.

use std::collections::VecDeque;
use std::io::{self, Read, Write as _};
use std::process::ChildStderr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use farhaul_handover::Held as _;
use farhaul_text::printable;
use farhaul_words::Error;

/// The most lines that are kept: ssh says in one or two why it has failed.
const LINES_MAX: usize = 3;
/// The most characters of a line that are kept.
const LINE_MAX: usize = 200;
/// How long messages that ssh has written before its end may take to be read.
const READ_TIME: Duration = Duration::from_secs(1);

/// Who hears what ssh says on its standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SshMessages {
    /// ssh writes to this process's standard error itself. For programs with a user who reads it.
    #[default]
    Shown,
    /// They pass through this process to its standard error, and the last lines of an ssh that could not
    /// connect are in the error. For programs whose errors are read elsewhere.
    Kept,
}

/// The last messages of one ssh.
pub(crate) struct MessageTail {
    lines: Arc<Mutex<LastLines>>,
    /// Disconnected once all messages have been read.
    end: Receiver<()>,
}

impl MessageTail {
    /// Begins to read them, on a thread of its own, until nobody can write any more.
    pub(crate) fn begin(mut stderr: ChildStderr) -> Result<MessageTail, Error> {
        let lines = Arc::new(Mutex::new(LastLines::default()));
        let (reader, end) = bounded::<()>(0);
        let shared = Arc::clone(&lines);
        let read = move || {
            let _reader = reader;
            let mut buffer = [0; 4096];
            loop {
                match stderr.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => {
                        shared.lock().in_any_case().add(&buffer[..count]);
                        // Whoever has closed this process's standard error does not want them.
                        let _ = io::stderr().write_all(&buffer[..count]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        };
        std::thread::Builder::new().name("ssh-messages".into()).spawn(read).map_err(Error::no_thread)?;
        Ok(MessageTail { lines, end })
    }

    /// The last messages of an ssh that has ended, as one line of printable text; empty if there are none.
    pub(crate) fn text(&self) -> String {
        // Nothing is ever sent, so this waits for the end or for the time.
        let _ = self.end.recv_timeout(READ_TIME);
        self.lines.lock().in_any_case().text()
    }
}

/// The last lines of what was added.
#[derive(Default)]
struct LastLines {
    whole: VecDeque<Vec<u8>>,
    /// The beginning of the line that has no end yet.
    last: Vec<u8>,
}

impl LastLines {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' | b'\r' => self.end_line(),
                // Four bytes are the most that a character has.
                _ if self.last.len() < 4 * LINE_MAX => self.last.push(byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.last);
        if is_message(&line) {
            if self.whole.len() == LINES_MAX {
                self.whole.pop_front();
            }
            self.whole.push_back(line);
        }
    }

    fn text(&self) -> String {
        let last = Some(&self.last).filter(|line| is_message(line));
        let lines: Vec<String> =
            self.whole.iter().chain(last).map(|line| printable(line.trim_ascii(), LINE_MAX)).collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].join("; ")
    }
}

/// Returns whether a line says something: ssh frames its warnings with empty lines and rows of `@`.
fn is_message(line: &[u8]) -> bool {
    line.iter().any(|byte| !byte.is_ascii_whitespace() && *byte != b'@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(parts: &[&[u8]]) -> String {
        let mut lines = LastLines::default();
        parts.iter().for_each(|part| lines.add(part));
        lines.text()
    }

    #[test]
    fn the_last_lines_are_kept_bounded_and_printable() {
        for (parts, expected) in [
            (&[&b""[..]][..], ""),
            (&[b"ssh: Could not resolve ", b"hostname h: no\r\n"], "ssh: Could not resolve hostname h: no"),
            (&[b"1\n2\n3\n\n4\n"], "2; 3; 4"),
            (&[b"1\n2\n3\n4"], "2; 3; 4"),
            (&[b"@@@@@@@\n  changed! \n@@@@\n\r\n"], "changed!"),
            (&[b"a\x1b[31mb\xff\n"], "a [31mb\u{fffd}"),
        ] {
            assert_eq!(text_of(parts), expected, "{parts:?}");
        }
        let long =
            text_of(&[&[b'x'; 5000], b"\n", &[b'y'; 5000], b"\n", &[b'z'; 5000], b"\n", &[b'q'; 5000]]);
        assert_eq!(long.len(), LINES_MAX * LINE_MAX + 4, "{long}");
    }
}
