//! The order in which the parts of sessions change: a smaller part holds at once, and a part grows only by
//! a rate that other sessions have confirmed to be free.
//!
//! Always true: after a raise, the rates that the sessions of a cap may be using still fit into the cap; each
//! session counts as using at least the rate that it was given.

use std::time::Duration;

/// A session that has not confirmed a smaller part for this long counts as having confirmed: its grants bound
/// it in any case.
pub(super) const CONFIRM_MAX: Duration = Duration::from_secs(2);
/// While others have yet to confirm, a session's part does not grow by less than this share of the rate that
/// it still lacks.
const STEP_MIN: f64 = 0.1;

/// The bits a second of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MemberRate {
    /// The rate that it is to have in the end.
    pub target: u64,
    /// The rate that it may use now.
    pub given: u64,
    /// The rate that it may still be using, until it has confirmed a smaller part.
    pub in_use: u64,
}

impl MemberRate {
    pub(super) fn is_falling(&self) -> bool {
        self.in_use > self.given
    }
}

/// Gives less to sessions that have more than their target, then more to others, as far as their caps have
/// free rate. `cap_rates` has the rate of each cap, `caps` the caps of each session.
pub(super) fn change(cap_rates: &[Option<u64>], caps: &[Vec<usize>], members: &mut [MemberRate]) {
    for member in &mut *members {
        member.given = member.given.min(member.target);
        // A session may get back the rate that it may still be using.
        member.given = member.given.max(member.target.min(member.in_use));
    }
    let is_any_falling = members.iter().any(MemberRate::is_falling);
    let mut used = vec![0u64; cap_rates.len()];
    let mut wanted = vec![0u64; cap_rates.len()];
    for (member, caps) in members.iter().zip(caps) {
        for &cap in caps {
            used[cap] = used[cap].saturating_add(member.in_use);
            wanted[cap] = wanted[cap].saturating_add(member.target - member.given);
        }
    }
    let free = |cap: usize| cap_rates[cap].map_or(u64::MAX, |rate| rate.saturating_sub(used[cap]));
    let share_of_cap = |cap: usize| (free(cap) as f64 / wanted[cap].max(1) as f64).min(1.0);
    for (member, caps) in members.iter_mut().zip(caps) {
        let share = caps.iter().map(|&cap| share_of_cap(cap)).fold(1.0, f64::min);
        let missing = member.target - member.given;
        if missing == 0 || (share < STEP_MIN && is_any_falling) {
            continue;
        }
        member.given += if share < 1.0 { (share * missing as f64) as u64 } else { missing };
        member.in_use = member.in_use.max(member.given);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(target: u64, given: u64, in_use: u64) -> MemberRate {
        MemberRate { target, given, in_use }
    }

    #[test]
    fn a_session_rises_only_by_the_rate_that_others_have_confirmed_to_be_free() {
        let caps = [vec![0], vec![0]];
        let mut members = [rate(50, 100, 100), rate(50, 0, 0)];
        change(&[Some(100)], &caps, &mut members);
        assert_eq!(members, [rate(50, 50, 100), rate(50, 0, 0)], "the one that falls has not confirmed");
        members[0].in_use = 80;
        change(&[Some(100)], &caps, &mut members);
        assert_eq!(members[1], rate(50, 20, 20), "20 are free");
        members[0].in_use = 50;
        change(&[Some(100)], &caps, &mut members);
        assert_eq!(members[1], rate(50, 50, 50));
        // It gets back at once what it still uses.
        let mut members = [rate(90, 50, 100), rate(10, 0, 0)];
        change(&[Some(100)], &caps, &mut members);
        assert_eq!(members, [rate(90, 90, 100), rate(10, 0, 0)]);
    }

    #[test]
    fn a_chain_of_caps_has_to_be_free_throughout() {
        let mut members = [rate(10, 40, 40), rate(40, 10, 10), rate(50, 50, 50)];
        let caps = [vec![0, 1], vec![0, 1], vec![0]];
        change(&[Some(100), Some(50)], &caps, &mut members);
        assert_eq!(members[1], rate(40, 10, 10));
        members[0].in_use = 10;
        change(&[Some(100), Some(50)], &caps, &mut members);
        assert_eq!(members[1], rate(40, 40, 40));
    }

    #[test]
    fn without_a_cap_rate_all_sessions_rise_at_once() {
        let mut members = [rate(u64::MAX, 5, 5), rate(u64::MAX, 0, 0)];
        change(&[None], &[vec![0], vec![]], &mut members);
        assert_eq!(members, [rate(u64::MAX, u64::MAX, u64::MAX); 2]);
    }

    proptest! {
        #[test]
        fn no_cap_is_exceeded_whichever_sessions_come_go_or_confirm(
            cap_rates in proptest::collection::vec(100u64..1000, 1..4),
            steps in proptest::collection::vec((0usize..6, 1u64..10, any::<bool>()), 1..60),
        ) {
            // Each session is in cap 0 and perhaps in one other.
            let count = cap_rates.len();
            let caps_of = |session: usize| (0..count).filter(|cap| *cap == 0 || session % count == *cap).collect();
            let caps: Vec<Vec<usize>> = (0..6).map(caps_of).collect();
            let bounds: Vec<_> = cap_rates.iter().map(|rate| Some(*rate)).collect();
            let mut weights = [0u64; 6];
            let mut members = [MemberRate::default(); 6];
            for (changed, weight, confirms) in steps {
                if confirms {
                    members[changed].in_use = members[changed].given;
                } else {
                    weights[changed] = if weights[changed] > 0 && weight < 4 { 0 } else { weight };
                }
                // Any targets that fit into each cap.
                for session in 0..6 {
                    let fair_part = |cap: usize| {
                        let all: u64 = (0..6).filter(|other| caps[*other].contains(&cap)).map(|other| weights[other]).sum();
                        cap_rates[cap] * weights[session] / all.max(1)
                    };
                    members[session].target = caps[session].iter().map(|cap| fair_part(*cap)).min().unwrap_or(0);
                }
                change(&bounds, &caps, &mut members);
                for (cap, rate) in cap_rates.iter().enumerate() {
                    let in_use: u64 = (0..6).filter(|session| caps[*session].contains(&cap)).map(|session| members[session].in_use).sum();
                    prop_assert!(in_use <= *rate, "{in_use} of {rate}");
                }
                prop_assert!(members.iter().all(|member| member.given <= member.in_use && member.given <= member.target.max(member.in_use)));
            }
            // Once all have confirmed, each has its target.
            for _ in 0..3 {
                members.iter_mut().for_each(|member| member.in_use = member.given);
                change(&bounds, &caps, &mut members);
            }
            prop_assert!(members.iter().all(|member| member.given == member.target), "{members:?}");
        }
    }
}
