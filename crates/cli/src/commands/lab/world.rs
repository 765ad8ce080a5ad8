//! The first process inside a lab, with pid 1 in its namespace. It builds the lab, runs the command and
//! collects processes that have ended. When it ends, the kernel ends everything in the lab.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul_wanem::{Error, HostId, Lab, LabControl, LabSide, Leash, Orphans, Signals, Timeline};

use super::services::Services;
use super::statistics::Statistics;
use super::{Purpose, WorldTask, failed, not_started};
use crate::args::lab::LabWorldArgs;
use crate::ui::printer;

const A: HostId = HostId { side: LabSide::A, index: 0 };
/// How long a command that was asked to end may take.
const GRACE: Duration = Duration::from_secs(3);

pub fn run(args: &LabWorldArgs) -> Result<ExitCode, Error> {
    let task: WorldTask = serde_json::from_str(&args.job)
        .map_err(|_| Error::Usage("'lab world' is for farhaul itself; see lab run and lab up".into()))?;
    let leash = Leash::take(task.leash)?;
    let signals = Signals::catch()?;
    let statistics = task.stats.as_deref().map(Statistics::create).transpose()?.map(Arc::new);
    let lab = Arc::new(Lab::build(&task.plan)?);
    let services = Services::start(&lab, &task)?;
    let environments = services.environments.clone();
    let own = environments.clone();
    let control = LabControl::open(lab.clone(), task.plan.name.as_deref(), move |host| own.of(host))?;

    if let Some(text) = &task.timeline {
        let (timeline, lab) = (Timeline::parse(text)?, lab.clone());
        in_background(move || timeline.run(&lab, |error| printer::warning(&error.to_string())))?;
    }
    if let Some(statistics) = statistics.clone() {
        let lab = lab.clone();
        in_background(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                statistics.interval(&lab);
            }
        })?;
    }
    let mut watch = WorldMonitor { leash, signals, services };
    let code = match task.purpose {
        Purpose::Run => {
            let mut words = args.command.iter();
            let program = words.next().ok_or_else(|| Error::Usage("there is no command to run".into()))?;
            let mut command = Command::new(program);
            command.args(words).envs(environments.of(A)).current_dir(&task.folder);
            match lab.spawn(A, &mut command) {
                Ok(child) => watch.until_end(child),
                Err(error) => not_started(&command, &error),
            }
        }
        purpose => match announce(&task, purpose, control.name(), &environments.of(A)) {
            Ok(()) => {
                watch.until_asked();
                ExitCode::SUCCESS
            }
            Err(code) => code,
        },
    };
    if let Some(statistics) = statistics {
        statistics.total(&lab);
    }
    if !task.quiet {
        warn_if_overloaded(&lab);
    }
    Ok(code)
}

fn in_background(act: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    std::thread::Builder::new().spawn(act).map(drop).map_err(failed("cannot start a thread"))
}

/// What this process watches while the others work.
struct WorldMonitor {
    leash: Leash,
    signals: Signals,
    services: Services,
}

impl WorldMonitor {
    /// Waits until the command has ended, and returns its exit code as a shell would.
    fn until_end(&mut self, child: Child) -> ExitCode {
        let orphans = Orphans::of(child.id());
        let mut killed_at = None;
        loop {
            if let Some(status) = self.reap(&orphans, child.id()) {
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                return ExitCode::from(code.map_or(u8::MAX, |code| code as u8));
            }
            // `wants_end` leaves out the signals of a terminal's keys: the command gets these itself and
            // decides.
            if self.signals.wants_end() && killed_at.is_none() {
                orphans.ask_to_end();
                killed_at = Some(Instant::now());
            }
            let is_overdue = killed_at.is_some_and(|at| at.elapsed() > GRACE);
            if self.leash.is_cut() || is_overdue {
                return ExitCode::from(128 + 15);
            }
        }
    }

    /// Waits until a signal such as that of Ctrl-C comes.
    fn until_asked(&mut self) {
        let orphans = Orphans::of(std::process::id());
        loop {
            self.reap(&orphans, 0);
            if self.signals.take().is_some() || self.leash.is_cut() {
                return;
            }
        }
    }

    /// Waits a moment for processes to end and collects them. Returns the status of `main` if it is one of
    /// them.
    fn reap(&mut self, orphans: &Orphans, main: u32) -> Option<ExitStatus> {
        let mut ended = None;
        for (pid, status) in orphans.collect(Duration::from_millis(250)) {
            if pid == main {
                ended = Some(status);
            } else if let Some(name) = self.services.name_of(pid) {
                printer::warning(&format!("{name} has ended ({status})"));
            }
        }
        ended
    }
}

fn announce(
    task: &WorldTask,
    purpose: Purpose,
    name: &str,
    environment: &[(String, String)],
) -> Result<(), ExitCode> {
    if purpose == Purpose::UpJson {
        let map: serde_json::Map<String, serde_json::Value> =
            environment.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        return super::print(&serde_json::json!({"schema": 1, "ok": true, "lab": name, "environment": map}));
    }
    if task.quiet {
        return Ok(());
    }
    let program = task.program.display();
    for (index, link) in task.plan.links.iter().enumerate() {
        let settings = if link.is_empty() { "no delay, loss or limit" } else { link };
        printer::line(&format!("link {}: {settings}", index + 1));
    }
    printer::line(&format!("shell on A:   {program} lab exec --lab {name} a"));
    printer::line(&format!("shell on B:   {program} lab exec --lab {name} b"));
    printer::line(&format!("change it:    {program} lab set --lab {name} --loss 5%"));
    printer::line(&format!("statistics:   {program} lab stats --lab {name}"));
    printer::line(
        "On A, try:    ping $FARHAUL_LAB_B;  scp FILE $FARHAUL_LAB_B:;  farhaul cp FILE $FARHAUL_LAB_B:",
    );
    printer::line("Ctrl-C ends the lab and all that runs in it.");
    Ok(())
}

fn warn_if_overloaded(lab: &Lab) {
    for link in lab.total() {
        for (direction, report) in [("A to B", &link.report.forward), ("B to A", &link.report.backward)] {
            for reason in &report.overloaded {
                printer::warning(&format!(
                    "the emulator itself was the bottleneck, so the figures are not valid: link {}, {direction}: {reason}",
                    link.link
                ));
            }
        }
    }
}
