//! `farhaul serve`: the daemon, until it is stopped.

use std::path::PathBuf;

use farhaul::default_identity_path;
use farhaul::{Code, Error, ExitCode, MemoryLimits};
use farhaul_daemon::ServeConfig;
use farhaul_service::notify::Passed;
use farhaul_service::{Clock, ServiceConfig, Settings, default_sockets, default_state};
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
    if args.authorized_keys.is_none() {
        begin_own_list();
    }
    match checked(&args).and_then(|()| farhaul_service::serve(service(args, mask))) {
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

/// What arrives is made with this process's rights: root's are too many for a service unless somebody wants just that.
fn checked(args: &Serve) -> Result<(), Error> {
    if rustix::process::geteuid().is_root() && !args.allow_root {
        let what = "the service would run as root, and whoever may use it could write everywhere below --root as root";
        return Err(Error::new(Code::BadOption, what)
            .with_hint("run it as a user of its own, or give it --allow-root"));
    }
    Ok(())
}

fn service(mut args: Serve, mask: u32) -> ServiceConfig {
    let state = args.state.take().unwrap_or_else(default_state);
    let own_socket = || default_sockets().into_iter().next().filter(|_| state == default_state());
    let socket = args.api_socket.take().or_else(own_socket).unwrap_or_else(|| state.join("api.sock"));
    let identity_file = args.identity.clone().unwrap_or_else(default_identity_path);
    ServiceConfig {
        socket,
        state,
        api: std::mem::take(&mut args.api_listen),
        tls: args.tls_cert.take().zip(args.tls_key.take()),
        hosts: std::mem::take(&mut args.api_host),
        settings: Settings { identity_file, ..Settings::default() },
        clock: args.clock.take().map_or_else(Clock::of_host, Clock::shifted_by),
        daemon: config(args, mask),
    }
}

fn own_keys() -> PathBuf {
    default_identity_path().with_file_name("authorized_keys")
}

/// A service for its own user's jobs needs no clients: the list that it looks at by itself may begin empty.
fn begin_own_list() {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let path = own_keys();
    if let Some(folder) = path.parent() {
        // What cannot be made is told when it cannot be read.
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    if let Ok(mut file) = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        let _ = file.write_all(b"# Public keys (farhaul keygen) of those who may connect, one a line.\n");
    }
}

fn config(args: Serve, mask: u32) -> ServeConfig {
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
        own: Vec::new(),
    }
}
