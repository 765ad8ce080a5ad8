//! `farhaul`, the one binary. It parses, builds the job, calls engine, daemon, service, bench or wanem, and shows what comes out.
//!
//! How to read it: `args.rs` has every option once; help, man page and completions come from it. `selection.rs` turns
//! the options that choose files into the engine's words. `commands/` has a file a verb, the only places that call the engine,
//! the daemon, bench or wanem. `ui/` turns counters and reports into lines. stdout is data, everything else goes to stderr.
#![deny(unsafe_code)]

mod args;
mod commands;
mod descriptors;
mod exit;
mod selection;
mod signals;
mod ui;
mod values;

use clap::Parser;
use clap::error::ErrorKind;
use farhaul::ExitCode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

use ui::printer;

/// As many as there is use for.
const DESCRIPTORS: u64 = 64 << 10;

fn main() -> std::process::ExitCode {
    if let Err(error) = descriptors::take_passed() {
        printer::error(&error, None);
        return exit::process_code(error.exit_code());
    }
    match args::Cli::try_parse() {
        Ok(args) => {
            if args.verb.holds_keys() {
                stay_out_of_dumps();
            }
            raise_descriptor_limit();
            signals::survive_file_size_limit();
            commands::run(args.verb)
        }
        Err(error) => exit::process_code(told(&error)),
    }
}

/// Prints what the parser has to say: help and version are what was asked for, on stdout, and are not lost without a word.
fn told(message: &clap::Error) -> ExitCode {
    if !matches!(message.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // When stderr is gone there is nobody left to tell.
        let _ = message.print();
        return ExitCode::Usage;
    }
    match printer::written(message.print()) {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
    }
}

/// No core dump of keys is written or handed to a collector, and no other process of the same user looks into this one's memory.
/// For a debugger there is `FARHAUL_DUMPABLE=1`.
fn stay_out_of_dumps() {
    if std::env::var_os("FARHAUL_DUMPABLE").is_none_or(|value| value != "1") {
        // Where that is refused, all is as for other programs.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// The usual 1024 are for programs that use select(2). What cannot be raised is lived with: fewer files are open at a time.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
