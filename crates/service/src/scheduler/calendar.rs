//! Decides when a repeating job runs next.
//!
//! Always true: in the same calendar the next run is later than the run before it, so that a clock that is
//! set back starts nothing twice; runs whose time was missed are made up for by one run.
//!
//! Changes of the clock: if a change skips the time of a run, the run begins just after the gap; if the time
//! comes twice, the run begins at the first of the two (as in croner and Vixie cron).

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use farhaul_session::{Code, Error};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::job::{JobSpan, RepeatRule};

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
            Calendar::Cron(cron, zone) => {
                let start = moment.to_zoned(zone.clone());
                cron.find_next_occurrence(&start, false).ok().map(|next| next.timestamp())
            }
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
