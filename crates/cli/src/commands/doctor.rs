//! `farhaul doctor`: prints a line on stdout for each finding, or what became of remedies.

use std::path::Path;

use farhaul::Error;
use farhaul::errors::{Code, ExitCode};
use farhaul_doctor::host::{Host, Machine, Recorder, Recording};
use farhaul_doctor::remedy::{self, Applied, Loopback, Outcome, Trial, UndoFile, Undone, Unit, Wish};
use farhaul_doctor::{Diagnosis, commands, page, read_everything};
use serde_json::{Value, json};

use crate::args::doctor::{DoctorArgs, DoctorVerb, ExplainArgs};
use crate::ui::printer;

pub fn run(args: &DoctorArgs) -> Result<ExitCode, Error> {
    if let Some(DoctorVerb::Explain(args)) = &args.verb {
        return explain(args);
    }
    if let Some(directory) = &args.record {
        return record(directory);
    }
    if let Some(host) = &args.peer {
        return super::doctor_peer::run(args, host);
    }
    if let Some(ids) = &args.undo {
        return undo(args, ids);
    }
    match (&args.apply, &args.from) {
        (Some(ids), _) => apply(args, ids),
        (None, Some(directory)) => judge(&Recording::open(directory).map_err(failed)?, args),
        (None, None) => judge(&Machine, args),
    }
}

/// An error of the doctor as one of Farhaul's.
fn failed(error: farhaul_doctor::Error) -> Error {
    use farhaul_doctor::Error as Doctor;
    let code = match error {
        Doctor::UnknownCheck(_) => Code::BadOption,
        Doctor::Recording { .. } | Doctor::UndoFile { .. } => Code::FilesFailed,
        _ => Code::HostFailed,
    };
    let known = "farhaul doctor explain lists all checks and limits";
    let made = Error::new(code, error.to_string());
    if code == Code::BadOption { made.with_hint(known) } else { made }
}

fn explain(args: &ExplainArgs) -> Result<ExitCode, Error> {
    let Some(id) = &args.id else { return list(args.json) };
    let text = page::explain(id).map_err(failed)?;
    if args.json {
        printer::json(&json!({ "schema": 1, "id": id, "text": text }))?;
    } else {
        printer::data(text.as_bytes())?;
    }
    Ok(ExitCode::Ok)
}

/// Every ID with what it is about.
fn list(is_json: bool) -> Result<ExitCode, Error> {
    let ids = page::ids();
    if is_json {
        let ids: Vec<Value> = ids.iter().map(|(id, title)| json!({ "id": id, "title": title })).collect();
        printer::json(&json!({ "schema": 1, "ids": ids }))?;
    } else {
        let lines: String = ids.iter().map(|(id, title)| format!("{id:<22}{title}\n")).collect();
        printer::data(lines.as_bytes())?;
    }
    Ok(ExitCode::Ok)
}

fn record(directory: &Path) -> Result<ExitCode, Error> {
    let machine = Machine;
    let recorder = Recorder::of(&machine);
    read_everything(&recorder);
    let path = recorder.save(directory).map_err(failed)?;
    printer::line(&format!("recorded in {}; read it before you give it to others", path.display()));
    Ok(ExitCode::Ok)
}

fn judge(host: &dyn Host, args: &DoctorArgs) -> Result<ExitCode, Error> {
    let diagnosis = Diagnosis::of(host, args.rate, args.role);
    let faults = diagnosis.faults().count();
    let code = if faults == 0 { ExitCode::Ok } else { ExitCode::SomeFailed };
    if args.json {
        printer::json(&diagnosis.json())?;
        return Ok(code);
    }
    let shown = diagnosis.faults().chain(diagnosis.notes().filter(|_| args.notes));
    let lines: String = shown.map(|found| format!("{}\n", found.line())).collect();
    printer::data(lines.as_bytes())?;
    printer::line(&summary(&diagnosis, faults, args.notes));
    if let Some(hidden) = diagnosis.hidden_words() {
        printer::line(&hidden);
    }
    Ok(code)
}

fn summary(diagnosis: &Diagnosis, faults: usize, are_notes_shown: bool) -> String {
    let notes = diagnosis.notes().count();
    let target = format!("judged for {} as {}", diagnosis.target.rate_words(), diagnosis.target.role.name());
    let mut line = match faults {
        0 => format!("{target}: nothing to mend"),
        faults => format!("{target}: {faults} to mend; `farhaul doctor explain ID` says why and how"),
    };
    if notes > 0 && !are_notes_shown {
        line.push_str(&format!("; {notes} worth knowing (--notes)"));
    }
    if diagnosis.is_container {
        line.push_str("; a container shows only a part of its host");
    }
    line
}

fn apply(args: &DoctorArgs, ids: &[String]) -> Result<ExitCode, Error> {
    let machine = Machine;
    let diagnosis = Diagnosis::of(&machine, args.rate, args.role);
    let units = remedy::units(&diagnosis, ids).map_err(failed)?;
    if !rustix::process::geteuid().is_root() {
        return print_commands(&diagnosis, &units, ids);
    }
    let mut undo_file = UndoFile::open(&args.undo_file).map_err(failed)?;
    let wish = Wish { keeps_neutral: args.keep, is_persistent: args.persist };
    let mut applied = Vec::new();
    for unit in &units {
        let one = remedy::apply(&machine, &mut undo_file, unit, &Loopback, wish);
        if !args.json {
            tell_applied(&one)?;
        }
        applied.push(one);
    }
    let files = remedy::persist(&undo_file, Path::new("/")).map_err(failed)?;
    let is_done = applied.iter().all(|one| one.outcome.is_ok() && one.refused.is_empty());
    if args.json {
        let applied: Vec<Value> = applied.iter().map(applied_json).collect();
        printer::json(&json!({ "schema": 1, "ok": is_done, "applied": applied, "files": files }))?;
    } else {
        tell_rest(&diagnosis, ids, applied.is_empty(), &files)?;
    }
    Ok(if is_done { ExitCode::Ok } else { ExitCode::SomeFailed })
}

/// What a person without rights would type, on stdout.
fn print_commands(diagnosis: &Diagnosis, units: &[Unit<'_>], ids: &[String]) -> Result<ExitCode, Error> {
    let wanted = units.iter().flat_map(|unit| unit.found.iter().copied());
    let mut lines: Vec<String> = wanted.flat_map(|found| commands(&found.finding)).collect();
    lines.extend(by_hand(diagnosis, ids));
    printer::data(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes())?;
    printer::line(match lines.is_empty() {
        true => "nothing to apply",
        false => "only root can set these: run the commands above, or this command, as root",
    });
    Ok(ExitCode::Ok)
}

/// The commands of findings that were asked for and that the doctor does not set itself.
fn by_hand(diagnosis: &Diagnosis, ids: &[String]) -> Vec<String> {
    let is_wanted =
        |id: &str, row: &str| ids.iter().any(|wanted| wanted == id || wanted.eq_ignore_ascii_case(row));
    diagnosis
        .found
        .iter()
        .filter(|found| found.finding.changes.is_empty() && is_wanted(found.check.id, found.check.row))
        .flat_map(|found| found.finding.commands.clone())
        .collect()
}

fn tell_applied(applied: &Applied) -> Result<(), Error> {
    let ids = applied.ids.join(", ");
    let text = match &applied.outcome {
        Ok(Outcome::Kept(trials)) => format!("set       [{ids}]\n{}{}", settings(applied), words(trials)),
        Ok(Outcome::NotMeasured) => format!("set, not measured  [{ids}]\n{}", settings(applied)),
        Ok(Outcome::TakenBack(trials)) => format!("taken back  [{ids}]\n{}", words(trials)),
        Ok(Outcome::NothingToDo) => format!("as advised already  [{ids}]\n"),
        Err(error) => {
            printer::line(&format!("error: [{ids}] {error}"));
            String::new()
        }
    };
    for (_, error) in &applied.refused {
        printer::line(&format!("error: [{ids}] {error}; what goes with it is applied without it"));
    }
    printer::data(text.as_bytes())
}

fn settings(applied: &Applied) -> String {
    applied
        .settings
        .iter()
        .map(|(place, before, after)| format!("    {place}: {before} -> {after}\n"))
        .collect()
}

fn words(trials: &[Trial]) -> String {
    trials.iter().map(|trial| format!("    {}\n", trial.words())).collect()
}

fn tell_rest(diagnosis: &Diagnosis, ids: &[String], is_empty: bool, files: &[String]) -> Result<(), Error> {
    let commands = by_hand(diagnosis, ids);
    if !commands.is_empty() {
        printer::line("the doctor does not set these; the commands are:");
        printer::data(commands.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes())?;
    } else if is_empty {
        printer::line("nothing to apply: without IDs only what can be measured here is set");
    }
    if !files.is_empty() {
        printer::line(&format!("set again at each start by {}", files.join(", ")));
    }
    Ok(())
}

fn applied_json(applied: &Applied) -> Value {
    let trials = |trials: &[Trial]| -> Vec<Value> {
        trials
            .iter()
            .map(|trial| {
                json!({
                    "measurement": trial.measurement,
                    "verdict": trial.verdict(),
                    "gain": trial.gain(),
                    "noise": trial.noise(),
                    "before": trial.before,
                    "after": trial.after,
                })
            })
            .collect()
    };
    let (outcome, made, error) = match &applied.outcome {
        Ok(Outcome::Kept(made)) => ("kept", trials(made), None),
        Ok(Outcome::TakenBack(made)) => ("taken-back", trials(made), None),
        Ok(Outcome::NotMeasured) => ("not-measured", Vec::new(), None),
        Ok(Outcome::NothingToDo) => ("nothing-to-do", Vec::new(), None),
        Err(error) => ("failed", Vec::new(), Some(error.to_string())),
    };
    let settings: Vec<Value> = applied
        .settings
        .iter()
        .map(|(place, before, after)| json!({ "place": place, "before": before, "after": after }))
        .collect();
    let refused: Vec<Value> = applied
        .refused
        .iter()
        .map(|(place, error)| json!({ "place": place, "reason": error.to_string() }))
        .collect();
    json!({ "ids": applied.ids, "outcome": outcome, "settings": settings, "trials": made, "refused": refused, "error": error })
}

fn undo(args: &DoctorArgs, ids: &[String]) -> Result<ExitCode, Error> {
    if ids.is_empty() && !args.all {
        return Err(Error::new(Code::BadOption, "--undo needs IDs, or --all"));
    }
    let ids = if args.all { &[] } else { ids };
    let mut undo_file = UndoFile::open(&args.undo_file).map_err(failed)?;
    let undone = remedy::undo(&Machine, &mut undo_file, ids).map_err(failed)?;
    remedy::persist(&undo_file, Path::new("/")).map_err(failed)?;
    let is_done = undone.iter().all(|one| matches!(one, Undone::Back { .. } | Undone::WasBack { .. }));
    if args.json {
        let undone: Vec<Value> = undone.iter().map(undone_json).collect();
        printer::json(&json!({ "schema": 1, "ok": is_done, "undone": undone }))?;
    } else {
        let lines: String = undone.iter().map(|one| format!("{}\n", undone_words(one))).collect();
        printer::data(lines.as_bytes())?;
        if undone.is_empty() {
            printer::line("nothing to undo");
        }
    }
    Ok(if is_done { ExitCode::Ok } else { ExitCode::SomeFailed })
}

fn undone_words(undone: &Undone) -> String {
    match undone {
        Undone::Back { place, value } => format!("{place} is {value} again"),
        Undone::WasBack { place } => format!("{place} has its earlier value already"),
        Undone::ChangedByOther { place, ours, now } => {
            format!("{place} is left as it is: somebody has changed {ours} to {now}")
        }
        Undone::Failed { place, reason } => format!("{place} could not be undone: {reason}"),
    }
}

fn undone_json(undone: &Undone) -> Value {
    match undone {
        Undone::Back { place, value } => json!({ "place": place, "outcome": "back", "value": value }),
        Undone::WasBack { place } => json!({ "place": place, "outcome": "was-back" }),
        Undone::ChangedByOther { place, ours, now } => {
            json!({ "place": place, "outcome": "changed-by-other", "ours": ours, "now": now })
        }
        Undone::Failed { place, reason } => json!({ "place": place, "outcome": "failed", "reason": reason }),
    }
}
