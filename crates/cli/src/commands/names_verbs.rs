//! `farhaul mkdir`, `mv` and `rm`: change names where they are.
//!
//! Always true: all paths on one host share one session; a path that fails does not keep the others from being changed.

use std::ffi::OsString;

use farhaul::copy::{Location, LocationSpec};
use farhaul::errors::{Code, ExitCode};
use farhaul::events::EventLevel;
use farhaul::names::{IntoDirectory, RemoteNames, RemoveExtent, RenameRule};
use farhaul::read::Remote;
use farhaul::sisters::{escape, is_pattern};
use farhaul::{Error, Handle};

use super::cp;
use crate::args::names_verbs::{MkdirArgs, MvArgs, NamesArgs, RmArgs};
use crate::ui::{log, printer};

pub fn mkdir(args: &MkdirArgs) -> ExitCode {
    finish(|changes| {
        for place in places(&args.locations)? {
            let path = place.path();
            let made = changes.at(&place, &args.common)?.make_directory(path, args.parents);
            changes.note(&place, made, &args.common, "made")?;
        }
        Ok(())
    })
}

pub fn mv(args: &MvArgs) -> ExitCode {
    finish(|changes| {
        let mut sources = places(&args.locations)?;
        let Some(target) = sources.pop() else { return Err(Error::bug("mv without a location")) };
        if !sources.iter().all(|source| source.is_beside(&target)) {
            let what = "mv renames within one host, and the locations are on several";
            return Err(Error::new(Code::BadLocation, what).with_hint("copy with `farhaul cp`, then remove"));
        }
        let into = match (args.no_target_directory, sources.len()) {
            (true, 1) => IntoDirectory::Never,
            (true, _) => {
                let what = "`no-target-directory` is for one source and its new name";
                return Err(Error::new(Code::BadOption, what));
            }
            (false, 1) => IntoDirectory::IfThere,
            (false, _) => IntoDirectory::Must,
        };
        let rule = if args.no_clobber { RenameRule::Keep } else { RenameRule::Replace };
        for source in sources {
            let names = changes.at(&source, &args.common)?;
            let renamed = names.rename(source.path(), target.path(), into, rule);
            changes.note(&source, renamed, &args.common, "renamed")?;
        }
        Ok(())
    })
}

pub fn rm(args: &RmArgs) -> ExitCode {
    let extent = if args.recursive { RemoveExtent::Tree } else { RemoveExtent::File };
    finish(|changes| {
        for place in places(&args.locations)? {
            for place in matching(place, &args.common)? {
                let removed = changes.at(&place, &args.common)?.remove(place.path(), extent);
                let removed = match removed {
                    Err(error) if args.force && error.code() == Code::NotFound => continue,
                    Err(error) if error.code() == Code::BadPath && !args.recursive => {
                        Err(error.with_hint("-r removes directories"))
                    }
                    removed => removed,
                };
                changes.note(&place, removed, &args.common, "removed")?;
            }
        }
        Ok(())
    })
}

/// Sessions with all hosts so far, and what has become of the paths.
#[derive(Default)]
struct Changes {
    hosts: Vec<(LocationSpec, RemoteNames)>,
    good: u64,
    first: Option<Error>,
}

fn finish(change: impl FnOnce(&mut Changes) -> Result<(), Error>) -> ExitCode {
    log::to_stderr("off");
    let mut changes = Changes::default();
    let result = change(&mut changes);
    match (result, changes.first) {
        (Err(error), _) => {
            printer::error(&error, None);
            error.exit_code()
        }
        (Ok(()), Some(first)) if changes.good == 0 => first.exit_code(),
        (Ok(()), Some(_)) => ExitCode::SomeFailed,
        (Ok(()), None) => ExitCode::Ok,
    }
}

impl Changes {
    /// The session with the host of a location. Its paths begin where the host's paths begin.
    fn at(&mut self, place: &LocationSpec, args: &NamesArgs) -> Result<&RemoteNames, Error> {
        let at = match self.hosts.iter().position(|(host, _)| host.is_beside(place)) {
            Some(at) => at,
            None => {
                let location = location(place, args)?;
                let names = RemoteNames::called_by(&caller(args), None, &location, args.network.options())?;
                self.hosts.push((place.clone(), names));
                self.hosts.len() - 1
            }
        };
        Ok(&self.hosts[at].1)
    }

    /// Counts what became of a path. Returns an error if nothing more can be asked of its host.
    fn note(
        &mut self,
        place: &LocationSpec,
        done: Result<(), Error>,
        args: &NamesArgs,
        change: &str,
    ) -> Result<(), Error> {
        let shown = escape(place.path());
        match done {
            Ok(()) => {
                self.good += 1;
                if args.verbose {
                    printer::line(&format!("{change} {shown}"));
                }
            }
            Err(error) if self.at(place, args)?.has_ended() => return Err(error),
            Err(error) => {
                printer::error(&error.about(&shown), None);
                self.first.get_or_insert(error);
            }
        }
        Ok(())
    }
}

fn places(locations: &[OsString]) -> Result<Vec<LocationSpec>, Error> {
    let places = locations.iter().map(|text| LocationSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
    if places.iter().any(|place| *place == LocationSpec::Pipe || place.is_made() || place.is_sink()) {
        let what = "pipes and null:, zero: or random: have no names; name files or directories";
        return Err(Error::new(Code::BadLocation, what));
    }
    Ok(places)
}

/// What a pattern on a far host stands for; any other location stands for itself.
fn matching(place: LocationSpec, args: &NamesArgs) -> Result<Vec<LocationSpec>, Error> {
    if place.host().is_none() || !is_pattern(place.path()) {
        return Ok(vec![place]);
    }
    let remote = Remote::called_by(&caller(args), &location(&place, args)?, args.network.options())?;
    let found = remote.find(place.path())?;
    remote.finish()?;
    Ok(found.iter().map(|path| place.with_path(path)).collect())
}

fn location(place: &LocationSpec, args: &NamesArgs) -> Result<Location, Error> {
    cp::location(&place.with_path(b""), &args.connection, args.quiet)
}

fn caller(args: &NamesArgs) -> Handle {
    let (caller, is_quiet) = (Handle::new(), args.quiet);
    caller.hear(move |event| {
        if !is_quiet && event.level() == EventLevel::Notice {
            printer::line(&event.to_string());
        }
    });
    caller
}
