//! `farhaul lab`: hosts joined by an emulated link.
//!
//! How to read it: `up` and `run` are two processes. The one that the user started (here) makes namespaces and waits;
//! the other one (`world.rs`, the hidden verb `lab world`) lives in them, with the emulator, the servers
//! (`services.rs`) and the command. `set`, `stats` and `exec` talk to it.

mod services;
mod statistics;
mod world;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use farhaul::ExitCode as Code;
use farhaul_wanem::{Error, LabControl, LabPlan, Leash, Signals, Timeline, isolate, wait_for_child};
use serde::{Deserialize, Serialize};

use crate::args::lab::{LabArgs, LabBuildArgs, LabExecArgs, LabSetArgs, LabStatsArgs, LabVerb};
use crate::exit;
use crate::ui::printer;

/// What the second process has to do; the command stands beside it.
#[derive(Debug, Serialize, Deserialize)]
struct WorldTask {
    plan: LabPlan,
    /// Text of the timeline.
    timeline: Option<String>,
    stats: Option<PathBuf>,
    home: Option<PathBuf>,
    purpose: Purpose,
    quiet: bool,
    /// Number of the descriptor that ends with the first process.
    leash: i32,
    folder: PathBuf,
    program: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Purpose {
    Run,
    Up,
    UpJson,
}

/// The error of a lab, as the user gets to know it.
pub fn run(lab: LabArgs) -> ExitCode {
    let ended = match lab.verb {
        LabVerb::Up(up) => launch(&up.build, if up.json { Purpose::UpJson } else { Purpose::Up }, Vec::new()),
        LabVerb::Run(run) => launch(&run.build, Purpose::Run, run.command),
        LabVerb::Set(set) => change(&set),
        LabVerb::Stats(stats) => show(&stats),
        LabVerb::Exec(exec) => enter(exec),
        LabVerb::World(world) => world::run(&world),
    };
    ended.unwrap_or_else(|error| complain(&error))
}

fn complain(error: &Error) -> ExitCode {
    printer::line(&format!("error: {error}"));
    if let Some(hint) = error.hint() {
        printer::line(&format!("hint: {hint}"));
    }
    exit::process_code(match error {
        Error::Usage(_) => Code::Usage,
        Error::NoLab(_) => Code::Connect,
        _ => Code::Internal,
    })
}

/// An error of a system call, with what was tried.
fn failed(what: &str) -> impl FnOnce(io::Error) -> Error {
    let what = what.to_string();
    move |source| Error::Io { what, source }
}

/// Starts the second process and waits for it.
fn launch(build: &LabBuildArgs, purpose: Purpose, command: Vec<OsString>) -> Result<ExitCode, Error> {
    let plan = build.plan();
    plan.checked()?;
    let absolute =
        |path: &PathBuf| std::path::absolute(path).map_err(failed("cannot find the current folder"));
    let timeline = build.timeline.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(failed(&format!("cannot read {}", path.display())))
    });
    let timeline = timeline.transpose()?;
    timeline.as_deref().map(Timeline::parse).transpose()?;
    if let Some(home) = &build.home
        && !home.is_dir()
    {
        return Err(Error::Usage(format!("{} is no directory", home.display())));
    }
    let signals = Signals::catch()?;
    let (held, reader, leash) = Leash::make()?;
    let job = WorldTask {
        plan,
        timeline,
        stats: build.stats.as_ref().map(absolute).transpose()?,
        home: build.home.as_ref().map(absolute).transpose()?,
        purpose,
        quiet: build.quiet,
        leash,
        folder: std::env::current_dir().map_err(failed("cannot find the current folder"))?,
        program: std::env::current_exe().map_err(failed("cannot find this program"))?,
    };
    let text = serde_json::to_string(&job).map_err(|error| Error::Usage(error.to_string()))?;
    isolate()?;
    let mut world = Command::new("/proc/self/exe");
    world.arg0("farhaul").args(["lab", "world", &text, "--"]).args(command);
    let mut child = world.spawn().map_err(failed("cannot start the lab"))?;
    drop(reader);
    let code = wait_for_child(&mut child, &signals)?;
    drop(held);
    Ok(ExitCode::from(code))
}

fn change(args: &LabSetArgs) -> Result<ExitCode, Error> {
    let change = args.change();
    if change.changes.is_empty() && change.cut.is_none() {
        return Err(Error::Usage("say what to change, such as --loss 5%".into()));
    }
    change.check()?;
    let links = LabControl::change(args.which.lab.as_deref(), change)?;
    if args.json {
        return Ok(ended(print(&serde_json::json!({"schema": 1, "ok": true, "links": links}))));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &LabStatsArgs) -> Result<ExitCode, Error> {
    let links = LabControl::stats(args.which.lab.as_deref())?;
    Ok(ended(print(&serde_json::json!({"schema": 1, "ok": true, "links": links}))))
}

/// Writes a report; an error, which has been told, is what the process ends with.
fn print(value: &serde_json::Value) -> Result<(), ExitCode> {
    printer::json(value).map_err(|error| {
        printer::error(&error, None);
        exit::process_code(error.exit_code())
    })
}

fn ended(printed: Result<(), ExitCode>) -> ExitCode {
    printed.err().unwrap_or(ExitCode::SUCCESS)
}

fn enter(args: LabExecArgs) -> Result<ExitCode, Error> {
    let folder = std::env::current_dir().map_err(failed("cannot find the current folder"))?;
    let entrance = LabControl::enter(args.which.lab.as_deref(), args.host)?;
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut words = args.command.into_iter();
    let mut command = Command::new(words.next().unwrap_or(shell));
    command.args(words).envs(entrance.environment).current_dir(folder);
    let signals = Signals::catch()?;
    match command.spawn() {
        Ok(mut child) => wait_for_child(&mut child, &signals).map(ExitCode::from),
        Err(error) => Ok(not_started(&command, &error)),
    }
}

/// What a shell says and returns of a command that cannot be run.
fn not_started(command: &Command, error: &io::Error) -> ExitCode {
    printer::line(&format!("error: cannot run {}: {error}", command.get_program().to_string_lossy()));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}
