//! Decides when a repeating job runs next.
//!
//! Always true: in the same calendar the next run is later than the run before it, so that a clock that is
//! set back starts nothing twice; runs whose time was missed are made up for by one run.
//!
//! Changes of the clock: if a change skips the time of a run, the run begins just after the gap; if the time
//! comes twice, the run begins at the first of the two. Jobs of each hour (`*`) go on in equal steps. This is as
//! in Vixie cron; croner alone loses a list of minutes that the gap leaves out.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use farhaul_words::{Code, Error};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, TimeZone};

use farhaul_api::{JobSpan, RepeatRule};

/// The rule by which a job repeats.
#[derive(Debug, Clone)]
pub(crate) enum Calendar {
    Every(JobSpan),
    Cron(Box<Cron>, TimeZone),
}

/// The time zone with this name; the host's if no name is given.
pub(crate) fn zone(name: Option<&str>) -> Result<TimeZone, Error> {
    let Some(name) = name else { return Ok(TimeZone::system()) };
    let bad = |_| {
        let name = farhaul_text::printable(name.as_bytes(), 60);
        Error::new(Code::BadOption, format!("'{name}' is not the name of a time zone"))
            .with_hint("write one such as Europe/Zurich or UTC")
    };
    TimeZone::get(name).map_err(bad)
}

impl Calendar {
    /// The calendar of a job's document.
    pub(crate) fn new(repeat: &RepeatRule) -> Result<Calendar, Error> {
        let zone = zone(repeat.time_zone.as_deref())?;
        let Some(expression) = &repeat.cron else {
            return Ok(Calendar::Every(repeat.every.unwrap_or(JobSpan(86_400))));
        };
        let bad = |why: String| {
            let expression = farhaul_text::printable(expression.as_bytes(), 80);
            Error::new(Code::BadOption, format!("the cron expression '{expression}': {why}"))
                .with_hint("write minute, hour, day of month, month and day of week, such as '30 22 * * 1-5'")
        };
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| bad(error.to_string()))?;
        let calendar = Calendar::Cron(Box::new(cron), zone);
        match calendar.after(Timestamp::UNIX_EPOCH) {
            Some(_) => Ok(calendar),
            None => Err(bad("no such day exists".into())),
        }
    }

    /// The time of the run after the one that was due at `last_due` and began at `began`. It may be in the
    /// past.
    pub(crate) fn next(&self, last_due: Timestamp, began: Timestamp) -> Option<Timestamp> {
        match self {
            Calendar::Every(span) => began.checked_add(span.duration()).ok(),
            // Times that came while the last run was going on are skipped: nothing ran beside it, and nothing
            // is made up for after it.
            Calendar::Cron(..) => self.after(last_due.max(began)),
        }
    }

    /// The time of the first run of a job that is accepted at `now`.
    pub(crate) fn first(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Calendar::Every(_) => Some(now),
            Calendar::Cron(..) => self.after(now),
        }
    }

    fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        match self {
            Calendar::Every(span) => moment.checked_add(span.duration()).ok(),
            Calendar::Cron(cron, zone) if is_each_hour(cron) => {
                let start = moment.to_zoned(zone.clone());
                cron.find_next_occurrence(&start, false).ok().map(|next| next.timestamp())
            }
            Calendar::Cron(cron, zone) => next_shown(cron, zone, moment),
        }
    }
}

/// True if the hours begin with a star: such a job runs in equal steps, also while an hour is left out or comes
/// twice.
fn is_each_hour(cron: &Cron) -> bool {
    cron.as_str().split_whitespace().nth(1).is_some_and(|hours| hours.starts_with('*'))
}

/// The first moment after this one at which clocks show a time of the expression. A time that is left out counts
/// just after the gap, and of a time that comes twice the first counts.
fn next_shown(cron: &Cron, zone: &TimeZone, moment: Timestamp) -> Option<Timestamp> {
    // The expression is asked in a zone without changes for what clocks are to show.
    let mut shown = moment.to_zoned(zone.clone()).datetime().to_zoned(TimeZone::UTC).ok()?;
    loop {
        shown = cron.find_next_occurrence(&shown, false).ok()?;
        let asked = zone.to_ambiguous_timestamp(shown.datetime());
        let next = match asked.offset() {
            AmbiguousOffset::Unambiguous { .. } => asked.unambiguous().ok()?,
            AmbiguousOffset::Fold { .. } => asked.earlier().ok()?,
            AmbiguousOffset::Gap { .. } => {
                // The gap ends at the change, at or before the time that clocks would show without one.
                let without = asked.later().ok()?.checked_add(Duration::from_secs(1)).ok()?;
                zone.preceding(without).next()?.timestamp()
            }
        };
        // While an hour comes the second time, clocks show what they have shown before.
        if next > moment {
            return Some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cron(expression: &str, zone: &str) -> Calendar {
        let repeat = RepeatRule { every: None, cron: Some(expression.into()), time_zone: Some(zone.into()) };
        Calendar::new(&repeat).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_cron_job_runs_by_the_clocks_of_its_zone() {
        let calendar = cron("30 22 * * 1-5", "Europe/Zurich");
        // A Friday evening, and the Monday after it.
        assert_eq!(calendar.first(at("2026-11-27T21:00:00Z")), Some(at("2026-11-27T21:30:00Z")));
        let next = calendar.next(at("2026-11-27T21:30:00Z"), at("2026-11-27T21:30:05Z"));
        assert_eq!(next, Some(at("2026-11-30T21:30:00Z")));
        assert_eq!(calendar.first(at("2026-07-01T12:00:00Z")), Some(at("2026-07-01T20:30:00Z")));
    }

    #[test]
    fn changes_of_the_clock_neither_lose_nor_double_a_run() {
        let calendar = cron("30 2 * * *", "Europe/Zurich");
        let mut runs = Vec::new();
        for (from, to) in [("2027-03-26", "2027-03-30"), ("2026-10-23", "2026-10-27")] {
            let mut now = at(&format!("{from}T12:00:00Z"));
            while let Some(next) =
                calendar.next(now, now).filter(|next| *next < at(&format!("{to}T12:00:00Z")))
            {
                runs.push(next.to_string());
                now = next;
            }
        }
        assert_eq!(
            runs,
            [
                "2027-03-27T01:30:00Z",
                // 02:30 does not exist: the run begins just after the gap.
                "2027-03-28T01:00:00Z",
                "2027-03-29T00:30:00Z",
                "2027-03-30T00:30:00Z",
                "2026-10-24T00:30:00Z",
                // 02:30 comes twice: the run begins at the first.
                "2026-10-25T00:30:00Z",
                "2026-10-26T01:30:00Z",
                "2026-10-27T01:30:00Z",
            ]
        );
    }

    /// All runs of an expression within this time, by the promises of the guide.
    fn runs(expression: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
        let (calendar, mut now, end) = (cron(expression, zone), at(from), at(to));
        let mut all = Vec::new();
        while let Some(next) = calendar.next(now, now).filter(|next| *next < end) {
            assert!(next > now);
            all.push(next.to_string());
            now = next;
        }
        all
    }

    #[test]
    fn lists_ranges_and_steps_keep_the_promises_for_nights_of_the_change() {
        for (expression, zone, from, to, expected) in [
            // Zurich, spring: 02:00 to 03:00 is left out; 01:00Z is 03:00.
            ("0 2 * * *", "Europe/Zurich", "2027-03-27T23:00:00Z", "2027-03-28T12:00:00Z", "03-28T01:00"),
            (
                "0 0,2,3 * * *",
                "Europe/Zurich",
                "2027-03-27T22:30:00Z",
                "2027-03-28T12:00:00Z",
                "03-27T23:00 03-28T01:00",
            ),
            (
                "*/30 1-3 * * *",
                "Europe/Zurich",
                "2027-03-27T23:00:00Z",
                "2027-03-28T12:00:00Z",
                "03-28T00:00 03-28T00:30 03-28T01:00 03-28T01:30",
            ),
            ("15,45 2 * * *", "Europe/Zurich", "2027-03-27T23:00:00Z", "2027-03-28T12:00:00Z", "03-28T01:00"),
            // Zurich, autumn: 02:00 to 03:00 comes twice; the first begins at 00:00Z.
            ("0 2 * * *", "Europe/Zurich", "2026-10-24T22:00:00Z", "2026-10-25T12:00:00Z", "10-25T00:00"),
            (
                "0 0,2,3 * * *",
                "Europe/Zurich",
                "2026-10-24T21:30:00Z",
                "2026-10-25T12:00:00Z",
                "10-24T22:00 10-25T00:00 10-25T02:00",
            ),
            (
                "*/30 1-3 * * *",
                "Europe/Zurich",
                "2026-10-24T22:30:00Z",
                "2026-10-25T12:00:00Z",
                "10-24T23:00 10-24T23:30 10-25T00:00 10-25T00:30 10-25T02:00 10-25T02:30",
            ),
            // New York, spring and autumn.
            ("30 2 * * *", "America/New_York", "2027-03-14T05:00:00Z", "2027-03-14T20:00:00Z", "03-14T07:00"),
            ("30 1 * * *", "America/New_York", "2026-11-01T04:00:00Z", "2026-11-01T20:00:00Z", "11-01T05:30"),
            // Lord Howe: half an hour is left out, and comes twice.
            (
                "0,15,45 2 * * *",
                "Australia/Lord_Howe",
                "2026-10-03T14:00:00Z",
                "2026-10-04T02:00:00Z",
                "10-03T15:30 10-03T15:45",
            ),
            (
                "45 1 * * *",
                "Australia/Lord_Howe",
                "2027-04-03T12:00:00Z",
                "2027-04-04T02:00:00Z",
                "04-03T14:45",
            ),
            // A change at midnight: the day begins at 01:00 (Cairo), or its first hour comes twice (Havana).
            ("0 0 * * *", "Africa/Cairo", "2027-04-29T10:00:00Z", "2027-04-30T10:00:00Z", "04-29T22:00"),
            ("30 0 * * *", "America/Havana", "2026-11-01T03:00:00Z", "2026-11-01T20:00:00Z", "11-01T04:30"),
            // Hours with a star go on in equal steps.
            (
                "*/30 * * * *",
                "Europe/Zurich",
                "2026-10-25T00:15:00Z",
                "2026-10-25T02:15:00Z",
                "10-25T00:30 10-25T01:00 10-25T01:30 10-25T02:00",
            ),
            (
                "30 * * * *",
                "Europe/Zurich",
                "2027-03-28T00:00:00Z",
                "2027-03-28T02:00:00Z",
                "03-28T00:30 03-28T01:30",
            ),
            (
                "0 * * * *",
                "UTC",
                "2026-10-25T00:30:00Z",
                "2026-10-25T03:30:00Z",
                "10-25T01:00 10-25T02:00 10-25T03:00",
            ),
        ] {
            let all = runs(expression, zone, from, to);
            let all: Vec<&str> = all.iter().map(|run| &run[5..16]).collect();
            assert_eq!(all.join(" "), expected, "{expression} {zone} {from}");
        }
    }

    #[test]
    fn a_run_that_takes_long_is_not_overlapped_and_not_made_up_for() {
        let calendar = cron("*/10 * * * *", "UTC");
        // The run was due at 12:00, and waited for a slot until 12:25.
        let next = calendar.next(at("2026-11-27T12:00:00Z"), at("2026-11-27T12:25:00Z"));
        assert_eq!(next, Some(at("2026-11-27T12:30:00Z")));
        let every = Calendar::Every(JobSpan(900));
        assert_eq!(every.first(at("2026-11-27T12:00:00Z")), Some(at("2026-11-27T12:00:00Z")));
        let next = every.next(at("2026-11-27T12:00:00Z"), at("2026-11-27T12:00:03Z"));
        assert_eq!(next, Some(at("2026-11-27T12:15:03Z")));
    }

    #[test]
    fn what_is_no_calendar_is_refused() {
        for wrong in ["", "x", "* * * *", "60 * * * *", "0 0 30 2 *", "* * * * * *", "@every 5s"] {
            let repeat = RepeatRule { every: None, cron: Some(wrong.into()), time_zone: None };
            assert!(Calendar::new(&repeat).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn the_next_run_is_later(minute in 0..60_u8, hour in 0..24_u8, day in 0..7_u8, start in 0..4_000_000_000_i64) {
            let calendar = cron(&format!("{minute} {hour} * * {day}"), "America/St_Johns");
            let start = Timestamp::from_second(start).unwrap();
            let next = calendar.next(start, start).unwrap();
            prop_assert!(next > start && next.as_second() - start.as_second() <= 8 * 86_400);
        }

        #[test]
        fn no_text_is_a_panic(text in "\\PC{0,40}") {
            let _ = Calendar::new(&RepeatRule { every: None, cron: Some(text), time_zone: None });
        }
    }
}
