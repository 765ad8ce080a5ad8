//! `farhaul serve`: the daemon, until it is stopped.

use farhaul::default_identity_path;
use farhaul::{ExitCode, MemoryLimits};
use farhaul_daemon::ServeConfig;
use farhaul_service::notify::Passed;
use rustix::fs::Mode;
use rustix::process::umask;

use crate::args::Serve;
use crate::descriptors;
use crate::ui::{log, printer};

pub fn run(args: Serve) -> ExitCode {
    let level = match (args.quiet, args.verbose) {
        (true, _) => "error",
        (_, true) => "debug",
        _ => "info",
    };
    if args.json {
        log::json_to_stdout(level)
    } else {
        log::to_stderr(level)
    }
    let passed = match Passed::sorted(descriptors::passed()) {
        Ok(passed) => passed,
        Err(error) => {
            printer::error(&error, None);
            return error.exit_code();
        }
    };
    if !passed.is_empty() {
        printer::warning("sockets of the service manager are not taken over; addresses are bound anew");
    }
    let mask = set_mask(args.mask);
    match farhaul_daemon::serve(config(args, mask)) {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
    }
}

fn memory(process: Option<u64>, key: Option<u64>) -> MemoryLimits {
    let process = process.unwrap_or(MemoryLimits::of_this_host().process);
    MemoryLimits { process, key: key.unwrap_or(process / 2) }
}

/// What is made by the way, such as directories on the way to a destination, has it from the process. The
/// bits of its owner are what the daemon works with.
fn set_mask(wanted: Option<u32>) -> u32 {
    let inherited = umask(Mode::from_raw_mode(0o077));
    let mask = wanted.unwrap_or(inherited.as_raw_mode()) & 0o077;
    umask(Mode::from_raw_mode(mask));
    mask
}

fn config(args: Serve, mask: u32) -> ServeConfig {
    let own_keys = || default_identity_path().with_file_name("authorized_keys");
    ServeConfig {
        listen: args.listen,
        root: args.root,
        authorized_keys: args.authorized_keys.unwrap_or_else(own_keys),
        identity: args.identity.unwrap_or_else(default_identity_path),
        read_only: args.read_only,
        mask,
        allow_cipher_none: args.allow_cipher_none,
        testing: args.testing.of_engine(),
        memory: memory(args.memory, args.memory_per_key),
        rate_max_bps: args.max_rate,
    }
}
