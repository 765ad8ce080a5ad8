//! Chooses for each whole chunk whether it goes past the page cache (direct) or through it (buffered):
//! whichever is measured to be faster on its disk.
//!
//! Always true: measurements of a disk outlive the file that they were made on; the choice reads no clock.
//! Where memory is touched for the first time, filling the page cache costs more than the disk does; where
//! the disk is slow and memory was touched before, it costs less. So neither mode is right for every machine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use farhaul_fork::PerProcess;
use farhaul_handover::Held as _;

use crate::io_load::IoLoad;

/// How many chunks are done in each mode before there is a choice.
pub(crate) const TRIAL_CHUNKS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IoMode {
    Buffered,
    Direct,
}

impl IoMode {
    fn other(self) -> IoMode {
        match self {
            IoMode::Buffered => IoMode::Direct,
            IoMode::Direct => IoMode::Buffered,
        }
    }
}

/// How the two modes are tried.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TrialRule {
    first: IoMode,
    /// The schedule of trials while direct I/O is faster, and while buffered I/O is.
    from_direct: TrialSchedule,
    from_buffered: TrialSchedule,
    /// Buffered I/O counts as faster only if it takes at most this percentage of the time of direct I/O.
    buffered_percent: u64,
}

/// `run` chunks in `every` use the slower mode, to notice when that has become the faster one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TrialSchedule {
    every: u64,
    run: u64,
}

const SINGLE_TRIALS: TrialSchedule = TrialSchedule { every: 256, run: 1 };

/// A write costs the same whatever comes before it, so single trials are enough.
pub(crate) const WRITING: TrialRule = TrialRule {
    first: IoMode::Direct,
    from_direct: SINGLE_TRIALS,
    from_buffered: SINGLE_TRIALS,
    buffered_percent: 80,
};

/// Read-ahead only shows its effect in several successive chunks. A buffered reader takes a core from the
/// rest of the transfer, while a direct one only waits: so a draw goes to direct I/O, and that is tried more
/// often.
pub(crate) const READING: TrialRule = TrialRule {
    first: IoMode::Direct,
    from_direct: TrialSchedule { every: 4096, run: TRIAL_CHUNKS },
    from_buffered: TrialSchedule { every: 256, run: 3 * TRIAL_CHUNKS },
    buffered_percent: 80,
};

/// The measurements of a disk, which all files on it share.
#[derive(Debug)]
pub(crate) struct IoChoice {
    rule: &'static TrialRule,
    costs: Mutex<Costs>,
    pub(crate) load: IoLoad,
}

#[derive(Debug, Default)]
struct Costs {
    /// The number of chunks for which a mode was chosen.
    chosen: u64,
    buffered: Cost,
    direct: Cost,
}

impl IoChoice {
    pub(crate) fn new(rule: &'static TrialRule) -> IoChoice {
        IoChoice { rule, costs: Mutex::default(), load: IoLoad::default() }
    }

    /// The choice for the disk with this device number.
    pub(crate) fn of_device(rule: &'static TrialRule, device: u64) -> Arc<IoChoice> {
        type Known = HashMap<(&'static TrialRule, u64), Arc<IoChoice>>;
        static KNOWN: PerProcess<Mutex<Known>> = PerProcess::new();
        let mut known = KNOWN.get_or_init(Mutex::default).lock().in_any_case();
        let choice = known.entry((rule, device));
        choice.or_insert_with(|| Arc::new(IoChoice::new(rule))).clone()
    }

    /// The mode of the next chunk. Several chunks may be under way before the first is known to have ended.
    ///
    /// A chunk that was read ahead is read through the cache whatever this returns; a trial of direct I/O
    /// begins when no read-ahead is left.
    pub(crate) fn next(&self, is_read_ahead: bool) -> IoMode {
        let TrialRule { first, from_direct, from_buffered, buffered_percent } = *self.rule;
        let mut costs = self.costs();
        let mode = match costs.chosen {
            number if number < TRIAL_CHUNKS => first,
            number if number < 2 * TRIAL_CHUNKS => first.other(),
            number => {
                let faster = costs.faster(buffered_percent).unwrap_or(first);
                let schedule = match faster {
                    IoMode::Direct => from_direct,
                    IoMode::Buffered => from_buffered,
                };
                if number % schedule.every >= schedule.every - schedule.run { faster.other() } else { faster }
            }
        };
        if mode == IoMode::Buffered || !is_read_ahead {
            costs.chosen += 1;
        }
        mode
    }

    /// Whether buffered I/O is known to be faster.
    pub(crate) fn is_buffered_faster(&self) -> bool {
        self.costs().faster(self.rule.buffered_percent) == Some(IoMode::Buffered)
    }

    /// Notes how long a chunk took in this mode.
    pub(crate) fn record(&self, mode: IoMode, nanos: u64) {
        let mut costs = self.costs();
        match mode {
            IoMode::Buffered => costs.buffered.add(nanos),
            IoMode::Direct => costs.direct.add(nanos),
        }
    }

    #[cfg(test)]
    pub(crate) fn nanos_direct(&self) -> u64 {
        self.costs().direct.nanos.expect("a chunk went past the cache")
    }

    fn costs(&self) -> MutexGuard<'_, Costs> {
        // The fields are plain numbers, and each change is complete.
        self.costs.lock().in_any_case()
    }
}

impl Costs {
    fn faster(&self, buffered_percent: u64) -> Option<IoMode> {
        let (buffered, direct) = (self.buffered.nanos?, self.direct.nanos?);
        Some(if buffered <= direct / 100 * buffered_percent { IoMode::Buffered } else { IoMode::Direct })
    }
}

/// Smoothed nanoseconds of a chunk; `None` before the first one.
#[derive(Debug, Default)]
struct Cost {
    nanos: Option<u64>,
}

impl Cost {
    fn add(&mut self, sample: u64) {
        self.nanos = Some(self.nanos.map_or(sample, |old| old - old / 4 + sample / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `chunks` chunks choose, with these costs; returns how many of them went direct.
    fn directs(choice: &IoChoice, chunks: u64, buffered: u64, direct: u64) -> u64 {
        let mut count = 0;
        for _ in 0..chunks {
            let mode = choice.next(false);
            choice.record(mode, if mode == IoMode::Direct { direct } else { buffered });
            count += u64::from(mode == IoMode::Direct);
        }
        count
    }

    #[test]
    fn both_ways_are_tried_before_the_faster_is_taken() {
        let choice = IoChoice::new(&WRITING);
        assert_eq!(directs(&choice, 4, 50_000, 10_000), 4);
        assert_eq!(directs(&choice, 4, 50_000, 10_000), 0);
        assert_eq!(directs(&choice, 2560, 50_000, 10_000), 2550);
        let choice = IoChoice::new(&WRITING);
        assert_eq!(directs(&choice, 8, 10_000, 50_000), 4);
        assert_eq!(directs(&choice, 2560, 10_000, 50_000), 10);
    }

    #[test]
    fn reading_begins_past_the_cache_and_stays_there_for_little() {
        let choice = IoChoice::new(&READING);
        assert_eq!(directs(&choice, 8, 9_000, 10_000), 4);
        assert_eq!(directs(&choice, 4096 - 8, 9_000, 10_000), 4096 - 8 - 4);
        let choice = IoChoice::new(&READING);
        directs(&choice, 8, 7_000, 10_000);
        assert_eq!(directs(&choice, 4096 - 8, 7_000, 10_000), 16 * 12);
    }

    #[test]
    fn a_change_of_speed_is_noticed() {
        let choice = IoChoice::new(&WRITING);
        directs(&choice, 256, 10_000, 50_000);
        directs(&choice, 2560, 90_000, 20_000);
        assert_eq!(directs(&choice, 256, 90_000, 20_000), 255);
    }

    #[test]
    fn a_reader_leaves_the_cache_when_the_disk_has_become_fast() {
        let choice = IoChoice::new(&READING);
        directs(&choice, 8, 7_000, 100_000);
        assert_eq!(directs(&choice, 256 - 8, 7_000, 5_000), 12);
        assert_eq!(directs(&choice, 256, 7_000, 5_000), 256);
    }

    #[test]
    fn what_was_asked_for_does_not_take_the_disk_s_turn() {
        let choice = IoChoice::new(&READING);
        directs(&choice, 256 - 12, 7_000, 10_000);
        for _ in 0..100 {
            assert_eq!(choice.next(true), IoMode::Direct);
        }
        assert_eq!(directs(&choice, 20, 7_000, 10_000), 12);
    }

    #[test]
    fn what_is_not_known_yet_is_not_chosen() {
        let choice = IoChoice::new(&WRITING);
        let ways: Vec<IoMode> = (0..12).map(|_| choice.next(false)).collect();
        assert_eq!(ways[..4], [IoMode::Direct; 4]);
        assert_eq!(ways[4..8], [IoMode::Buffered; 4]);
        assert_eq!(ways[8..], [IoMode::Direct; 4]);
    }

    #[test]
    fn files_on_one_disk_share_what_is_known_of_it() {
        let device = u64::MAX;
        directs(&IoChoice::of_device(&WRITING, device), 8, 50_000, 10_000);
        assert_eq!(IoChoice::of_device(&WRITING, device).next(false), IoMode::Direct);
        assert_eq!(IoChoice::of_device(&WRITING, device - 1).costs().chosen, 0);
        assert_eq!(directs(&IoChoice::of_device(&READING, device), 4, 1, 1), 4);
    }
}
