//! `farhaul serve`: runs the service until it is stopped. The options of the command line override all other
//! layers of its configuration.

use std::path::{Path, PathBuf};

use farhaul::Error;
use farhaul::errors::ExitCode;
use farhaul::sisters::no_key;
use farhaul::target::default_identity_path;
use farhaul_service::config::{Config, ConfigSources, LogLevel};
use farhaul_service::notify::PassedSockets;
use farhaul_service::{ServiceConfig, serve};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::args::ServeArgs;
use crate::ui::{log, printer};
use crate::{descriptors, test_hooks};

pub fn run(args: &ServeArgs) -> ExitCode {
    match service(args).and_then(serve) {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
    }
}

fn service(args: &ServeArgs) -> Result<ServiceConfig, Error> {
    if args.authorized_keys.is_none() {
        begin_own_list();
    }
    if let Some(path) = &args.identity {
        is_there(path)?;
    }
    let sources = sources(args);
    let loaded = sources.load().map_err(Error::from)?;
    begin_log(args, &loaded.config);
    let passed = PassedSockets::sorted(descriptors::passed())?;
    if let Some(cpus) = &loaded.config.serve.cpus {
        cpus.0.apply()?;
    }
    let mask = set_mask(loaded.config.serve.mask.map(|mask| mask.0));
    Ok(ServiceConfig {
        sources,
        loaded,
        passed,
        mask,
        testing: test_hooks::of_sessions(),
        clock: test_hooks::clock(),
    })
}

/// Refuses a key that does not exist. The first start makes the node's key where the configuration says; but a
/// path that was typed may be mistyped, and a new key would be another node to all clients.
fn is_there(identity: &Path) -> Result<(), Error> {
    match std::fs::metadata(identity) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(no_key(identity)),
        // What else is wrong with it is told when it is read.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn begin_log(args: &ServeArgs, config: &Config) {
    let level = match (args.quiet, args.verbose) {
        (true, _) => LogLevel::Error,
        (_, true) => LogLevel::Debug,
        _ => config.log.level,
    };
    if config.log.json {
        log::json_to_stdout(level.name());
    } else {
        log::to_stderr(level.name());
    }
}

/// The layers of the configuration; those of the command line override all others.
fn sources(args: &ServeArgs) -> ConfigSources {
    let path =
        |path: &Option<PathBuf>| path.as_ref().map(|path| absolute(path)).into_iter().collect::<Vec<_>>();
    let texts = |all: &[std::net::SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let number =
        |number: Option<u64>| number.map(|number| number.to_string()).into_iter().collect::<Vec<_>>();
    let is_set = |flag: bool| flag.then(|| "true".to_string()).into_iter().collect::<Vec<_>>();
    let mask = args.mask.map(|mask| format!("{mask:03o}")).into_iter().collect();
    let cpus = args.cpus.as_ref().map(ToString::to_string).into_iter().collect();
    let flags = [
        ("serve.listen", "--listen", texts(&args.listen)),
        ("serve.root", "--root", path(&args.root)),
        ("serve.authorized_keys", "--authorized-keys", path(&args.authorized_keys)),
        ("serve.identity", "--identity", path(&args.identity)),
        ("serve.read_only", "--read-only", is_set(args.read_only)),
        ("serve.memory", "--memory", number(args.memory)),
        ("serve.memory_per_key", "--memory-per-key", number(args.memory_per_key)),
        ("serve.max_rate", "--max-rate", number(args.max_rate)),
        ("serve.mask", "--mask", mask),
        ("serve.cpus", "--cpus", cpus),
        ("serve.allow_cipher_none", "--allow-cipher-none", is_set(args.allow_cipher_none)),
        ("serve.allow_root", "--allow-root", is_set(args.allow_root)),
        ("serve.state", "--state", path(&args.state)),
        ("api.socket", "--api-socket", path(&socket(args))),
        ("api.listen", "--api-listen", texts(&args.api_listen)),
        ("api.tls_cert", "--tls-cert", path(&args.tls_cert)),
        ("api.tls_key", "--tls-key", path(&args.tls_key)),
        ("api.hosts", "--api-host", args.api_host.clone()),
        ("log.json", "--json", is_set(args.json)),
    ];
    let given = flags.into_iter().filter(|(_, _, values)| !values.is_empty());
    given.fold(ConfigSources::of_process(args.config.clone()), |sources, (key, flag, values)| {
        sources.with_flag(key, flag, values)
    })
}

/// A service with its own state directory has its own socket, so that it does not collide with the user's
/// usual service.
fn socket(args: &ServeArgs) -> Option<PathBuf> {
    args.api_socket.clone().or_else(|| args.state.as_ref().map(|state| state.join("api.sock")))
}

/// The configuration is read again later, when the current directory may be another one.
fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// Sets the umask of the process, which applies to entries that have no source, such as missing directories
/// of a destination's path. The owner's bits are never masked, as the daemon itself needs them.
fn set_mask(wanted: Option<u32>) -> u32 {
    let inherited = umask(Mode::from_raw_mode(0o077));
    let mask = wanted.unwrap_or(inherited.as_raw_mode()) & 0o077;
    umask(Mode::from_raw_mode(mask));
    mask
}

/// Creates the default list of authorized keys if there is none. A service that only runs its own user's jobs
/// needs no clients, so it may start with an empty list.
fn begin_own_list() {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let path = default_identity_path().with_file_name("authorized_keys");
    if let Some(folder) = path.parent() {
        // If the folder or the file cannot be made, reading the list reports the error.
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    if let Ok(mut file) = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        let _ = file.write_all(b"# Public keys (farhaul keygen) of those who may connect, one a line.\n");
    }
}
