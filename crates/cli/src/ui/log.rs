//! The log: `FARHAUL_LOG` chooses what is in it, in the syntax of tracing's filters.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_env("FARHAUL_LOG").unwrap_or_else(|_| EnvFilter::new(default))
}

/// Lines of text on stderr.
pub fn to_stderr(default: &str) {
    let log = tracing_subscriber::fmt().with_env_filter(filter(default)).with_writer(std::io::stderr);
    let log = log.with_ansi(std::io::stderr().is_terminal());
    // It fails only where a log is set up already, and then that one serves.
    let _ = log.with_target(false).try_init();
}

/// An object a line on stdout.
pub fn json_to_stdout(default: &str) {
    let _ = tracing_subscriber::fmt().json().with_env_filter(filter(default)).try_init();
}
