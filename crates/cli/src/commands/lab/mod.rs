//! `farhaul lab`: hosts joined by an emulated link.
//!
//! How to read it: `up` and `run` have two processes each. The first one, which the user starts (this file),
//! makes namespaces and waits. The second one (`world.rs`, the hidden verb `lab world`) runs in the
//! namespaces, with the emulator, the servers (`services.rs`) and the command. `set`, `stats` and `exec` talk
//! to the second one.

mod services;
mod statistics;
mod world;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use farhaul::errors::ExitCode as Code;
use farhaul::sisters::plain;
use farhaul_wanem::{Error, LabControl, LabPlan, Leash, Signals, Timeline, isolate, wait_for_child};
use serde::{Deserialize, Serialize};

use crate::args::lab::{LabArgs, LabBuildArgs, LabExecArgs, LabSetArgs, LabStatsArgs, LabVerb};
use crate::exit;
use crate::ui::printer;

/// The task of the second process, which gets the user's command in further arguments.
#[derive(Debug, Serialize, Deserialize)]
struct WorldTask {
    plan: LabPlan,
    /// The timeline's JSON text.
    timeline: Option<String>,
    stats: Option<PathBuf>,
    home: Option<PathBuf>,
    purpose: Purpose,
    quiet: bool,
    /// Number of the descriptor by which the second process notices that the first one has ended.
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

/// Runs a verb of the lab and reports its error.
pub fn run(lab: LabArgs) -> ExitCode {
    let outcome = match lab.verb {
        LabVerb::Up(up) => launch(&up.build, if up.json { Purpose::UpJson } else { Purpose::Up }, Vec::new()),
        LabVerb::Run(run) => launch(&run.build, Purpose::Run, run.command),
        LabVerb::Set(set) => change(&set),
        LabVerb::Stats(stats) => show(&stats),
        LabVerb::Exec(exec) => enter(exec),
        LabVerb::World(world) => world::run(&world),
    };
    outcome.unwrap_or_else(|error| report(&error))
}

/// Reports an error, and returns the exit code for it.
fn report(error: &Error) -> ExitCode {
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

/// Returns a function that adds to the error of a system call what it was for.
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
        return Err(Error::Usage(format!("{} is not a directory", home.display())));
    }
    let signals = Signals::catch()?;
    let (leash_end, reader, leash) = Leash::make()?;
    let task = WorldTask {
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
    let text = serde_json::to_string(&task).map_err(|error| Error::Usage(error.to_string()))?;
    isolate()?;
    let mut world = Command::new("/proc/self/exe");
    world.arg0("farhaul").args(["lab", "world", &text, "--"]).args(command);
    let mut child = world.spawn().map_err(failed("cannot start the lab"))?;
    drop(reader);
    let code = wait_for_child(&mut child, &signals)?;
    drop(leash_end);
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
        return Ok(exit_code(print(&serde_json::json!({"schema": 1, "ok": true, "links": links}))));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &LabStatsArgs) -> Result<ExitCode, Error> {
    let links = LabControl::stats(args.which.lab.as_deref())?;
    Ok(exit_code(print(&serde_json::json!({"schema": 1, "ok": true, "links": links}))))
}

/// Prints a JSON object. If that fails, reports the error and returns the exit code for it.
fn print(value: &serde_json::Value) -> Result<(), ExitCode> {
    printer::json(value).map_err(|error| {
        printer::error(&error, None);
        exit::process_code(error.exit_code())
    })
}

fn exit_code(printed: Result<(), ExitCode>) -> ExitCode {
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

/// Reports that a command cannot be run, and returns the exit code that a shell would.
fn not_started(command: &Command, error: &io::Error) -> ExitCode {
    printer::line(&format!(
        "error: cannot run {}: {}",
        command.get_program().to_string_lossy(),
        plain(error)
    ));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}
