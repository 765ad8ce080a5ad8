//! What `ls`, `stat`, `cat`, `du` and `sum` have in common: they connect to the hosts of all locations, look
//! at the paths there, and end with an exit code.
//!
//! Always true: all paths on one host share one session; a path that fails does not keep the others from
//! being looked at.

use std::io::IsTerminal;

use farhaul::copy::{Location, LocationSpec};
use farhaul::errors::{Code, ExitCode};
use farhaul::events::EventLevel;
use farhaul::read::Remote;
use farhaul::sisters::{escape, is_pattern};
use farhaul::{Error, Handle};
use serde::Serialize;

use super::cp;
use crate::args::read_verbs::ReadArgs;
use crate::descriptors;
use crate::ui::{log, printer};

/// Bytes that are collected before they are written.
const WRITTEN_AT_ONCE: usize = 64 << 10;

/// The outcome so far, and the output that is not written yet.
pub struct LookOutcome {
    json: bool,
    good: u64,
    failed: u64,
    first: Option<Error>,
    /// Why the output could not be written, such as a reader that is gone.
    unwritten: Option<Error>,
    out: Vec<u8>,
    is_terminal: bool,
}

/// A path that was named, and the host that it is on.
pub struct NamedPath<'a> {
    pub remote: &'a Remote,
    pub path: &'a [u8],
    /// Whether several paths were named.
    pub is_one_of_many: bool,
}

/// A path that could not be looked at, as `--json` prints it.
#[derive(Serialize)]
struct FailedPathJson<'a> {
    failed: String,
    code: &'static str,
    reason: &'a str,
}

/// Calls `act` for each path.
pub fn each(
    args: &ReadArgs,
    mut act: impl FnMut(&NamedPath<'_>, &mut LookOutcome) -> Result<(), Error>,
) -> ExitCode {
    together(args, |remote, paths, is_one_of_many, outcome| {
        for path in paths {
            let done = act(&NamedPath { remote, path: &path, is_one_of_many }, outcome);
            outcome.note(remote, &path, done)?;
            if outcome.is_lost() {
                break;
            }
        }
        Ok(())
    })
}

/// Calls `act` for each location, with all paths that it stands for and whether there are several paths in
/// all.
pub fn together(
    args: &ReadArgs,
    mut act: impl FnMut(&Remote, Vec<Vec<u8>>, bool, &mut LookOutcome) -> Result<(), Error>,
) -> ExitCode {
    log::to_stderr("off");
    let mut outcome = LookOutcome {
        json: args.json,
        good: 0,
        failed: 0,
        first: None,
        unwritten: None,
        out: Vec::new(),
        is_terminal: std::io::stdout().is_terminal(),
    };
    let looked = descriptors::output().and_then(|()| all(args, &mut outcome, &mut act));
    outcome.end(looked)
}

fn all(
    args: &ReadArgs,
    outcome: &mut LookOutcome,
    act: &mut impl FnMut(&Remote, Vec<Vec<u8>>, bool, &mut LookOutcome) -> Result<(), Error>,
) -> Result<(), Error> {
    let places =
        args.locations.iter().map(|text| LocationSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
    if places.iter().any(|place| *place == LocationSpec::Pipe || place.is_made() || place.is_sink()) {
        return Err(Error::new(
            Code::BadLocation,
            "pipes and null:, zero: or random: cannot be looked at; name files or directories",
        ));
    }
    let mut hosts: Vec<(LocationSpec, Remote)> = Vec::new();
    for place in &places {
        let at = match hosts.iter().position(|(host, _)| host.is_beside(place)) {
            Some(at) => at,
            None => {
                hosts.push((place.clone(), connect(place, args)?));
                hosts.len() - 1
            }
        };
        let remote = &hosts[at].1;
        let is_there = matches!(place, LocationSpec::Ssh(..) | LocationSpec::Daemon(..));
        let paths = match is_there && is_pattern(place.path()) {
            true => match remote.find(place.path()) {
                Ok(paths) => paths,
                Err(error) => {
                    outcome.note(remote, place.path(), Err(error))?;
                    continue;
                }
            },
            false => vec![place.path().to_vec()],
        };
        let is_one_of_many = places.len() > 1 || paths.len() > 1;
        act(remote, paths, is_one_of_many, outcome)?;
        if let Some(error) = outcome.unwritten.take() {
            return Err(error);
        }
    }
    outcome.flush();
    for (_, remote) in hosts {
        let report = remote.finish()?;
        if !args.quiet {
            report.warnings.iter().for_each(|text| printer::warning(text));
        }
    }
    Ok(())
}

/// Connects to the host of a location. Its paths are named relative to where the host's paths begin, not to
/// the location.
fn connect(place: &LocationSpec, args: &ReadArgs) -> Result<Remote, Error> {
    let location: Location = cp::location(&place.with_path(b""), &args.connection, args.quiet)?;
    let caller = Handle::new();
    let is_quiet = args.quiet;
    caller.hear(move |event| {
        if !is_quiet && event.level() == EventLevel::Notice {
            printer::line(&event.to_string());
        }
    });
    Remote::called_by(&caller, &location, args.network())
}

impl LookOutcome {
    /// Queues bytes for standard output.
    pub fn write(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= WRITTEN_AT_ONCE {
            self.flush();
        }
    }

    /// Writes a large piece of output at once, without copying it.
    pub fn pass_on(&mut self, bytes: &[u8]) {
        self.flush();
        if self.unwritten.is_none() {
            self.unwritten = printer::data(bytes).err();
        }
    }

    /// Returns a name as it is printed: escaped for a terminal, unchanged for a program.
    pub fn name(&self, name: &[u8]) -> Vec<u8> {
        if self.is_terminal { escape(name).into_bytes() } else { name.to_vec() }
    }

    /// Queues a JSON object and a line end.
    pub fn json(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.write(format!("{}\n", printer::harmless_json(&text)).as_bytes()),
            Err(error) => {
                self.unwritten.get_or_insert_with(|| Error::bug(error.to_string()));
            }
        }
    }

    /// Writes what is queued. After an error nothing more is written.
    pub fn flush(&mut self) {
        if self.unwritten.is_none()
            && !self.out.is_empty()
            && let Err(error) = printer::data(&self.out)
        {
            self.unwritten = Some(error);
        }
        self.out.clear();
    }

    /// Returns whether writing has failed, so that there is no use in going on.
    pub fn is_lost(&self) -> bool {
        self.unwritten.is_some()
    }

    /// Counts what became of a path. Returns an error if the session has ended and nothing more can be asked.
    pub fn note(&mut self, remote: &Remote, path: &[u8], done: Result<(), Error>) -> Result<(), Error> {
        match done {
            Ok(()) => self.good += 1,
            // An error that has ended the session is not the fault of this path.
            Err(error) => match remote.ended() {
                Some(ended) => return Err(ended),
                None => self.fail(path, error),
            },
        }
        Ok(())
    }

    /// Reports a path that could not be looked at.
    pub fn fail(&mut self, path: &[u8], error: Error) {
        self.flush();
        self.failed += 1;
        let shown = escape(path);
        let shown = if shown.is_empty() { ".".into() } else { shown };
        let reason = error.to_string();
        if self.json {
            self.json(&FailedPathJson { failed: shown.clone(), code: error.code().name(), reason: &reason });
        }
        printer::error(&error.about(&shown), None);
        self.first.get_or_insert(error);
    }

    fn end(mut self, looked: Result<(), Error>) -> ExitCode {
        self.flush();
        let error = looked.err().or(self.unwritten.take());
        match (error, self.first) {
            (Some(error), _) => {
                printer::error(&error, None);
                error.exit_code()
            }
            (None, Some(first)) if self.good == 0 => first.exit_code(),
            (None, Some(_)) => ExitCode::SomeFailed,
            (None, None) if self.failed > 0 => ExitCode::SomeFailed,
            (None, None) => ExitCode::Ok,
        }
    }
}
