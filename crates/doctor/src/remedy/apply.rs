//! Applies and undoes.

use super::gauge::Gauge;
use super::trial::{Trial, Verdict};
use super::undo_file::{Record, UndoFile};
use crate::check::{Change, Check, Effect, Group, Measurement};
use crate::diagnosis::{Diagnosis, Found};
use crate::host::{Host, value};
use crate::{Error, check};

/// What to do with remedies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// Keep also what brings nothing here.
    pub keeps_neutral: bool,
    /// Set it again at each start.
    pub is_persistent: bool,
}

/// Changes that are applied, judged and taken back together.
pub struct Unit<'a> {
    /// The group, if they have one.
    pub group: Option<Group>,
    /// The findings.
    pub found: Vec<&'a Found>,
}

impl Unit<'_> {
    fn changes(&self) -> Vec<(&'static Check, &Change)> {
        self.found
            .iter()
            .flat_map(|found| found.finding.changes.iter().map(|change| (found.check, change)))
            .collect()
    }

    /// The measurements that can judge it here.
    fn measurements(&self) -> Vec<Measurement> {
        let mut all = Vec::new();
        for found in &self.found {
            if let Effect::Here(measurement) = found.check.effect
                && !all.contains(&measurement)
            {
                all.push(measurement);
            }
        }
        all
    }

    /// The IDs of its checks.
    pub fn ids(&self) -> Vec<&'static str> {
        let mut ids: Vec<&str> = self.found.iter().map(|found| found.check.id).collect();
        ids.dedup();
        ids
    }
}

/// Returns the units of the findings that are to be applied: those with these IDs, or without IDs all whose effect can be
/// measured here.
pub fn units<'a>(diagnosis: &'a Diagnosis, ids: &[String]) -> Result<Vec<Unit<'a>>, Error> {
    for id in ids {
        check::find(id).ok_or_else(|| Error::UnknownCheck(id.clone()))?;
    }
    let is_wanted = |found: &&Found| match ids {
        [] => matches!(found.check.effect, Effect::Here(_)),
        ids => ids.iter().any(|id| check::find(id).is_some_and(|check| check.id == found.check.id)),
    };
    let mut units: Vec<Unit<'_>> = Vec::new();
    for found in diagnosis.found.iter().filter(is_wanted).filter(|found| !found.finding.changes.is_empty()) {
        let group = found.check.group;
        match units.iter_mut().find(|unit| group.is_some() && unit.group == group) {
            Some(unit) => unit.found.push(found),
            None => units.push(Unit { group, found: vec![found] }),
        }
    }
    Ok(units)
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It is better, or was to be kept; the trials are those that were made.
    Kept(Vec<Trial>),
    /// It brought nothing, or made something worse.
    TakenBack(Vec<Trial>),
    /// It is set, and nothing here can say what it brings.
    NotMeasured,
    /// Every setting has its value already.
    NothingToDo,
}

/// A unit and what became of it.
pub struct Applied {
    /// The IDs of the checks.
    pub ids: Vec<&'static str>,
    /// The settings with their values before and after.
    pub settings: Vec<(String, String, String)>,
    /// The settings that were refused, and why; the others of the unit are applied without them.
    pub refused: Vec<(String, Error)>,
    /// What became of it.
    pub outcome: Result<Outcome, Error>,
}

/// Applies a unit: notes the earlier values, sets the new ones, measures both in turns, and decides.
pub fn apply(
    host: &dyn Host,
    undo_file: &mut UndoFile,
    unit: &Unit<'_>,
    gauge: &dyn Gauge,
    wish: Wish,
) -> Applied {
    let mut made = Applied {
        ids: unit.ids(),
        settings: Vec::new(),
        refused: Vec::new(),
        outcome: Ok(Outcome::NothingToDo),
    };
    made.outcome = applied(host, undo_file, unit, gauge, wish, &mut made.settings, &mut made.refused);
    made
}

fn applied(
    host: &dyn Host,
    undo_file: &mut UndoFile,
    unit: &Unit<'_>,
    gauge: &dyn Gauge,
    wish: Wish,
    settings: &mut Vec<(String, String, String)>,
    refused: &mut Vec<(String, Error)>,
) -> Result<Outcome, Error> {
    let boot = boot_of(host);
    let first = undo_file.records.len();
    for (check, change) in unit.changes() {
        let Some(before) = current(host, &change.place) else {
            let error = Error::not_set(&change.place, &change.value, "it cannot be read");
            refused.push((change.place.clone(), error));
            continue;
        };
        let is_there = undo_file.records[first..].iter().any(|record| record.place == change.place);
        if before != settled(&change.place, &change.value) && !is_there {
            undo_file.records.push(Record {
                check: check.id.to_owned(),
                place: change.place.clone(),
                before,
                after: settled(&change.place, &change.value),
                boot: boot.clone(),
                is_persistent: false,
            });
        }
    }
    if undo_file.records.len() == first {
        return nothing_set(refused);
    }
    undo_file.save()?;
    if let Err(error) = set_new(host, undo_file, first, refused) {
        take_back(host, undo_file, first)?;
        return Err(error);
    }
    if undo_file.records.len() == first {
        return nothing_set(refused);
    }
    settings.extend(
        undo_file.records[first..]
            .iter()
            .map(|record| (record.place.clone(), record.before.clone(), record.after.clone())),
    );
    let measurements = unit.measurements();
    let outcome = if measurements.is_empty() {
        Outcome::NotMeasured
    } else {
        match judged(host, undo_file, first, gauge, &measurements) {
            Ok(trials) => decided(trials, wish),
            // Nobody knows what it brings, so it does not stay.
            Err(error) => {
                take_back(host, undo_file, first)?;
                return Err(error);
            }
        }
    };
    if matches!(outcome, Outcome::TakenBack(_)) {
        take_back(host, undo_file, first)?;
    } else {
        undo_file.records[first..].iter_mut().for_each(|record| record.is_persistent = wish.is_persistent);
        undo_file.save()?;
    }
    Ok(outcome)
}

/// The outcome of a unit of which nothing was set: the first refusal, if there was one.
fn nothing_set(refused: &mut Vec<(String, Error)>) -> Result<Outcome, Error> {
    if refused.is_empty() { Ok(Outcome::NothingToDo) } else { Err(refused.remove(0).1) }
}

/// Sets the new values, and notes what the system has made of them. A setting that is refused is left out, with its
/// record; an error is one of the undo file.
fn set_new(
    host: &dyn Host,
    undo_file: &mut UndoFile,
    first: usize,
    refused: &mut Vec<(String, Error)>,
) -> Result<(), Error> {
    let mut index = first;
    while index < undo_file.records.len() {
        let Record { place, before, after, .. } = undo_file.records[index].clone();
        let written = host.write(&place, &after);
        let actual = current(host, &place).unwrap_or_default();
        let error = match written {
            Ok(()) if actual != before => None,
            Ok(()) => Some(Error::not_set(&place, &after, "the system keeps the earlier value")),
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            if actual != before {
                host.write(&place, &before)?;
            }
            undo_file.records.remove(index);
            undo_file.save()?;
            refused.push((place, error));
            continue;
        }
        if actual != after {
            undo_file.records[index].after = actual;
            undo_file.save()?;
        }
        index += 1;
    }
    Ok(())
}

/// Measures with the earlier values and with the new ones in turns; the new ones are set at the end.
fn judged(
    host: &dyn Host,
    undo_file: &UndoFile,
    first: usize,
    gauge: &dyn Gauge,
    measurements: &[Measurement],
) -> Result<Vec<Trial>, Error> {
    const ROUNDS: usize = 5;
    let mut trials: Vec<Trial> = measurements.iter().map(|&measurement| Trial::new(measurement)).collect();
    let records = &undo_file.records[first..];
    for _ in 0..ROUNDS {
        for record in records.iter().rev() {
            host.write(&record.place, &record.before)?;
        }
        for trial in &mut trials {
            trial.before.push(gauge.measure(trial.measurement)?);
        }
        for record in records {
            host.write(&record.place, &record.after)?;
        }
        for trial in &mut trials {
            trial.after.push(gauge.measure(trial.measurement)?);
        }
    }
    Ok(trials)
}

fn decided(trials: Vec<Trial>, wish: Wish) -> Outcome {
    let is = |verdict: Verdict| trials.iter().any(|trial| trial.verdict() == verdict);
    match () {
        () if is(Verdict::Worse) => Outcome::TakenBack(trials),
        () if is(Verdict::Better) || wish.keeps_neutral => Outcome::Kept(trials),
        () => Outcome::TakenBack(trials),
    }
}

/// Writes the earlier values of the records from `first` on, the last first, and forgets these records.
fn take_back(host: &dyn Host, undo_file: &mut UndoFile, first: usize) -> Result<(), Error> {
    while undo_file.records.len() > first {
        let Some(record) = undo_file.records.last() else { break };
        if current(host, &record.place).as_deref() != Some(record.before.as_str()) {
            host.write(&record.place, &record.before)?;
        }
        undo_file.records.pop();
        undo_file.save()?;
    }
    Ok(())
}

/// What became of a setting that was to be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// It has its earlier value again.
    Back {
        /// The setting.
        place: String,
        /// Its value.
        value: String,
    },
    /// It had its earlier value already: it was never set, or the host has started anew.
    WasBack {
        /// The setting.
        place: String,
    },
    /// Somebody else has changed it since, so that it was left.
    ChangedByOther {
        /// The setting.
        place: String,
        /// The value that the doctor had set.
        ours: String,
        /// The value that it has.
        now: String,
    },
    /// It could not be set.
    Failed {
        /// The setting.
        place: String,
        /// Why.
        reason: String,
    },
}

/// Undoes what the checks with these IDs have changed, or everything; the last change first.
pub fn undo(host: &dyn Host, undo_file: &mut UndoFile, ids: &[String]) -> Result<Vec<Undone>, Error> {
    for id in ids {
        check::find(id).ok_or_else(|| Error::UnknownCheck(id.clone()))?;
    }
    let is_wanted = |record: &Record| {
        ids.is_empty() || ids.iter().any(|id| check::find(id).is_some_and(|check| check.id == record.check))
    };
    let mut undone = Vec::new();
    for index in (0..undo_file.records.len()).rev() {
        if !is_wanted(&undo_file.records[index]) {
            continue;
        }
        let record = undo_file.records[index].clone();
        let now = current(host, &record.place);
        let place = record.place.clone();
        let what = match now {
            Some(now) if now == record.before => Undone::WasBack { place },
            Some(now) if now == record.after => match host.write(&place, &record.before) {
                Ok(()) => Undone::Back { place, value: record.before },
                Err(error) => Undone::Failed { place, reason: error.to_string() },
            },
            // A start of the host has set everything anew, and nobody remembers what was there before.
            _ if record.boot != boot_of(host) => Undone::WasBack { place },
            Some(now) => Undone::ChangedByOther { place, ours: record.after, now },
            None => Undone::Failed { place, reason: "it is not there any more".into() },
        };
        if !matches!(what, Undone::Failed { .. }) {
            undo_file.records.remove(index);
            undo_file.save()?;
        }
        undone.push(what);
    }
    Ok(undone)
}

fn boot_of(host: &dyn Host) -> String {
    value(host, "proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// The value that a setting has, in the form in which it is written.
fn current(host: &dyn Host, place: &str) -> Option<String> {
    Some(settled(place, &value(host, place)?))
}

/// A value in the form in which it is written: one space between words, of a choice only what is chosen.
fn settled(place: &str, text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    if let Some(chosen) = words.iter().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')) {
        return chosen.to_owned();
    }
    // "layer3+4 1": the policy and its number.
    if place.ends_with("/xmit_hash_policy") {
        return words.first().copied().unwrap_or_default().to_owned();
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use super::*;
    use crate::host::{Recording, Unseen};
    use crate::target::Role;

    const HOST: &str = "proc/sys/kernel/random/boot_id = a\nproc/sys/net/core/rmem_max = 212992\n\
        proc/sys/net/core/wmem_max = 212992\nproc/sys/net/ipv4/tcp_rmem = 4096\t131072\t6291456\n\
        sys/devices/system/cpu/cpu0/cpufreq/scaling_governor = powersave\n";

    fn host() -> Recording {
        let mut host = Recording::default();
        host.add(HOST).unwrap();
        host
    }

    /// Says that more of a place's value is better.
    struct Sum<'a>(&'a dyn Host, f64);

    impl Gauge for Sum<'_> {
        fn measure(&self, _: Measurement) -> Result<f64, Error> {
            let number = |place| value(self.0, place).unwrap().parse::<f64>().unwrap();
            Ok(1000.0 + self.1 * number("proc/sys/net/core/rmem_max"))
        }
    }

    fn places(host: &dyn Host) -> Vec<String> {
        let sysctls = ["net/core/rmem_max", "net/core/wmem_max", "net/ipv4/tcp_rmem"]
            .map(|name| format!("proc/sys/{name}"));
        let places =
            sysctls.into_iter().chain(["sys/devices/system/cpu/cpu0/cpufreq/scaling_governor".into()]);
        places.map(|place| host.read(&place).unwrap()).collect()
    }

    fn run(host: &dyn Host, path: &Path, effect: f64, wish: Wish) -> Vec<Result<Outcome, Error>> {
        let diagnosis = Diagnosis::of(host, Some(10_000_000_000), Some(Role::Dtn));
        let mut undo_file = UndoFile::open(path).unwrap();
        let units = units(&diagnosis, &[]).unwrap();
        assert_eq!(units.len(), 2, "the buffers together, and the governor");
        units.iter().map(|unit| apply(host, &mut undo_file, unit, &Sum(host, effect), wish).outcome).collect()
    }

    #[test]
    fn what_is_better_stays_and_is_undone_to_the_letter() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let path = folder.path().join("undo.json");
        let outcomes = run(&host, &path, 1.0, Wish::default());
        assert!(
            matches!(&outcomes[1], Ok(Outcome::TakenBack(_))),
            "the governor changes nothing of this figure"
        );
        assert!(matches!(&outcomes[0], Ok(Outcome::Kept(trials)) if trials[0].verdict() == Verdict::Better));
        assert_eq!(value(&host, "proc/sys/net/core/rmem_max").unwrap(), "67108864");
        assert_eq!(value(&host, "proc/sys/net/ipv4/tcp_rmem").unwrap(), "4096 131072 33554432");
        let mut undo_file = UndoFile::open(&path).unwrap();
        let undone = undo(&host, &mut undo_file, &[]).unwrap();
        assert_eq!(undone.len(), 3, "{undone:?}");
        assert!(undo_file.is_empty());
        assert_eq!(places(&host)[..2], ["212992\n", "212992\n"]);
        assert_eq!(places(&host)[2], "4096 131072 6291456\n");
    }

    #[test]
    fn what_is_worse_or_brings_nothing_is_taken_back() {
        for (effect, wish) in
            [(-0.001, Wish { keeps_neutral: true, ..Wish::default() }), (0.0, Wish::default())]
        {
            let (host, folder) = (host(), tempfile::tempdir().unwrap());
            let outcomes = run(&host, &folder.path().join("undo.json"), effect, wish);
            assert!(matches!(outcomes[0], Ok(Outcome::TakenBack(_))), "{effect}");
            assert_eq!(value(&host, "proc/sys/net/core/rmem_max").unwrap(), "212992");
            let undo_file = UndoFile::open(&folder.path().join("undo.json")).unwrap();
            assert!(
                !undo_file.records.iter().any(|record| record.place.contains("rmem")),
                "nothing is left to undo"
            );
        }
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let wish = Wish { keeps_neutral: true, ..Wish::default() };
        let outcomes = run(&host, &folder.path().join("undo.json"), 0.0, wish);
        assert!(
            outcomes.iter().all(|outcome| matches!(outcome, Ok(Outcome::Kept(_)))),
            "somebody asked to keep it"
        );
    }

    #[test]
    fn what_somebody_else_has_changed_is_named_and_left() {
        let (host, folder) = (host(), tempfile::tempdir().unwrap());
        let path = folder.path().join("undo.json");
        run(&host, &path, 1.0, Wish::default());
        host.write("proc/sys/net/core/rmem_max", "1000000").unwrap();
        let undone = undo(&host, &mut UndoFile::open(&path).unwrap(), &[]).unwrap();
        let left: Vec<_> =
            undone.iter().filter(|what| matches!(what, Undone::ChangedByOther { .. })).collect();
        assert_eq!(
            left,
            [&Undone::ChangedByOther {
                place: "proc/sys/net/core/rmem_max".into(),
                ours: "67108864".into(),
                now: "1000000".into()
            }]
        );
        assert_eq!(value(&host, "proc/sys/net/core/rmem_max").unwrap(), "1000000");
        assert_eq!(value(&host, "proc/sys/net/core/wmem_max").unwrap(), "212992");
    }

    /// A host whose program is killed at its n-th question or change.
    struct Crashing<'a> {
        host: &'a Recording,
        left: Cell<u32>,
        crashed: RefCell<bool>,
    }

    impl Crashing<'_> {
        fn step(&self) {
            match self.left.get() {
                0 => {
                    *self.crashed.borrow_mut() = true;
                    std::panic::resume_unwind(Box::new("killed"));
                }
                left => self.left.set(left - 1),
            }
        }
    }

    impl Host for Crashing<'_> {
        fn read(&self, place: &str) -> Result<String, Unseen> {
            self.step();
            self.host.read(place)
        }

        fn list(&self, place: &str) -> Vec<String> {
            self.host.list(place)
        }

        fn link(&self, place: &str) -> Option<String> {
            self.host.link(place)
        }

        fn write(&self, place: &str, value: &str) -> Result<(), Error> {
            self.step();
            self.host.write(place, value)?;
            self.step();
            Ok(())
        }
    }

    #[test]
    fn a_crash_between_any_two_steps_leaves_nothing_that_undo_does_not_mend() {
        let mut crashes = 0;
        for steps in 0.. {
            let (host, folder) = (host(), tempfile::tempdir().unwrap());
            let path = folder.path().join("undo.json");
            let before: Vec<String> = places(&host).iter().map(|text| settled("", text)).collect();
            let crashing = Crashing { host: &host, left: Cell::new(steps), crashed: RefCell::new(false) };
            let _ = catch_unwind(AssertUnwindSafe(|| run(&crashing, &path, 1.0, Wish::default())));
            let undone = undo(&host, &mut UndoFile::open(&path).unwrap(), &[]).unwrap();
            assert!(
                !undone
                    .iter()
                    .any(|what| matches!(what, Undone::ChangedByOther { .. } | Undone::Failed { .. })),
                "{steps}: {undone:?}"
            );
            let after: Vec<String> = places(&host).iter().map(|text| settled("", text)).collect();
            assert_eq!(before, after, "killed at step {steps}");
            if !*crashing.crashed.borrow() {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 50, "only {crashes} places to be killed at");
    }

    #[test]
    fn the_others_of_a_group_are_applied_without_one_that_is_refused() {
        let (mut host, folder) = (host(), tempfile::tempdir().unwrap());
        host.add("proc/sys/net/core/wmem_max = 1000\n").unwrap();
        struct Refusing<'a>(&'a Recording);
        impl Host for Refusing<'_> {
            fn read(&self, place: &str) -> Result<String, Unseen> {
                self.0.read(place)
            }
            fn list(&self, place: &str) -> Vec<String> {
                self.0.list(place)
            }
            fn link(&self, place: &str) -> Option<String> {
                self.0.link(place)
            }
            fn write(&self, place: &str, value: &str) -> Result<(), Error> {
                match place.ends_with("wmem_max") {
                    true => Err(Error::not_set(place, value, "read-only file system")),
                    false => self.0.write(place, value),
                }
            }
        }
        let path = folder.path().join("undo.json");
        let refusing = Refusing(&host);
        let diagnosis = Diagnosis::of(&refusing, Some(10_000_000_000), Some(Role::Dtn));
        let units = units(&diagnosis, &["socket-buffers".into(), "tcp-rmem".into()]).unwrap();
        let mut undo_file = UndoFile::open(&path).unwrap();
        let gauge = Sum(&refusing, 1.0);
        let applied = apply(&refusing, &mut undo_file, &units[0], &gauge, Wish::default());
        assert!(matches!(applied.outcome, Ok(Outcome::Kept(_))), "{:?}", applied.outcome);
        let [(place, error)] = &applied.refused[..] else { panic!("{:?}", applied.refused) };
        assert!(place.ends_with("wmem_max") && error.to_string().contains("read-only"));
        assert_eq!(value(&host, "proc/sys/net/core/rmem_max").unwrap(), "67108864");
        assert_eq!(value(&host, "proc/sys/net/core/wmem_max").unwrap(), "1000");
        assert_eq!(applied.settings.len(), 2);
        let undone = undo(&refusing, &mut undo_file, &[]).unwrap();
        assert!(
            undone.len() == 2 && undone.iter().all(|what| matches!(what, Undone::Back { .. })),
            "{undone:?}"
        );
        // If nothing of a unit can be set, that is its error.
        host.write("proc/sys/net/core/rmem_max", "67108864").unwrap();
        host.write("proc/sys/net/ipv4/tcp_rmem", "4096 131072 33554432").unwrap();
        let alone = apply(&refusing, &mut undo_file, &units[0], &gauge, Wish::default());
        assert!(alone.outcome.is_err() && alone.refused.is_empty());
        assert!(undo_file.is_empty());
    }
}
