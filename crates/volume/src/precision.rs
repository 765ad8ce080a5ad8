//! How precisely a file system keeps modification times: to the nanosecond, to the second (ext4 with inodes
//! of 128 bytes), to two seconds (FAT), and within a range of years. The time that it keeps may therefore
//! differ from the one that was set, which is no reason to send a file again.
//!
//! It is found out by setting times on a file without a name, once for each file system, and only if two
//! times differ in a way that a coarse file system would explain. If no such file can be created, the known
//! properties of the file system's number are used, and last the time that the file system's own clock has
//! written beside the time in question.
//!
//! Always true: if a file system can keep the difference of two times, they never count as equal.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{self, Mode};

use crate::change;
use crate::entry::{FileTime, Metadata};
use crate::metadata::times;
use crate::writeback::WriteOrdering;

const SECOND: u64 = 1_000_000_000;
/// The steps in nanoseconds that file systems use: NTFS and SMB (100 ns), some network file systems (1 µs,
/// 1 ms), exFAT (10 ms), many (1 s), FAT (2 s).
const STEPS: [u64; 6] = [100, 1_000, 1_000_000, 10_000_000, SECOND, 2 * SECOND];
/// The times that also file systems with a narrow range keep: from 1980 (FAT) to 2038 (seconds in 32 bits).
const COMMON_RANGE: std::ops::RangeInclusive<i64> = 315_705_600..=0x7fff_fffe;
/// Times that most file systems cannot keep: the years 1811 and 2603.
const FAR: (i64, i64) = (-5_000_000_000, 20_000_000_000);

/// How a file system keeps modes and modification times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    /// The step of its times in nanoseconds.
    step_ns: u64,
    /// It rounds to the nearest step, not down.
    rounds: bool,
    /// In seconds since 1970.
    earliest: Option<i64>,
    latest: Option<i64>,
    /// A mode that is set is kept as it is.
    pub keeps_modes: bool,
}

impl Precision {
    const FULL: Precision =
        Precision { step_ns: 1, rounds: false, earliest: None, latest: None, keeps_modes: true };

    /// Whether `there` is the time that this file system keeps if `wanted` is set.
    pub fn is_kept_as(&self, wanted: FileTime, there: FileTime) -> bool {
        let within = self.within_range(wanted);
        floor(within, self.step_ns) == there
            || self.rounds && ns(within).abs_diff(ns(there)) < u128::from(self.step_ns)
    }

    /// The limits for people, such as `in steps of 2 s`.
    pub fn limits(&self) -> String {
        match self.step_ns {
            1 => "of some years only".into(),
            _ => format!("in steps of {}", self.step()),
        }
    }

    fn step(&self) -> String {
        match self.step_ns {
            step if step % SECOND == 0 => format!("{} s", step / SECOND),
            step if step % 1_000_000 == 0 => format!("{} ms", step / 1_000_000),
            step if step % 1_000 == 0 => format!("{} µs", step / 1_000),
            step => format!("{step} ns"),
        }
    }

    fn within_range(&self, time: FileTime) -> FileTime {
        // In its first and its last second, the kernel keeps no fraction.
        match (self.earliest, self.latest) {
            (Some(earliest), _) if time.secs <= earliest => FileTime::new(earliest, 0),
            (_, Some(latest)) if time.secs >= latest => FileTime::new(latest, 0),
            _ => time,
        }
    }

    /// Finds the precision by an empty file of our own.
    pub(crate) fn probe(file: &File) -> Option<Precision> {
        let medium = WriteOrdering::of(file);
        let kept = |time: FileTime| -> Option<FileTime> {
            change::futimens(file, &times(medium, time)).ok()?;
            Some(Metadata::from(&fs::fstat(file).ok()?).mtime)
        };
        let asked = FileTime::new(1_000_000_001, 999_999_999);
        let there = kept(asked)?;
        let exact = std::iter::once(1).chain(STEPS).find(|&step| floor(asked, step) == there);
        let near = || STEPS.into_iter().find(|&step| ns(asked).abs_diff(ns(there)) < u128::from(step));
        let step_ns = exact.or_else(near)?;
        let earliest = kept(FileTime::new(FAR.0, 0)).map(|time| time.secs).filter(|&secs| secs > FAR.0);
        let latest = kept(FileTime::new(FAR.1, 0)).map(|time| time.secs).filter(|&secs| secs < FAR.1);
        let keeps_modes = [0o640, 0o600].into_iter().all(|mode| {
            change::fchmod(file, Mode::from_raw_mode(mode)).is_ok()
                && fs::fstat(file).is_ok_and(|there| Metadata::from(&there).mode == mode)
        });
        Some(Precision { step_ns, rounds: exact.is_none(), earliest, latest, keeps_modes })
    }

    /// The precision that is known from the number of the file system.
    pub(crate) fn of_kind(there: impl AsFd) -> Option<Precision> {
        let kind = kind(there);
        let coarse = |step_ns| Some(Precision { step_ns, keeps_modes: false, ..Precision::FULL });
        match kind {
            // FAT, exFAT
            0x4d44 => coarse(2 * SECOND),
            0x2011_bab0 => coarse(10_000_000),
            _ => None,
        }
    }

    /// Derives the precision from the times of one file: the kernel has written `there.ctime` by its clock,
    /// to the step of the file system. Some file systems of programs (`is_of_program`) have no ctime, and
    /// report the mtime instead.
    pub(crate) fn of_clock(wanted: FileTime, there: &Metadata, is_of_program: bool) -> Option<Precision> {
        let has_clock = there.ctime != there.mtime || is_of_program;
        // Nobody changes a file twice within a microsecond.
        let tells = |step: u64| step <= 1_000 || has_clock && floor(there.ctime, step) == there.ctime;
        let step_ns = STEPS.into_iter().find(|&step| explains(step, wanted, there.mtime) && tells(step))?;
        Some(Precision { step_ns, ..Precision::FULL })
    }
}

fn kind(there: impl AsFd) -> i64 {
    #[allow(clippy::unnecessary_cast, reason = "the field's width differs between architectures")]
    fs::fstatfs(there).map_or(0, |stat| stat.f_type as i64 & 0xffff_ffff)
}

/// Whether a program provides the file system (FUSE).
pub(crate) fn is_of_program(there: impl AsFd) -> bool {
    kind(there) == 0x6573_5546
}

/// Whether a coarse or narrow file system would explain that the time `there` differs from `wanted`.
pub(crate) fn may_be_kept_as(wanted: FileTime, there: FileTime) -> bool {
    !COMMON_RANGE.contains(&wanted.secs) || STEPS.into_iter().any(|step| explains(step, wanted, there))
}

fn explains(step: u64, wanted: FileTime, there: FileTime) -> bool {
    floor(there, step) == there && ns(wanted).abs_diff(ns(there)) < u128::from(step)
}

/// The times that coarse file systems may keep of a time, from the finest to the coarsest.
pub fn coarser(time: FileTime) -> impl Iterator<Item = FileTime> {
    STEPS.into_iter().map(move |step| floor(time, step))
}

/// Whether two times differ by at most `secs` seconds.
pub fn are_within(one: FileTime, other: FileTime, secs: u64) -> bool {
    ns(one).abs_diff(ns(other)) <= u128::from(secs) * u128::from(SECOND)
}

fn ns(time: FileTime) -> i128 {
    i128::from(time.secs) * i128::from(SECOND) + i128::from(time.nanos)
}

fn floor(time: FileTime, step: u64) -> FileTime {
    let ns = ns(time).div_euclid(i128::from(step)) * i128::from(step);
    let secs = i64::try_from(ns.div_euclid(i128::from(SECOND))).unwrap_or(time.secs);
    FileTime::new(secs, ns.rem_euclid(i128::from(SECOND)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_step(step_ns: u64) -> Precision {
        Precision { step_ns, ..Precision::FULL }
    }

    #[test]
    fn a_time_is_kept_as_the_step_before_it_and_as_nothing_else() {
        let wanted = FileTime::new(1_700_000_001, 987_654_321);
        for (step, there) in [
            (1, wanted),
            (100, FileTime::new(1_700_000_001, 987_654_300)),
            (10_000_000, FileTime::new(1_700_000_001, 980_000_000)),
            (SECOND, FileTime::new(1_700_000_001, 0)),
            (2 * SECOND, FileTime::new(1_700_000_000, 0)),
        ] {
            let precision = of_step(step);
            assert!(precision.is_kept_as(wanted, there), "{step}");
            assert!(there == wanted || may_be_kept_as(wanted, there), "{step}");
            for other in
                [FileTime::new(there.secs + 2, there.nanos), FileTime::new(there.secs - 2, there.nanos)]
            {
                assert!(!precision.is_kept_as(wanted, other), "{step}");
            }
        }
        assert!(!of_step(1).is_kept_as(wanted, FileTime::new(wanted.secs, 0)));
        assert!(!may_be_kept_as(wanted, FileTime::new(wanted.secs, 123_456_789)));
        assert!(of_step(SECOND).is_kept_as(FileTime::new(-1, 5), FileTime::new(-1, 0)), "before 1970");
        let rounds = Precision { rounds: true, ..of_step(SECOND) };
        assert!(rounds.is_kept_as(wanted, FileTime::new(wanted.secs + 1, 0)));
    }

    #[test]
    fn what_lies_beyond_the_range_is_kept_as_its_end() {
        let narrow = Precision { earliest: Some(0), latest: Some(0x7fff_ffff), ..of_step(SECOND) };
        for (wanted, there) in
            [(4_000_000_000, 0x7fff_ffff), (-77, 0), (0x7fff_ffff, 0x7fff_ffff), (1_000, 1_000)]
        {
            let (wanted, there) = (FileTime::new(wanted, 5), FileTime::new(there, 0));
            assert!(narrow.is_kept_as(wanted, there) && may_be_kept_as(wanted, there), "{wanted:?}");
        }
    }

    #[test]
    fn this_file_system_keeps_what_its_files_have() {
        let file = tempfile::tempfile().unwrap();
        let precision = Precision::probe(&file).unwrap();
        let wanted = FileTime::new(1_234_567_891, 123_456_789);
        fs::futimens(&file, &times(WriteOrdering::of(&file), wanted)).unwrap();
        let there = Metadata::from(&fs::fstat(&file).unwrap());
        assert!(precision.is_kept_as(wanted, there.mtime), "{precision:?} {there:?}");
        assert!(precision.keeps_modes);
    }

    #[test]
    fn the_clock_of_a_file_system_tells_its_step() {
        let wanted = FileTime::new(1_700_000_000, 5_000);
        let there = |ctime| {
            let file = tempfile::tempfile().unwrap();
            Metadata {
                mtime: FileTime::new(1_700_000_000, 0),
                ctime,
                ..Metadata::from(&fs::fstat(&file).unwrap())
            }
        };
        let coarse = Precision::of_clock(wanted, &there(FileTime::new(1_800_000_000, 0)), false);
        assert!(coarse.is_some_and(|coarse| coarse.is_kept_as(wanted, FileTime::new(1_700_000_000, 0))));
        assert_eq!(
            Precision::of_clock(wanted, &there(FileTime::new(1_800_000_000, 123_456_789)), true),
            None
        );
        let same = there(FileTime::new(1_700_000_000, 0));
        assert_eq!(Precision::of_clock(wanted, &same, false), None);
        assert!(Precision::of_clock(wanted, &same, true).is_some());
    }

    #[test]
    fn steps_are_told_as_people_say_them() {
        let steps: Vec<_> = STEPS.into_iter().map(|step| of_step(step).step()).collect();
        assert_eq!(steps, ["100 ns", "1 µs", "1 ms", "10 ms", "1 s", "2 s"]);
    }

    #[test]
    fn times_within_a_window() {
        let (one, other) = (FileTime::new(10, 0), FileTime::new(12, 0));
        assert!(are_within(one, other, 2) && are_within(other, one, 2) && !are_within(one, other, 1));
        assert!(!are_within(one, FileTime::new(12, 1), 2));
    }
}
