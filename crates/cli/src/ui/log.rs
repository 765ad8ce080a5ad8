//! The log: `FARHAUL_LOG` chooses what is in it, in the syntax of tracing's filters.
//!
//! Always true: what peers say cannot steer the terminal on which the log is read, so it has no colours of its own either.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use super::printer::{harmless, harmless_json};

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_env("FARHAUL_LOG").unwrap_or_else(|_| EnvFilter::new(default))
}

/// Lines of text on stderr.
pub fn to_stderr(default: &str) {
    let writer = || Lines { to: io::stderr(), made: harmless };
    let log = tracing_subscriber::fmt().with_env_filter(filter(default)).with_writer(writer).with_ansi(false);
    // It fails only where a log is set up already, and then that one serves.
    let _ = log.with_target(false).try_init();
}

/// An object a line on stdout.
pub fn json_to_stdout(default: &str) {
    let writer = || Lines { to: io::stdout(), made: harmless_json };
    let _ = tracing_subscriber::fmt().json().with_env_filter(filter(default)).with_writer(writer).try_init();
}

/// Makes each line harmless. An event comes in one piece, with its line end.
struct Lines<W> {
    to: W,
    made: fn(&str) -> String,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
        self.to.write_all(format!("{}{end}", (self.made)(line)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_stays_on_its_line() {
        let mut lines = Lines { to: Vec::new(), made: harmless };
        lines.write_all("a\u{1b}[2J\nb \u{202e}x\n".as_bytes()).unwrap();
        assert_eq!(lines.to, "a\\u{1b}[2J\\nb \\u{202e}x\n".as_bytes());
    }
}
