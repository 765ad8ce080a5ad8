use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const HOUR_MS: i64 = 3_600_000;
const GB: u64 = 1_000_000_000;

fn id(number: usize) -> JobId {
    format!("{number:016}").parse().unwrap()
}

fn job(number: usize, bytes: u64, by_ms: i64, supplies: &[usize]) -> PromisedJob {
    let supplies = supplies.to_vec();
    PromisedJob {
        id: id(number),
        bytes_left: Some(bytes),
        since_ms: 0,
        begin_ms: 0,
        by_ms,
        supplies,
        most_bps: None,
    }
}

fn even(bps: f64) -> Supply {
    Supply(vec![(0, bps)])
}

fn needed(keeping: Keeping) -> f64 {
    match keeping {
        Keeping::Kept { needed_bps, .. } => needed_bps,
        other => panic!("{other:?}"),
    }
}

/// The hours at which jobs are done at the earliest; `None` for a deadline that is not kept.
fn kept(keepings: &[Keeping]) -> Vec<Option<f64>> {
    let hours = |keeping: &Keeping| match keeping {
        Keeping::Kept { earliest_ms, .. } => {
            Some((*earliest_ms as f64 / HOUR_MS as f64 * 100.0).round() / 100.0)
        }
        Keeping::Unknown | Keeping::Late { .. } => None,
    };
    keepings.iter().map(hours).collect()
}

#[test]
fn a_deadline_is_kept_where_caps_leave_enough_until_then() {
    // 1 Gbit/s moves 450 GB in an hour.
    let cap = [even(1e9)];
    for (what, jobs, expected) in [
        ("alone", vec![job(1, 450 * GB, 2 * HOUR_MS, &[0])], vec![Some(1.0)]),
        ("there is no reserve", vec![job(1, 450 * GB, HOUR_MS, &[0])], vec![None]),
        (
            "the earlier one comes first, whatever the order",
            vec![job(1, 450 * GB, 4 * HOUR_MS, &[0]), job(2, 450 * GB, 2 * HOUR_MS, &[0])],
            vec![Some(2.0), Some(1.0)],
        ),
        (
            "one that cannot be kept breaks no other",
            vec![job(1, 4500 * GB, HOUR_MS, &[0]), job(2, 450 * GB, 2 * HOUR_MS, &[0])],
            vec![None, Some(1.0)],
        ),
        (
            "a limit of its own",
            vec![PromisedJob { most_bps: Some(1e8), ..job(1, 450 * GB, 2 * HOUR_MS, &[0]) }],
            vec![None],
        ),
        (
            "it begins later",
            vec![PromisedJob { begin_ms: HOUR_MS, ..job(1, 450 * GB, 3 * HOUR_MS, &[0]) }],
            vec![Some(2.0)],
        ),
        (
            "another cap",
            vec![job(1, 450 * GB, 2 * HOUR_MS, &[0]), job(2, 450 * GB, 2 * HOUR_MS, &[1])],
            vec![Some(1.0), None],
        ),
    ] {
        assert_eq!(kept(&judge(0, &cap, &jobs)), expected, "{what}");
    }
    let unknown = PromisedJob { bytes_left: None, ..job(1, 0, HOUR_MS, &[0]) };
    assert_eq!(judge(0, &cap, &[unknown]), [Keeping::Unknown]);
    assert_eq!(judge(0, &[even(f64::INFINITY)], &[job(1, GB, HOUR_MS, &[0])]), [Keeping::Unknown]);
    assert_eq!(judge(HOUR_MS, &[], &[job(1, GB, HOUR_MS, &[])]), [Keeping::Late { earliest_ms: None }]);
}

#[test]
fn a_job_takes_more_before_a_cap_falls() {
    // 10 Mbit/s for eight hours, then 2 Mbit/s: 50 units of an hour and 1 Mbit/s until the tenth hour.
    let cap = [Supply(vec![(0, 10e6), (8 * HOUR_MS, 2e6)])];
    let by_ms = (10.0 * HOUR_MS as f64 / 0.94) as i64;
    let level = needed(judge(0, &cap, &[job(1, 50 * 450_000_000, by_ms, &[0])])[0]);
    assert!((level / 5.75e6 - 1.0).abs() < 0.001, "{level}");
    // An even rate would be 5 Mbit/s, and 10 of the 50 would be missing when the cap falls.
    let even = needed(judge(0, &[even(10e6)], &[job(1, 50 * 450_000_000, by_ms, &[0])])[0]);
    assert!((even / 5e6 - 1.0).abs() < 0.001, "{even}");
}

#[test]
fn a_time_that_can_be_kept_is_offered_and_breaks_no_promise() {
    let cap = [even(1e9)];
    let there = [job(1, 450 * GB, 2 * HOUR_MS, &[0])];
    let offer = |bytes, by_ms| earliest_promise(0, &cap, &there, &job(2, bytes, by_ms, &[0]));
    assert_eq!(offer(45 * GB, 2 * HOUR_MS), Some(2 * HOUR_MS), "there is room");
    // It fits alone, but then the other one would be late.
    let offered = offer(450 * GB, 3 * HOUR_MS / 2).unwrap();
    let hours = offered as f64 / HOUR_MS as f64;
    assert!((2.1..2.3).contains(&hours) && offered % 60_000 == 0, "{hours}");
    assert_eq!(offer(10_000_000 * GB, HOUR_MS), None, "not within two weeks");
    // A deadline that has passed gets a new one, too.
    assert!(earliest_promise(HOUR_MS, &cap, &[], &job(2, GB, 0, &[0])).is_some_and(|by| by > HOUR_MS));
}

/// A day of a site: its uplink has less rate in the working hours, and each of two peers has its own path.
fn site() -> Vec<Supply> {
    let uplink = Supply(vec![
        (0, 1e9),
        (9 * HOUR_MS, 2e8),
        (18 * HOUR_MS, 1e9),
        (33 * HOUR_MS, 2e8),
        (42 * HOUR_MS, 1e9),
    ]);
    vec![uplink, even(6e8), even(3e8)]
}

/// Serves all jobs for a minute: each gets what it needs, in the order of deadlines, and everything else is
/// taken by others.
fn serve(now_ms: i64, jobs: &mut BTreeMap<usize, PromisedJob>) {
    let supplies = site();
    let list: Vec<PromisedJob> = jobs.values().cloned().collect();
    let keepings = judge(now_ms, &supplies, &list);
    let mut left: Vec<f64> = supplies.iter().map(|supply| supply.at(now_ms)).collect();
    let mut order: Vec<(i64, usize, f64)> = jobs
        .iter()
        .zip(keepings)
        .map(|((number, job), keeping)| match keeping {
            Keeping::Kept { needed_bps, .. } => (job.by_ms, *number, needed_bps),
            other => panic!("a promise was broken at {now_ms}: {job:?} {other:?}"),
        })
        .collect();
    order.sort_by_key(|(by_ms, number, _)| (*by_ms, *number));
    for (_, number, needed_bps) in order {
        let Some(job) = jobs.get_mut(&number) else { continue };
        let bps = job.supplies.iter().map(|supply| left[*supply]).fold(needed_bps, f64::min);
        job.supplies.iter().for_each(|supply| left[*supply] -= bps);
        let moved = (bps * 60.0 / 8.0) as u64 + 1;
        job.bytes_left = job.bytes_left.map(|bytes| bytes.saturating_sub(moved));
    }
    jobs.retain(|_, job| {
        let is_over = job.bytes_left == Some(0);
        assert!(is_over || job.by_ms > now_ms + 60_000, "it is late: {job:?}");
        !is_over
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_day_of_promises_is_kept_although_others_take_all_that_is_left(
        arrivals in proptest::collection::vec((0_i64..1440, 1_u64..600, 5_i64..1200, 1_usize..3), 20..60),
    ) {
        let mut jobs: BTreeMap<usize, PromisedJob> = BTreeMap::new();
        let (mut offered, mut taken) = (0, 0);
        for minute in 0..(1440 + 3000) {
            let now_ms = minute * 60_000;
            for (number, (_, gb, minutes, peer)) in arrivals.iter().enumerate().filter(|(_, one)| one.0 == minute) {
                let list: Vec<PromisedJob> = jobs.values().cloned().collect();
                let asked = PromisedJob { since_ms: now_ms, begin_ms: now_ms, ..job(number, gb * GB / 2, now_ms + minutes * 60_000, &[0, *peer]) };
                let Some(by_ms) = earliest_promise(now_ms, &site(), &list, &asked) else { continue };
                offered += usize::from(by_ms > asked.by_ms);
                taken += 1;
                jobs.insert(number, PromisedJob { by_ms, ..asked });
            }
            if jobs.is_empty() && minute > 1440 {
                break;
            }
            serve(now_ms, &mut jobs);
        }
        prop_assert!(jobs.is_empty(), "{jobs:?}");
        prop_assert!(taken > offered / 2);
    }

    #[test]
    fn no_supply_gives_more_than_it_has(
        drawn in proptest::collection::vec((1_u64..2000, 1_i64..2000, 0_usize..3, 0_usize..3), 1..20),
    ) {
        let supplies = site();
        let jobs: Vec<PromisedJob> = drawn.iter().enumerate().map(|(number, (gb, minutes, one, other))| {
            let mut supplies = vec![*one, *other];
            supplies.dedup();
            job(number, gb * GB, minutes * 60_000, &supplies)
        }).collect();
        let keepings = judge(0, &supplies, &jobs);
        // Bytes that all deadlines until a moment need fit into the supply until then.
        for (at, supply) in supplies.iter().enumerate() {
            let mut moments: Vec<i64> = jobs.iter().map(|job| job.by_ms).collect();
            moments.sort_unstable();
            for moment in moments {
                let kept = jobs.iter().zip(&keepings).filter(|(job, keeping)| {
                    matches!(keeping, Keeping::Kept { .. }) && job.supplies.contains(&at) && job.by_ms <= moment
                });
                let bits: f64 = kept.map(|(job, _)| job.bytes_left.unwrap_or(0) as f64 * 8.0).sum();
                let there: f64 = (0..moment / 60_000).map(|minute| supply.at(minute * 60_000) * 60.0).sum();
                prop_assert!(bits <= there * 1.0001 + 1.0, "{bits} {there} until {moment}");
            }
        }
    }
}
