//! What happens to a job now, and what became of its deadline, in words. The page, `top` and the command line
//! show these words as they are.

use farhaul_api::{PromiseState, PromiseView};
use farhaul_words::{Snapshot, Stage};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The promise of a run that is not over.
pub(super) fn promise_of_run(
    state: PromiseState,
    (finish_by, done_by): (Timestamp, Option<Timestamp>),
    now: Timestamp,
    zone: &TimeZone,
) -> PromiseView {
    let time = |moment| time_words(moment, now, zone);
    let by = time(finish_by);
    let words = match (state, done_by.map(time)) {
        (PromiseState::Kept, Some(done)) => format!("done by {done}, at the latest {by}"),
        (PromiseState::Kept, None) => format!("done by {by} at the latest"),
        (PromiseState::Open, _) => format!("not known yet if it is done by {by}"),
        (PromiseState::Late, Some(done)) => format!("not done by {by}, but by {done} as things stand"),
        (PromiseState::Late, None) => format!("not done by {by} as things stand"),
    };
    PromiseView { state: state.into(), finish_by, done_by, words }
}

/// What became of the promise of a run that has ended.
pub(super) fn promise_of_end(
    (finish_by, ended): (Timestamp, Timestamp),
    is_done: bool,
    zone: &TimeZone,
) -> PromiseView {
    let is_kept = is_done && ended <= finish_by;
    let (by, at) = (time_words(finish_by, ended, zone), time_words(ended, ended, zone));
    let (state, words) = match (is_kept, is_done) {
        (true, _) => (PromiseState::Kept, format!("done at {at}, in time for {by}")),
        (false, true) => (PromiseState::Late, format!("done at {at}, too late for {by}")),
        (false, false) => (PromiseState::Late, format!("ended at {at}, and was to be done by {by}")),
    };
    PromiseView { state: state.into(), finish_by, done_by: is_done.then_some(ended), words }
}

/// A time of day, with the date if it is another day than `now`.
pub(super) fn time_words(moment: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let (there, here) = (moment.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let form = if there.date() == here.date() { "%H:%M" } else { "%Y-%m-%d %H:%M" };
    there.strftime(form).to_string()
}

/// What a running transfer does now: never a rate, so that no rate of 0 stands without its reason.
pub(super) fn now_words(snapshot: &Snapshot, is_paused: bool) -> String {
    let facts = &snapshot.facts;
    let is_all = snapshot.totals_known && snapshot.bytes_done >= snapshot.bytes_total;
    let limit = limit_words(&facts.limit);
    if is_paused {
        "somebody has paused it".into()
    } else if !facts.is_connected && snapshot.bytes_done == 0 {
        "waiting for the connection".into()
    } else if is_all {
        "everything has arrived; waiting until it is safe on the disk".into()
    } else if snapshot.goodput_bps >= 1.0 {
        limit
    } else if !snapshot.totals_known && snapshot.bytes_total == 0 {
        "scanning the source".into()
    } else if snapshot.bytes_moved == 0 {
        "waiting for the first content to arrive".into()
    } else if facts.limit.is_empty() || facts.limit == "none" {
        "waiting for content to arrive".into()
    } else {
        format!("waiting for content to arrive; until now {limit}")
    }
}

/// What limits a transfer, in words; `limit` is the short name in the report.
fn limit_words(limit: &str) -> String {
    let words = match limit {
        "" => "what limits it is not known yet",
        "network" => "the network is the limit",
        "rate" => "the allowed rate is the limit",
        "none" => "nothing in particular limits it",
        other => {
            return match other.split_once(' ') {
                Some((end @ ("sender" | "receiver"), stage)) => {
                    let known = Stage::of_name(stage).map(|stage| stage.words().to_string());
                    let words = known.unwrap_or_else(|| farhaul_text::printable(stage.as_bytes(), 60));
                    format!("the {end}'s {words} is the limit")
                }
                _ => farhaul_text::printable(other.as_bytes(), 60),
            };
        }
    };
    words.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_promise_says_when_it_is_done_and_when_at_the_latest() {
        let zone = TimeZone::get("Europe/Zurich").unwrap();
        let (now, by) = (at("2026-11-29T07:13:00Z"), at("2026-11-29T22:00:00Z"));
        let words = |state, done: Option<&str>| promise_of_run(state, (by, done.map(at)), now, &zone).words;
        let soon = Some("2026-11-29T07:20:00Z");
        assert_eq!(words(PromiseState::Kept, soon), "done by 08:20, at the latest 23:00");
        assert_eq!(words(PromiseState::Open, soon), "not known yet if it is done by 23:00");
        let tomorrow = Some("2026-11-30T07:20:00Z");
        assert_eq!(
            words(PromiseState::Late, tomorrow),
            "not done by 23:00, but by 2026-11-30 08:20 as things stand"
        );
        assert_eq!(words(PromiseState::Late, None), "not done by 23:00 as things stand");
        let end = |ended: &str, is_done| promise_of_end((by, at(ended)), is_done, &zone);
        let kept = end("2026-11-29T07:15:00Z", true);
        assert_eq!(
            (kept.state, kept.words.as_str()),
            (PromiseState::Kept.into(), "done at 08:15, in time for 23:00")
        );
        assert_eq!(end("2026-11-29T22:30:00Z", true).words, "done at 23:30, too late for 23:00");
        assert_eq!(end("2026-11-29T20:00:00Z", false).state, PromiseState::Late);
    }

    #[test]
    fn a_job_at_which_nothing_moves_says_why() {
        let mut snapshot = Snapshot { bytes_total: 100, totals_known: true, ..Snapshot::default() };
        assert_eq!(now_words(&snapshot, false), "waiting for the connection");
        snapshot.facts.is_connected = true;
        assert_eq!(now_words(&snapshot, false), "waiting for the first content to arrive");
        (snapshot.bytes_total, snapshot.totals_known) = (0, false);
        assert_eq!(now_words(&snapshot, false), "scanning the source");
        (snapshot.bytes_total, snapshot.bytes_done, snapshot.bytes_moved) = (100, 10, 10);
        snapshot.facts.limit = "rate".into();
        assert_eq!(
            now_words(&snapshot, false),
            "waiting for content to arrive; until now the allowed rate is the limit"
        );
        snapshot.goodput_bps = 8.0;
        assert_eq!(now_words(&snapshot, false), "the allowed rate is the limit");
        assert_eq!(now_words(&snapshot, true), "somebody has paused it");
        (snapshot.bytes_done, snapshot.totals_known) = (100, true);
        assert!(now_words(&snapshot, false).starts_with("everything has arrived"));
        for (limit, words) in [
            ("receiver write", "the receiver's writing of the destination is the limit"),
            ("sender digest", "the sender's digest is the limit"),
            ("network", "the network is the limit"),
            ("", "what limits it is not known yet"),
            ("something new", "something new"),
        ] {
            assert_eq!(limit_words(limit), words);
        }
    }
}
