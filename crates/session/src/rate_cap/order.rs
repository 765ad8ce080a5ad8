//! The order in which parts change: those that fall are told at once, and a part rises only by what is
//! confirmed to be free.
//!
//! Always true: after a raise, the rates that the sessions of a cap may be using still fit into the cap; each
//! session counts as using at least the rate that it was given.

use std::time::Duration;

/// A session that has not confirmed a smaller part for this long counts as having confirmed: its grants bound
/// it in any case.
pub(super) const CONFIRM_MAX: Duration = Duration::from_secs(2);
/// While others have yet to confirm, a session is not raised by less than this share of what it is still to
/// get.
const STEP_MIN: f64 = 0.1;

/// The bits a second of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MemberRate {
    /// The rate that it is to have in the end.
    pub target: u64,
    /// The rate that it may use now.
    pub given: u64,
    /// The rate that it may still be using, until it has confirmed a smaller part.
    pub held: u64,
}

impl MemberRate {
    pub(super) fn is_falling(&self) -> bool {
        self.held > self.given
    }
}

/// Gives less to sessions that have more than their target, then more to others, as far as something is free.
/// `most` has the rate of each cap, `caps` the caps of each session.
pub(super) fn change(most: &[Option<u64>], caps: &[Vec<usize>], stands: &mut [MemberRate]) {
    for stand in &mut *stands {
        stand.given = stand.given.min(stand.target);
        // A session may have back what it may still be using.
        stand.given = stand.given.max(stand.target.min(stand.held));
    }
    let is_any_falling = stands.iter().any(MemberRate::is_falling);
    let mut used = vec![0u64; most.len()];
    let mut wanted = vec![0u64; most.len()];
    for (stand, caps) in stands.iter().zip(caps) {
        for &cap in caps {
            used[cap] = used[cap].saturating_add(stand.held);
            wanted[cap] = wanted[cap].saturating_add(stand.target - stand.given);
        }
    }
    let free = |cap: usize| most[cap].map_or(u64::MAX, |most| most.saturating_sub(used[cap]));
    let share = |cap: usize| (free(cap) as f64 / wanted[cap].max(1) as f64).min(1.0);
    for (stand, caps) in stands.iter_mut().zip(caps) {
        let part = caps.iter().map(|&cap| share(cap)).fold(1.0, f64::min);
        let missing = stand.target - stand.given;
        if missing == 0 || (part < STEP_MIN && is_any_falling) {
            continue;
        }
        stand.given += if part < 1.0 { (part * missing as f64) as u64 } else { missing };
        stand.held = stand.held.max(stand.given);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stand(target: u64, given: u64, held: u64) -> MemberRate {
        MemberRate { target, given, held }
    }

    #[test]
    fn one_rises_only_by_what_others_have_let_go() {
        let caps = [vec![0], vec![0]];
        let mut stands = [stand(50, 100, 100), stand(50, 0, 0)];
        change(&[Some(100)], &caps, &mut stands);
        assert_eq!(stands, [stand(50, 50, 100), stand(50, 0, 0)], "the one that falls has not confirmed");
        stands[0].held = 80;
        change(&[Some(100)], &caps, &mut stands);
        assert_eq!(stands[1], stand(50, 20, 20), "20 are free");
        stands[0].held = 50;
        change(&[Some(100)], &caps, &mut stands);
        assert_eq!(stands[1], stand(50, 50, 50));
        // It gets back at once what it still uses.
        let mut stands = [stand(90, 50, 100), stand(10, 0, 0)];
        change(&[Some(100)], &caps, &mut stands);
        assert_eq!(stands, [stand(90, 90, 100), stand(10, 0, 0)]);
    }

    #[test]
    fn a_chain_of_caps_has_to_be_free_throughout() {
        let mut stands = [stand(10, 40, 40), stand(40, 10, 10), stand(50, 50, 50)];
        let caps = [vec![0, 1], vec![0, 1], vec![0]];
        change(&[Some(100), Some(50)], &caps, &mut stands);
        assert_eq!(stands[1], stand(40, 10, 10));
        stands[0].held = 10;
        change(&[Some(100), Some(50)], &caps, &mut stands);
        assert_eq!(stands[1], stand(40, 40, 40));
    }

    #[test]
    fn without_a_most_all_rise_at_once() {
        let mut stands = [stand(u64::MAX, 5, 5), stand(u64::MAX, 0, 0)];
        change(&[None], &[vec![0], vec![]], &mut stands);
        assert_eq!(stands, [stand(u64::MAX, u64::MAX, u64::MAX); 2]);
    }

    proptest! {
        #[test]
        fn whatever_comes_goes_and_confirms_no_cap_is_exceeded(
            most in proptest::collection::vec(100u64..1000, 1..4),
            steps in proptest::collection::vec((0usize..6, 1u64..10, any::<bool>()), 1..60),
        ) {
            let caps: Vec<Vec<usize>> =
                (0..6usize).map(|at| (0..most.len()).filter(|cap| *cap == 0 || at % most.len() == *cap).collect()).collect();
            let bounds: Vec<_> = most.iter().map(|most| Some(*most)).collect();
            let mut weights = [0u64; 6];
            let mut stands = [MemberRate::default(); 6];
            for (at, weight, confirms) in steps {
                if confirms {
                    stands[at].held = stands[at].given;
                } else {
                    weights[at] = if weights[at] > 0 && weight < 4 { 0 } else { weight };
                }
                // Any targets that fit into each cap.
                for session in 0..6 {
                    let part = |cap: usize| {
                        let all: u64 = (0..6).filter(|other| caps[*other].contains(&cap)).map(|other| weights[other]).sum();
                        most[cap] * weights[session] / all.max(1)
                    };
                    stands[session].target = caps[session].iter().map(|cap| part(*cap)).min().unwrap_or(0);
                }
                change(&bounds, &caps, &mut stands);
                for (cap, most) in most.iter().enumerate() {
                    let held: u64 = (0..6).filter(|at| caps[*at].contains(&cap)).map(|at| stands[at].held).sum();
                    prop_assert!(held <= *most, "{held} of {most}");
                }
                prop_assert!(stands.iter().all(|stand| stand.given <= stand.held && stand.given <= stand.target.max(stand.held)));
            }
            // Once all have confirmed, each has its target.
            for _ in 0..3 {
                stands.iter_mut().for_each(|stand| stand.held = stand.given);
                change(&bounds, &caps, &mut stands);
            }
            prop_assert!(stands.iter().all(|stand| stand.given == stand.target), "{stands:?}");
        }
    }
}
