//! `farhaul`, the one binary. It parses the command line, calls farhaul, service, bench or wanem, and shows
//! the result.
//!
//! How to read it: `args/mod.rs` has every option once; help, man page and completions come from it.
//! `selection.rs` turns the options that choose files into those of the crate `farhaul`. `commands/` has a file for
//! each verb; only these call farhaul, the service, bench or wanem. `ui/` turns counters and reports into
//! lines. Data go to stdout, everything else to stderr.
#![deny(unsafe_code)]

mod arenas;
mod args;
mod commands;
mod descriptors;
mod exit;
mod name_sources;
mod selection;
mod signals;
mod test_hooks;
mod ui;
mod values;

use std::os::unix::process::CommandExt as _;

use clap::Parser;
use clap::error::ErrorKind;
use farhaul::errors::ExitCode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

use ui::printer;

/// The most open descriptors that a process of ours has use for.
const DESCRIPTORS: u64 = 64 << 10;

fn main() -> std::process::ExitCode {
    if let Some(words) = args::mount_helper::words(std::env::args_os()) {
        return as_mount(&words);
    }
    arenas::share_if_address_space_is_limited();
    name_sources::keep_to_what_is_linked();
    if let Err(error) = descriptors::take_passed().and_then(|()| test_hooks::take()) {
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

/// Becomes `farhaul mount`. At the start of a system there may be no home directory in the environment.
fn as_mount(words: &[std::ffi::OsString]) -> std::process::ExitCode {
    let own = std::env::current_exe().unwrap_or_else(|_| "farhaul".into());
    let mut command = std::process::Command::new(own);
    command.arg0("farhaul").args(words);
    if let Some(home) = std::env::home_dir() {
        command.env("HOME", home);
    }
    let error = command.exec();
    printer::error(&farhaul::Error::of_host("cannot start farhaul mount", error), None);
    exit::process_code(ExitCode::Internal)
}

/// Prints the parser's message, or hints for users of other tools in its place. Help and version were asked for
/// and go to stdout, so it is an error if they cannot be written.
fn told(message: &clap::Error) -> ExitCode {
    if !matches!(message.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let words: Vec<_> = std::env::args_os().collect();
        let hints = args::foreign_words::hints(&words, message);
        if hints.is_empty() {
            // If stderr is gone, nobody is left to read it.
            let _ = message.print();
        } else {
            printer::line(message.to_string().lines().next().unwrap_or_default());
            hints.iter().for_each(|hint| printer::line(&format!("hint: {hint}")));
        }
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

/// Keeps keys out of core dumps, and keeps other processes of the same user from reading this one's memory.
/// For a debugger, `FARHAUL_DUMPABLE=1` turns this off.
fn stay_out_of_dumps() {
    if std::env::var_os("FARHAUL_DUMPABLE").is_none_or(|value| value != "1") {
        // If the system refuses it, this process is protected no less than others are.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Raises the limit on open descriptors. The usual 1024 are for programs that use select(2). If the limit
/// cannot be raised, fewer files are open at a time.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
