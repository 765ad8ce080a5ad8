//! The log. `FARHAUL_LOG` chooses what it contains, in the syntax of tracing's filters.
//!
//! Always true: text from peers cannot control the terminal on which the log is read. Escape codes are made
//! harmless, so the log has no colours either.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use super::printer::{harmless, harmless_json};

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_env("FARHAUL_LOG").unwrap_or_else(|_| EnvFilter::new(default))
}

/// Writes the log to stderr, as lines of text.
pub fn to_stderr(default: &str) {
    let writer = || Lines { to: io::stderr(), made: harmless };
    let log = tracing_subscriber::fmt().with_env_filter(filter(default)).with_writer(writer).with_ansi(false);
    // It fails only if there is a log already, which is good enough.
    let _ = log.with_target(false).try_init();
}

/// Writes the log to stdout, as one JSON object a line.
pub fn json_to_stdout(default: &str) {
    let writer = || Lines { to: io::stdout(), made: harmless_json };
    let _ = tracing_subscriber::fmt().json().with_env_filter(filter(default)).with_writer(writer).try_init();
}

/// A writer that makes each line harmless. Each call of `write` has one whole event with its line end.
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
