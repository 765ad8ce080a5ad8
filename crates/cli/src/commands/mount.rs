//! `farhaul mount` and `umount`. A mount in the background is a process of its own, started by this one, which waits until
//! it says that the mount is there.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use farhaul::copy::{Location, LocationSpec};
use farhaul::errors::{Code, ExitCode};
use farhaul::options::NetworkOptions;
use farhaul::read::{Dial, Remote};
use farhaul::target::SshMessages;
use farhaul::{Error, Handle};
use farhaul_cache::{Cache, Place};
use farhaul_mount::{MountOptions, UnmountForce};
use rustix::fs::{Mode, OFlags};

use super::cp;
use crate::args::mount::{MountArgs, UmountArgs};
use crate::signals;
use crate::ui::{log, printer};

/// The word of a mount in the background to the process that has started it.
const READY: &[u8] = b"mounted\n";

pub fn mount(args: &MountArgs) -> Result<ExitCode, Error> {
    log::to_stderr("off");
    let place = LocationSpec::parse(&args.location)?;
    if place.host().is_none() {
        let what = "mount shows a directory of another host: [user@]host:path or fh://host/path";
        return Err(Error::new(Code::BadLocation, what));
    }
    if !args.foreground && !args.to_background {
        return in_background();
    }
    let mut location = cp::location(&place, &args.connection, args.quiet)?;
    if let (Location::Ssh { target, .. }, true) = (&mut location, args.to_background) {
        // An ssh that had this process's standard error would keep it open.
        target.messages = SshMessages::Kept;
    }
    let caller = Handle::new();
    let stopping = caller.clone();
    let (ended, end) = std::sync::mpsc::channel::<Box<dyn Fn() + Send>>();
    let is_asked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = is_asked.clone();
    let ender = std::sync::Mutex::new(end);
    signals::end_on_signal(move || {
        asked.store(true, std::sync::atomic::Ordering::SeqCst);
        stopping.cancel();
        if let Ok(end) = ender.lock().map(|end| end.try_recv())
            && let Ok(end) = end
        {
            end();
        }
    })
    .map_err(|error| Error::of_host("cannot listen for signals", error))?;
    let mounted = farhaul_mount::mount(
        dial(&location, args.network.options()),
        &caller,
        &args.directory,
        &options(args, &location),
    )?;
    // If the signal has come already, nobody takes this, and the end of the process ends the mount.
    let _ = ended.send(Box::new(mounted.ender()));
    if is_asked.load(std::sync::atomic::Ordering::SeqCst) {
        mounted.ender()();
        return Err(Error::interrupted());
    }
    if args.to_background {
        let_go()?;
    } else if !args.quiet {
        printer::line(&format!(
            "mounted on {}; `farhaul umount` or Ctrl-C ends it",
            mounted.target().display()
        ));
    }
    mounted.serve().map(|()| ExitCode::Ok)
}

pub fn umount(args: &UmountArgs) -> Result<ExitCode, Error> {
    let force = if args.force { UnmountForce::Always } else { UnmountForce::IfUnused };
    farhaul_mount::unmount(&args.directory, force).map(|()| ExitCode::Ok)
}

fn dial(location: &Location, network: NetworkOptions) -> Dial {
    let location = location.clone();
    Box::new(move |caller| Remote::called_by(caller, &location, network.clone()))
}

/// Who reads and where, for the cache, and the directory at that place.
pub(super) fn cache_place(location: &Location) -> (Place, Vec<u8>) {
    match location {
        Location::Daemon { target, path } => {
            (Place { host: target.host.clone(), port: target.port, ..Place::default() }, path.clone())
        }
        Location::Ssh { target, path } => {
            // ssh knows who is there; another key, jump host or configuration may lead to somebody else.
            let identity = format!(
                "ssh {:?} {:?} {:?} {:?} {:?}",
                target.user, target.identity, target.config_file, target.jump, target.options
            );
            let port = target.port.unwrap_or_default();
            (Place { identity, host: target.host.clone(), port, ..Place::default() }, path.clone())
        }
        Location::Local(path) => (Place::default(), path.as_os_str().as_bytes().to_vec()),
        Location::Pipe => (Place::default(), Vec::new()),
    }
}

fn options(args: &MountArgs, location: &Location) -> MountOptions {
    let (place, base) = cache_place(location);
    let directory = args.cache_dir.clone().unwrap_or_else(Cache::default_directory);
    MountOptions {
        source: args.location.to_string_lossy().into_owned(),
        metadata_time: Duration::from_secs(args.metadata_time),
        read_wait: Duration::from_secs(args.read_wait),
        metadata_wait: Duration::from_secs(args.metadata_wait),
        allow_other: args.allow_other,
        cache: (args.cache_size > 0).then_some((directory, args.cache_size)),
        memory: args.read_ahead,
        place,
        base,
    }
}

/// Starts the process that serves the mount, and waits until it says that the mount is there, or ends.
fn in_background() -> Result<ExitCode, Error> {
    let program =
        std::env::current_exe().map_err(|error| Error::of_host("cannot find this program", error))?;
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    // Right behind the verb: a word `--` may stand further on.
    words.insert(words.len().min(1), "--to-background".into());
    let mut child = Command::new(program)
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Error::of_host("cannot start the process of the mount", error))?;
    let mut said = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        let read = stdout.read_to_end(&mut said);
        read.map_err(|error| Error::of_host("cannot hear from the process of the mount", error))?;
    }
    if said == READY {
        return Ok(ExitCode::Ok);
    }
    // It has said why.
    let ended =
        child.wait().map_err(|error| Error::of_host("cannot wait for the process of the mount", error))?;
    std::process::exit(ended.code().unwrap_or(ExitCode::Internal as i32));
}

/// Says that the mount is there, and lets go of the terminal.
fn let_go() -> Result<(), Error> {
    let cannot = |error: std::io::Error| Error::of_host("cannot go to the background", error);
    let mut stdout = std::io::stdout();
    stdout.write_all(READY).and_then(|()| stdout.flush()).map_err(cannot)?;
    // If it leads a session already, it has no terminal to let go of.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = null.map_err(|error| cannot(error.into()))?;
    let given = rustix::stdio::dup2_stdin(null.as_fd())
        .and_then(|()| rustix::stdio::dup2_stderr(null.as_fd()))
        .and_then(|()| rustix::stdio::dup2_stdout(null.as_fd()));
    given.map_err(|error| cannot(error.into()))
}
