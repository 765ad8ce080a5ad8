//! Divides caps among the sessions in them: all parts rise together, each as fast as its weights say, until a
//! cap is used up or a session has what it wants.
//!
//! Guarantees come before that, one turn after the other, and do not depend on weights. A session that yields
//! rises beyond its guarantee only when all others have what they need.
//!
//! A cap that is used up stops its sessions; the sessions beside that cap go on with what it leaves. So a cap within
//! another cap gets the part of one member there, however many sessions the inner cap has, and divides that part
//! among them. A session in several caps rises no faster than the slowest of these caps lets it. It counts once in
//! a cap that it is in by two ways.
//!
//! Always true: the parts in a cap come to no more than the cap; nobody has more than it wishes; the rest of
//! a cap is what nobody in it wants or may have because of another cap, except for a few bits.
//! From: weighted max-min fairness by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2),
//! with weights at several levels.

use super::demand::KEPT;
use super::{FREE, RateGuarantee};

/// A cap. A cap that others lie within comes before these.
#[derive(Debug, Clone)]
pub(super) struct FillNode {
    pub above: Option<usize>,
    pub most: Option<u64>,
    /// The weight among the members of the cap above.
    pub weight: f64,
}

/// A session: the caps that it is directly in, with its weight in each; the most that its users want; and
/// what it seems to need, which is hardly known if the session is new.
#[derive(Debug, Clone, Default)]
pub(super) struct FillLeaf {
    pub memberships: Vec<(usize, f64)>,
    pub wish: Option<u64>,
    pub need: Option<u64>,
    pub is_new: bool,
    /// The rate that it gets before weights count, and when its turn is.
    pub guarantee: Option<RateGuarantee>,
}

impl FillLeaf {
    fn yields(&self) -> bool {
        self.guarantee.is_some_and(|guarantee| guarantee.yields)
    }

    /// What the session's guarantee gives it in this turn, in bits a second.
    fn guaranteed_in(&self, turn: i64) -> Option<u64> {
        match self.guarantee.filter(|guarantee| guarantee.turn == turn) {
            Some(guarantee) => [self.wish, self.need].into_iter().flatten().chain([guarantee.bps]).min(),
            None => Some(0),
        }
    }
}

/// The turns of all guarantees, the earliest first; each once.
fn turns_of(leaves: &[FillLeaf]) -> Vec<i64> {
    let mut turns: Vec<i64> = leaves.iter().filter_map(|leaf| Some(leaf.guarantee?.turn)).collect();
    turns.sort_unstable();
    turns.dedup();
    turns
}

/// The bits a second of each session; [`FREE`] if no cap bounds it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FillResult {
    pub bps: Vec<u64>,
    /// The part that each would have if all wanted everything, so that only their weights differ.
    pub even: Vec<u64>,
}

/// In bits a second: sums of fractions are not exact.
const ROUNDING: f64 = 1e-4;

/// Divides the caps in three rounds. First come guarantees, the earliest turn first; of its guarantee, too, a session
/// gets only what it needs. Then each session gets what it needs, and sessions that yield come last. Then the rest
/// of each cap is divided among the sessions that wish more, and again sessions that yield come last.
pub(super) fn fill(nodes: &[FillNode], leaves: &[FillLeaf]) -> FillResult {
    let bounding: Vec<Vec<usize>> = leaves.iter().map(|leaf| bounding(nodes, leaf)).collect();
    let mut filling = WaterFilling {
        nodes,
        leaves,
        bounding: &bounding,
        rates: vec![0.0; leaves.len()],
        left: nodes.iter().map(|node| node.most.map_or(f64::INFINITY, |most| most as f64)).collect(),
    };
    let is_bounded: Vec<bool> = bounding.iter().map(|nodes| !nodes.is_empty()).collect();
    let even = filling.speeds(&is_bounded);
    for turn in turns_of(leaves) {
        filling.rise(|_, leaf| leaf.guaranteed_in(turn));
    }
    // The need of a new session is hardly known: it gets what shows whether it wants more.
    let need = |at: usize, leaf: &FillLeaf| match leaf.is_new {
        true => Some(even[at] as u64 / KEPT),
        false => leaf.need,
    };
    let needed = |at: usize, leaf: &FillLeaf| leaf.wish.into_iter().chain(need(at, leaf)).min();
    for yields in [false, true] {
        filling.rise(|at, leaf| if leaf.yields() == yields { needed(at, leaf) } else { Some(0) });
    }
    for yields in [false, true] {
        filling.rise(|_, leaf| if leaf.yields() == yields { leaf.wish } else { Some(0) });
    }
    let whole = whole(nodes, leaves, &bounding, &filling.rates);
    let or_free = |(rate, is_bounded): (u64, &bool)| if *is_bounded { rate } else { FREE };
    FillResult {
        bps: whole.into_iter().zip(&is_bounded).map(or_free).collect(),
        even: even.into_iter().map(|rate| rate as u64).zip(&is_bounded).map(or_free).collect(),
    }
}

/// The caps with a rate that a session is in, directly or not; each once.
pub(super) fn bounding(nodes: &[FillNode], leaf: &FillLeaf) -> Vec<usize> {
    let mut found = Vec::new();
    for &(node, _) in &leaf.memberships {
        let mut next = Some(node);
        while let Some(at) = next {
            if nodes[at].most.is_some() && !found.contains(&at) {
                found.push(at);
            }
            next = nodes[at].above;
        }
    }
    found
}

struct WaterFilling<'a> {
    nodes: &'a [FillNode],
    leaves: &'a [FillLeaf],
    bounding: &'a [Vec<usize>],
    rates: Vec<f64>,
    /// The rest of each cap.
    left: Vec<f64>,
}

impl WaterFilling<'_> {
    /// Raises all sessions until each has reached its `limit` or is stopped by a cap.
    fn rise(&mut self, limit: impl Fn(usize, &FillLeaf) -> Option<u64>) {
        let limit = |(at, leaf)| limit(at, leaf).map_or(f64::INFINITY, |bps| bps as f64);
        let limits: Vec<f64> = self.leaves.iter().enumerate().map(limit).collect();
        let mut rising: Vec<bool> = (0..self.leaves.len())
            .map(|leaf| !self.bounding[leaf].is_empty() && self.may_rise(leaf, limits[leaf]))
            .collect();
        while rising.contains(&true) {
            let speeds = self.speeds(&rising);
            let Some((time, first)) = self.first_stop(&rising, &speeds, &limits) else { return };
            self.rise_for(time, &rising, &speeds);
            for leaf in 0..rising.len() {
                rising[leaf] &= leaf != first && self.may_rise(leaf, limits[leaf]);
            }
        }
    }

    /// How long these sessions can rise until one of them has to stop, and that session. `None` if none ever has to.
    fn first_stop(&self, rising: &[bool], speeds: &[f64], limits: &[f64]) -> Option<(f64, usize)> {
        let rising = || (0..rising.len()).filter(move |&leaf| rising[leaf]);
        // How fast the sessions of each cap rise together.
        let mut loads = vec![0.0; self.nodes.len()];
        for leaf in rising() {
            self.bounding[leaf].iter().for_each(|&node| loads[node] += speeds[leaf]);
        }
        let mut first = None;
        let mut least = f64::INFINITY;
        for leaf in rising() {
            let of_limit = (limits[leaf] - self.rates[leaf]) / speeds[leaf];
            let of_caps = self.bounding[leaf].iter().map(|&node| self.left[node] / loads[node]);
            let time = of_caps.fold(of_limit, f64::min).max(0.0);
            if time < least {
                (least, first) = (time, Some((time, leaf)));
            }
        }
        first
    }

    /// Raises these sessions for that long, and takes what they get from their caps.
    fn rise_for(&mut self, time: f64, rising: &[bool], speeds: &[f64]) {
        for leaf in (0..rising.len()).filter(|&leaf| rising[leaf]) {
            let more = speeds[leaf] * time;
            self.rates[leaf] += more;
            self.bounding[leaf].iter().for_each(|&node| self.left[node] -= more);
        }
    }

    fn may_rise(&self, leaf: usize, limit: f64) -> bool {
        limit - self.rates[leaf] > ROUNDING
            && self.bounding[leaf].iter().all(|&node| self.left[node] > ROUNDING)
    }

    /// How fast each of these sessions rises: in proportion to the rate that it would have if its caps were divided
    /// among these sessions alone.
    fn speeds(&self, rising: &[bool]) -> Vec<f64> {
        let weights = self.weights(rising);
        let mut speeds: Vec<f64> = Vec::with_capacity(self.nodes.len());
        for node in self.nodes {
            let of_above = node.above.map(|above| speeds[above] * node.weight / weights[above]);
            let most = node.most.map_or(f64::INFINITY, |most| most as f64);
            speeds.push(of_above.unwrap_or(f64::INFINITY).min(most));
        }
        let speed = |leaf: &FillLeaf| {
            let of_memberships =
                leaf.memberships.iter().map(|&(node, weight)| speeds[node] * weight / weights[node]);
            of_memberships.fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE)
        };
        self.leaves.iter().zip(rising).map(|(leaf, rising)| if *rising { speed(leaf) } else { 0.0 }).collect()
    }

    /// For each cap, the sum of its members' weights: those of these sessions, and of the caps within it that have
    /// such a session.
    fn weights(&self, rising: &[bool]) -> Vec<f64> {
        let mut weights = vec![0.0; self.nodes.len()];
        for (leaf, _) in self.leaves.iter().zip(rising).filter(|(_, is_rising)| **is_rising) {
            for &(node, weight) in &leaf.memberships {
                weights[node] += weight;
            }
        }
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if let Some(above) = node.above.filter(|_| weights[at] > 0.0) {
                weights[above] += node.weight;
            }
        }
        weights
    }
}

/// The rates in whole bits. The remainder goes to the last sessions that may have it.
fn whole(nodes: &[FillNode], leaves: &[FillLeaf], bounding: &[Vec<usize>], rates: &[f64]) -> Vec<u64> {
    let mut whole: Vec<u64> = rates.iter().map(|rate| (rate + ROUNDING) as u64).collect();
    let mut left: Vec<u64> = nodes.iter().map(|node| node.most.unwrap_or(FREE)).collect();
    for (rate, bounding) in whole.iter_mut().zip(bounding) {
        *rate = bounding.iter().map(|&node| left[node]).fold(*rate, u64::min);
        bounding.iter().for_each(|&node| left[node] -= *rate);
    }
    for (leaf, rate) in whole.iter_mut().enumerate().rev() {
        let wanted = leaves[leaf].wish.map_or(FREE, |wish| wish.saturating_sub(*rate));
        let more = bounding[leaf].iter().map(|&node| left[node]).fold(wanted, u64::min);
        if !bounding[leaf].is_empty() && more > 0 {
            *rate += more;
            bounding[leaf].iter().for_each(|&node| left[node] -= more);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn root(most: u64) -> FillNode {
        FillNode { above: None, most: Some(most), weight: 1.0 }
    }

    fn within(above: usize, most: Option<u64>) -> FillNode {
        FillNode { above: Some(above), most, weight: 1.0 }
    }

    fn leaf(memberships: &[usize]) -> FillLeaf {
        FillLeaf { memberships: memberships.iter().map(|&node| (node, 1.0)).collect(), ..FillLeaf::default() }
    }

    fn wishing(most: u64, wishes: &[(Option<u64>, Option<u64>)]) -> Vec<u64> {
        let leaves: Vec<_> =
            wishes.iter().map(|&(wish, need)| FillLeaf { wish, need, ..leaf(&[0]) }).collect();
        fill(&[root(most)], &leaves).bps
    }

    #[test]
    fn parts_are_even_but_for_who_wants_less() {
        for (wishes, parts) in [
            (vec![], vec![]),
            (vec![None], vec![90]),
            (vec![None, None, None], vec![30, 30, 30]),
            (vec![Some(10), None, None], vec![10, 40, 40]),
            (vec![None, Some(100), Some(20)], vec![35, 35, 20]),
            (vec![Some(5), Some(6)], vec![5, 6]),
        ] {
            let wishes: Vec<_> = wishes.into_iter().map(|wish| (wish, None)).collect();
            assert_eq!(wishing(90, &wishes), parts, "{wishes:?}");
        }
    }

    #[test]
    fn what_one_does_not_need_is_the_others() {
        for (sessions, expected) in [
            (vec![], vec![]),
            (vec![(None, Some(10))], vec![90]),
            (vec![(None, Some(10)), (None, None)], vec![10, 80]),
            (vec![(None, Some(10)), (None, Some(20))], vec![40, 50]),
            (vec![(Some(30), Some(10)), (None, Some(20))], vec![30, 60]),
            (vec![(Some(20), None), (None, None), (None, Some(70))], vec![20, 35, 35]),
        ] {
            assert_eq!(wishing(90, &sessions), expected, "{sessions:?}");
        }
    }

    #[test]
    fn parts_are_as_the_weights() {
        let weighted = |weights: &[f64]| {
            let leaves: Vec<_> = weights
                .iter()
                .map(|&weight| FillLeaf { memberships: vec![(0, weight)], ..FillLeaf::default() })
                .collect();
            fill(&[root(90)], &leaves)
        };
        assert_eq!(weighted(&[1.0, 2.0, 6.0]).bps, [10, 20, 60]);
        assert_eq!(weighted(&[0.5, 0.25, 0.75]).even, [30, 15, 45]);
        // The rest that the heavy session leaves is divided by the weights of the others.
        let mut leaves =
            vec![FillLeaf { wish: Some(15), memberships: vec![(0, 6.0)], ..FillLeaf::default() }];
        leaves.extend(
            [1.0, 2.0].map(|weight| FillLeaf { memberships: vec![(0, weight)], ..FillLeaf::default() }),
        );
        assert_eq!(fill(&[root(90)], &leaves).bps, [15, 25, 50]);
        // A cap's weight is its own, whatever is in it.
        let nodes = [root(90), FillNode { weight: 2.0, ..within(0, None) }];
        let leaves = [leaf(&[1]), leaf(&[1]), leaf(&[0])];
        assert_eq!(fill(&nodes, &leaves).bps, [30, 30, 30]);
    }

    #[test]
    fn the_least_of_several_chains_holds_and_the_rest_is_the_others() {
        // Two chains: the first session is in both, and gets the smaller one of its two parts.
        let nodes = [root(100), root(30)];
        assert_eq!(fill(&nodes, &[leaf(&[0, 1]), leaf(&[0])]).bps, [30, 70]);
        assert_eq!(fill(&nodes, &[leaf(&[0, 1]), leaf(&[0]), leaf(&[1])]).bps, [15, 85, 15]);
        // Two ways to one cap: the session counts there once.
        let nodes = [root(100), within(0, Some(80)), within(0, Some(60))];
        assert_eq!(fill(&nodes, &[leaf(&[1, 2])]).bps, [60]);
        assert_eq!(fill(&nodes, &[leaf(&[1, 2]), leaf(&[0])]).bps.iter().sum::<u64>(), 100);
        // No cap has a rate.
        assert_eq!(
            fill(&[within(1, None), FillNode { most: None, ..root(0) }][1..], &[leaf(&[0])]).bps,
            [FREE]
        );
    }

    fn guaranteed(turn: i64, bps: u64, yields: bool) -> FillLeaf {
        FillLeaf { guarantee: Some(RateGuarantee { bps, turn, yields }), ..leaf(&[0]) }
    }

    #[test]
    fn guarantees_come_before_weights_and_who_yields_gets_what_others_leave() {
        let heavy = FillLeaf { memberships: vec![(0, 100.0)], ..FillLeaf::default() };
        let needs = |bps| FillLeaf { need: Some(bps), ..heavy.clone() };
        for (what, leaves, parts) in [
            ("alone it has all", vec![guaranteed(1, 20, true)], vec![90]),
            ("the others have the rest", vec![guaranteed(1, 20, true), heavy.clone()], vec![20, 70]),
            ("it takes what they do not need", vec![guaranteed(1, 20, true), needs(30)], vec![60, 30]),
            (
                "who does not yield shares the rest by weight",
                vec![guaranteed(1, 20, false), leaf(&[0])],
                vec![55, 35],
            ),
            (
                "the earlier turn comes first where guarantees do not fit",
                vec![guaranteed(7, 60, true), guaranteed(2, 50, true), heavy.clone()],
                vec![40, 50, 0],
            ),
            (
                "a guarantee that is not used is the others'",
                vec![FillLeaf { need: Some(10), ..guaranteed(1, 50, true) }, heavy.clone()],
                vec![10, 80],
            ),
            (
                "a wish bounds a guarantee",
                vec![FillLeaf { wish: Some(30), ..guaranteed(1, 50, true) }, heavy.clone()],
                vec![30, 60],
            ),
        ] {
            assert_eq!(fill(&[root(90)], &leaves).bps, parts, "{what}");
        }
        // A guarantee reaches through the caps above, whatever their weights.
        let nodes = [root(90), FillNode { weight: 0.1, ..within(0, Some(50)) }];
        let inner = FillLeaf { memberships: vec![(1, 1.0)], ..guaranteed(1, 40, true) };
        assert_eq!(fill(&nodes, &[inner, heavy]).bps, [40, 50]);
    }

    prop_compose! {
        fn any_caps()(
            nodes in proptest::collection::vec(
                (any::<prop::sample::Index>(), proptest::option::of(1_000u64..1_000_000), 0.1f64..10.0, any::<bool>()), 1..8),
        ) -> Vec<FillNode> {
            nodes.into_iter().enumerate().map(|(at, (above, most, weight, is_root))| FillNode {
                above: (at > 0 && !is_root).then(|| above.index(at)), most, weight,
            }).collect()
        }
    }

    proptest! {
        #[test]
        fn parts_never_come_to_more_than_there_is_and_leave_nothing_that_is_wanted(
            nodes in any_caps(),
            drawn in proptest::collection::vec(
                (proptest::collection::vec((any::<prop::sample::Index>(), 0.1f64..10.0), 1..4),
                 proptest::option::of(0u64..300_000), proptest::option::of(0u64..300_000),
                 proptest::option::of((0i64..4, 0u64..300_000, any::<bool>()))), 1..20),
        ) {
            let leaves: Vec<FillLeaf> = drawn.into_iter().map(|(memberships, wish, need, guarantee)| {
                let mut taken: Vec<(usize, f64)> = Vec::new();
                for (node, weight) in memberships {
                    let node = node.index(nodes.len());
                    if taken.iter().all(|(other, _)| *other != node) { taken.push((node, weight)); }
                }
                let guarantee = guarantee.map(|(turn, bps, yields)| RateGuarantee { bps, turn, yields });
                FillLeaf { memberships: taken, wish, need, is_new: need.is_some_and(|need| need % 3 == 0), guarantee }
            }).collect();
            let parts = fill(&nodes, &leaves).bps;
            let bounding: Vec<_> = leaves.iter().map(|leaf| bounding(&nodes, leaf)).collect();
            let left: Vec<Option<u64>> = (0..nodes.len()).map(|node| {
                let sum: u64 = (0..leaves.len()).filter(|&leaf| bounding[leaf].contains(&node)).map(|leaf| parts[leaf]).sum();
                nodes[node].most.map(|most| most.checked_sub(sum).expect("the parts exceed the cap"))
            }).collect();
            for (leaf, part) in leaves.iter().zip(&parts) {
                prop_assert!(*part == FREE || leaf.wish.is_none_or(|wish| *part <= wish));
            }
            for (at, leaf) in leaves.iter().enumerate().filter(|(at, _)| !bounding[*at].is_empty()) {
                let is_content = leaf.wish == Some(parts[at]);
                prop_assert!(is_content || bounding[at].iter().any(|&node| left[node] == Some(0)), "{at} {parts:?}");
            }
        }

        #[test]
        fn in_one_cap_who_wants_more_has_what_its_weight_says(
            most in 10_000u64..1_000_000,
            sessions in proptest::collection::vec((0.1f64..10.0, proptest::option::of(0u64..300_000)), 1..20),
        ) {
            let leaves: Vec<_> = sessions.iter().map(|&(weight, wish)| {
                FillLeaf { memberships: vec![(0, weight)], wish, ..FillLeaf::default() }
            }).collect();
            let parts = fill(&[root(most)], &leaves).bps;
            for (one, other) in (0..parts.len()).flat_map(|one| (0..parts.len()).map(move |other| (one, other))) {
                // Nobody who wants more has less for its weight than another session.
                let rounding = parts.len() as f64 + 1.0;
                let wants_more = sessions[one].1.is_none_or(|wish| wish > parts[one]);
                let most = (parts[one] as f64 + rounding) / sessions[one].0;
                let least = (parts[other] as f64 - rounding) / sessions[other].0;
                prop_assert!(!wants_more || most >= least, "{one} {other} {parts:?}");
            }
        }
    }
}
