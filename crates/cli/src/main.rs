//! `farhaul`, the one binary. It parses, builds the job, calls engine, daemon, bench or wanem, and shows what comes out.
//!
//! How to read it: `args.rs` has every option once; help, man page and completions come from it. `location.rs` says
//! what `user@host:path` and `fh://` mean. `commands/` has a file a verb, the only places that call the engine,
//! the daemon, bench or wanem. `ui/` turns counters and reports into lines. stdout is data, everything else goes to stderr.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod exit;
mod location;
mod selection;
mod signals;
mod ui;
mod values;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let args = args::Args::parse();
    commands::run(args.verb)
}
