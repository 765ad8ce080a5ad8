use farhaul_words::Policy;
use proptest::prelude::*;

use super::*;
use crate::options::RATE_MIN_BPS;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Two blocks a second.
const MOST: u64 = 2 * 8 * BLOCK;

#[test]
fn what_one_does_not_use_is_the_others() {
    let begin = Instant::now();
    let cap = RateCap::new("this key", Some(MOST), begin);
    let (idle, busy) = (cap.join(begin).unwrap(), cap.join(begin).unwrap());
    let mut moved = 0;
    for step in 1..=40 {
        let now = begin + step * Duration::from_millis(100);
        moved += busy.bps().unwrap() / 80;
        busy.has_moved(moved, 0, now);
        idle.has_moved(0, 0, now);
    }
    // The others also make up for what one keeps and does not use, as far as they may.
    let made_up = (MOST as f64 * 1.05) as u64;
    assert_eq!((idle.bps(), busy.bps()), (Some(made_up / 8), Some(made_up - made_up / 8)));
    idle.has_moved(MOST, 0, begin + Duration::from_secs(5));
    assert_eq!(idle.bps(), busy.bps());
}

#[test]
fn whoever_comes_or_goes_the_parts_are_the_cap() {
    let now = Instant::now();
    let cap = RateCap::new("this key", Some(MOST), now);
    let one = cap.join(now).unwrap();
    assert_eq!(one.bps(), Some(MOST));
    let other = cap.join(now).unwrap();
    assert_eq!((one.bps(), other.bps()), (Some(MOST / 2), Some(MOST / 2)));
    other.set_wish(Some(MOST / 8));
    assert_eq!((one.bps(), other.bps()), (Some(MOST - MOST / 8), Some(MOST / 8)));
    cap.set_most(Some(2 * MOST), now);
    assert_eq!(one.bps(), Some(2 * MOST - MOST / 8));
    cap.set_most(None, now);
    assert_eq!(one.bps(), None);
    cap.set_most(Some(MOST), now);
    drop(one);
    other.set_wish(None);
    assert_eq!(other.bps(), Some(MOST));
    let small = RateCap::new("this key", Some(2 * RATE_MIN_BPS), now);
    let both = (small.join(now), small.join(now));
    assert!(both.0.is_ok() && both.1.is_ok() && small.join(now).is_err(), "no room for a third");
}

#[test]
fn a_wish_is_bounded_and_stays_one() {
    let now = Instant::now();
    let share = RateCap::new("this key", Some(1_000_000), now).join(now).unwrap();
    let rate = |policy, rate_bps, rate_min_bps| RateOptions { policy, rate_bps, rate_min_bps };
    for (wish, bounded) in [
        (rate(Policy::Fair, None, None), rate(Policy::Fair, Some(1_000_000), None)),
        (rate(Policy::Fixed, Some(5_000_000), None), rate(Policy::Fixed, Some(1_000_000), None)),
        (rate(Policy::Low, Some(20_000), Some(10_000)), rate(Policy::Low, Some(20_000), Some(10_000))),
        (rate(Policy::High, None, Some(2_000_000)), rate(Policy::High, Some(1_000_000), Some(1_000_000))),
    ] {
        assert_eq!(share.part().unwrap().bounds(wish, share.bps().unwrap()), bounded);
        assert!(bounded.checked().is_ok());
    }
}

#[test]
fn no_more_is_granted_than_the_receivers_parts_come_to() {
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let cap = RateCap::new("this key", Some(MOST), begin);
    let sender = cap.join(begin).unwrap();
    let [one, other] = [(); 2].map(|()| cap.join(begin).unwrap());
    for receiver in [&one, &other] {
        receiver.allow(ContentRole::Receiver);
    }
    drop(sender);
    // It does not matter which session took the blocks.
    let mut taken = one.take_blocks(100, at(0));
    assert_eq!(taken, BURST_BLOCKS as u64);
    for step in 1..=1000 {
        taken += [&one, &other][step % 2].take_blocks(100, at(100 * step as u64));
    }
    assert!((199..=204).contains(&taken), "{taken}");
    // A session that comes again gains nothing by that.
    drop((one, other));
    assert!(!cap.is_idle(at(100_100)));
    let again = cap.join(at(100_100)).unwrap();
    again.allow(ContentRole::Receiver);
    assert!(again.take_blocks(100, at(100_100)) <= 1);
    drop(again);
    assert!(cap.is_idle(at(110_000)));
}

#[test]
fn both_ways_of_a_session_come_to_its_part() {
    let begin = Instant::now();
    let share = RateCap::new("this key", Some(MOST), begin).join(begin).unwrap();
    share.allow(ContentRole::Sender);
    assert_eq!(share.bps(), Some(MOST));
    share.allow(ContentRole::Receiver);
    share.allow(ContentRole::Receiver);
    assert_eq!(share.bps(), Some(MOST / 2));
    let taken = |ms| share.take_blocks(100, begin + Duration::from_millis(ms));
    assert_eq!((taken(10), taken(1010), taken(2010)), (BURST_BLOCKS as u64, 1, 1));
}

#[test]
fn caps_within_a_cap_have_even_parts_however_many_sessions_they_have() {
    let now = Instant::now();
    let process = RateCap::new("this daemon", Some(1_200_000), now);
    let [one, other] = [None, Some(400_000)].map(|most| process.within("this key", most, now));
    let join = |cap: &RateCap| cap.join(now).unwrap();
    let bps = |shares: &[&RateShares]| shares.iter().map(|share| share.bps().unwrap()).collect::<Vec<_>>();
    let first = join(&one);
    assert_eq!(bps(&[&first]), [1_200_000]);
    let second = join(&one);
    let alone = join(&other);
    // The first cap gets what the other's own cap leaves.
    assert_eq!(bps(&[&first, &second, &alone]), [400_000, 400_000, 400_000]);
    let further = [join(&other), join(&other), join(&other)];
    assert_eq!(bps(&[&first, &second, &alone, &further[0]]), [400_000, 400_000, 100_000, 100_000]);
    other.set_most(None, now);
    assert_eq!(bps(&[&first, &second, &alone]), [300_000, 300_000, 150_000]);
    first.set_wish(Some(100_000));
    second.set_wish(Some(100_000));
    assert_eq!(bps(&[&first, &second, &alone]), [100_000, 100_000, 250_000]);
    drop((alone, further));
    second.set_wish(None);
    assert_eq!(bps(&[&first, &second]), [100_000, 1_100_000]);
    assert!(other.is_idle(now));
    let small = process.within("this key", Some(2 * RATE_MIN_BPS - 1), now);
    let _has_all = join(&small);
    assert_eq!(small.join(now).unwrap_err().whose.as_ref(), "this key");
    let crowd: Vec<_> =
        (0..200).map_while(|_| process.within("this key", None, now).join(now).ok()).collect();
    assert_eq!(crowd.len(), 148, "each has the smallest rate");
    let refused = process.within("this key", None, now).join(now).unwrap_err();
    assert_eq!((refused.whose.as_ref(), refused.most_bps), ("this daemon", 1_200_000));
}

#[test]
fn all_that_is_granted_comes_to_no_more_than_the_cap_above() {
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let process = RateCap::new("this daemon", Some(MOST), begin);
    let keys = [(); 3].map(|()| process.within("this key", None, begin));
    let shares: Vec<_> = (0..7).map(|session| keys[session % 3].join(begin).unwrap()).collect();
    shares[1..].iter().for_each(|share| share.allow(ContentRole::Receiver));
    shares[0].allow(ContentRole::Sender);
    let mut taken = 0;
    for step in 1..=2000 {
        taken += shares[1 + step % 6].take_blocks(100, at(50 * step as u64));
    }
    // Of the first key's part, a third, two thirds are received.
    let received = 200.0 * (2.0 / 3.0 + 2.0 / 9.0);
    assert!((f64::from(taken as u32) - received).abs() < 12.0, "{taken} of {received}");
}

proptest! {
    #[test]
    fn the_parts_of_all_sessions_come_to_no_more_than_any_cap(
        most in 400_000u64..10_000_000,
        keys in proptest::collection::vec(
            (proptest::option::of(200_000u64..5_000_000),
             proptest::collection::vec(proptest::option::of(8_000u64..2_000_000), 1..6)), 1..5),
    ) {
        let now = Instant::now();
        let process = RateCap::new("this daemon", Some(most), now);
        let mut all = Vec::new();
        for (own, wishes) in &keys {
            let cap = process.within("this key", *own, now);
            let shares: Vec<_> = wishes.iter().map(|wish| {
                let share = cap.join(now).unwrap();
                share.set_wish(*wish);
                share
            }).collect();
            all.push((own, wishes, shares));
        }
        let mut sum = 0;
        for (own, wishes, shares) in &all {
            let parts: Vec<_> = shares.iter().map(|share| share.part().unwrap().in_all).collect();
            let of_key: u64 = parts.iter().sum();
            prop_assert!(own.is_none_or(|own| of_key <= own));
            prop_assert!(parts.iter().zip(*wishes).all(|(part, wish)| wish.is_none_or(|wish| *part <= wish)));
            sum += of_key;
        }
        prop_assert!(sum <= most);
        // A rest belongs to nobody only if nobody may have it or wants it, or if it cannot be divided.
        let wants = |own: &Option<u64>, wishes: &[Option<u64>]| {
            let wishes = wishes.iter().copied().sum::<Option<u64>>();
            own.iter().copied().chain(wishes).min().unwrap_or(u64::MAX)
        };
        let wanted = all.iter().fold(0u64, |sum, (own, wishes, _)| sum.saturating_add(wants(own, wishes)));
        prop_assert!(most.min(wanted) - sum < 30);
    }
}

#[test]
fn a_flow_has_what_it_needs_ahead() {
    let now = Instant::now();
    let share = RateCap::new("this key", Some(MOST), now).join(now).unwrap();
    let ahead = |ms, bytes| share.blocks_ahead(Duration::from_millis(ms), bytes);
    let block = BLOCK as f64;
    assert_eq!([ahead(0, block), ahead(1, block), ahead(1000, block)], [1, 2, 3]);
    assert_eq!([ahead(1000, block / 2.0), ahead(0, 0.0)], [5, 1]);
}

#[test]
fn short_blocks_count_as_what_they_are() {
    let now = Instant::now();
    let share = RateCap::new("this key", Some(RATE_MIN_BPS), now).join(now).unwrap();
    share.allow(ContentRole::Receiver);
    for _ in 0..1000 {
        assert_eq!(share.take_blocks(1, now), 1);
        share.give_back_rest(1);
    }
    assert_eq!(share.take_blocks(9, now), BURST_BLOCKS as u64 - 1);
}

#[test]
fn nobody_starves_beside_others_that_are_ahead_and_beginning_again_brings_nothing() {
    let begin = Instant::now();
    let cap = RateCap::new("this key", Some(MOST), begin);
    let shares: Vec<_> = (0..8).map(|_| cap.join(begin).unwrap()).collect();
    shares.iter().for_each(|share| share.allow(ContentRole::Receiver));
    // The first one is ahead of the others.
    assert_eq!(
        (shares[0].take_blocks(100, begin), shares[1].take_blocks(1, begin)),
        (BURST_BLOCKS as u64, 0)
    );
    let lent: u64 = shares.iter().map(|share| share.take_when_dry(begin)).sum();
    assert_eq!(lent, 7, "to all but the first, which has had more than its part");
    assert_eq!(shares[1].take_when_dry(begin), 1, "and one more, as there are eight");
    assert_eq!(shares[2].take_when_dry(begin), 0);
    drop(shares);
    let mut taken = 0;
    for _ in 0..20 {
        let again = cap.join(begin).unwrap();
        again.allow(ContentRole::Receiver);
        taken += again.take_blocks(1, begin) + again.take_when_dry(begin);
    }
    assert_eq!(taken, 0, "what was lent comes first");
    // Blocks that were not used are there again.
    let other = RateCap::new("this key", Some(MOST), begin);
    let share = other.join(begin).unwrap();
    share.allow(ContentRole::Receiver);
    assert_eq!(share.take_blocks(100, begin), BURST_BLOCKS as u64);
    share.give_back_blocks(2);
    assert_eq!(share.take_blocks(100, begin), 2);
}

#[test]
fn a_session_in_two_chains_is_granted_what_both_allow() {
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let key = RateCap::new("this key", Some(4 * MOST), begin);
    let uplink = key.beside("campus-uplink", Some(MOST), begin);
    let named = CapMemberships::from(vec![CapMembership { cap: uplink.clone(), weight: 2.0 }]);
    let both = RateShares::join(Some(key.clone().into()), &named, begin).unwrap();
    let one = key.join(begin).unwrap();
    [&both, &one].iter().for_each(|share| share.allow(ContentRole::Receiver));
    assert_eq!((both.bps(), one.bps()), (Some(MOST), Some(3 * MOST)));
    let taken: u64 = (1..=200).map(|step| both.take_blocks(9, at(100 * step))).sum();
    assert!((40..=44).contains(&taken), "{taken} of the uplink's 2 a second");
    let other = uplink.join(begin).unwrap();
    assert_eq!((both.bps(), other.bps()), (Some(MOST * 2 / 3), Some(MOST - MOST * 2 / 3)));
    other.set_weight(4.0, begin);
    assert_eq!((both.bps(), other.bps()), (Some(MOST / 3), Some(MOST - MOST / 3)));
    assert_eq!((uplink.usage().sessions, key.usage().sessions, uplink.usage().given_bps), (2, 2, MOST));
    drop((both, other));
    assert_eq!(one.bps(), Some(4 * MOST));
    assert!(uplink.is_idle(at(120_000)));
}

/// A row: the caps (the one above, a rate, a weight), the sessions in them (the cap, a weight, a wish), and
/// the parts that they get.
struct Tree(
    &'static str,
    &'static [(Option<usize>, Option<u64>, f64)],
    &'static [(usize, f64, Option<u64>)],
    &'static [u64],
);

/// In units of 100 kbit/s.
const TREES: &[Tree] = &[
    Tree("even", &[(None, Some(120), 1.0)], &[(0, 1.0, None), (0, 1.0, None), (0, 1.0, None)], &[40, 40, 40]),
    Tree(
        "by weight",
        &[(None, Some(120), 1.0)],
        &[(0, 1.0, None), (0, 2.0, None), (0, 3.0, None)],
        &[20, 40, 60],
    ),
    Tree(
        "what one session leaves goes to the others by weight",
        &[(None, Some(120), 1.0)],
        &[(0, 3.0, Some(30)), (0, 1.0, None), (0, 2.0, None)],
        &[30, 30, 60],
    ),
    Tree(
        "a cap is one member however many are in it",
        &[(None, Some(120), 1.0), (Some(0), None, 1.0)],
        &[(1, 1.0, None), (1, 1.0, None), (1, 1.0, None), (0, 1.0, None)],
        &[20, 20, 20, 60],
    ),
    Tree(
        "a cap's weight, and weights within it",
        &[(None, Some(120), 1.0), (Some(0), None, 2.0), (Some(0), None, 1.0)],
        &[(1, 1.0, None), (1, 3.0, None), (2, 1.0, None)],
        &[20, 60, 40],
    ),
    Tree(
        "what a cap may not have goes to the others",
        &[(None, Some(120), 1.0), (Some(0), Some(20), 3.0), (Some(0), None, 1.0)],
        &[(1, 1.0, None), (2, 1.0, None), (2, 1.0, None)],
        &[20, 50, 50],
    ),
    Tree(
        "what members of a cap leave goes to its other members first",
        &[(None, Some(120), 1.0), (Some(0), None, 1.0), (Some(0), None, 1.0)],
        &[(1, 1.0, Some(10)), (1, 1.0, None), (2, 1.0, None)],
        &[10, 50, 60],
    ),
    Tree(
        "and then to members of other caps",
        &[(None, Some(120), 1.0), (Some(0), None, 1.0), (Some(0), None, 1.0)],
        &[(1, 1.0, Some(10)), (1, 1.0, Some(20)), (2, 1.0, None)],
        &[10, 20, 90],
    ),
    Tree(
        "the least of three levels",
        &[
            (None, Some(120), 1.0),
            (Some(0), Some(60), 1.0),
            (Some(1), Some(90), 1.0),
            (Some(2), Some(80), 1.0),
        ],
        &[(3, 1.0, None), (0, 1.0, None)],
        &[60, 60],
    ),
    Tree(
        "an empty cap takes nothing",
        &[(None, Some(120), 1.0), (Some(0), Some(60), 9.0)],
        &[(0, 1.0, None)],
        &[120],
    ),
];

#[test]
fn a_tree_is_divided_by_its_rules() {
    const UNIT: u64 = 100_000;
    for Tree(rule, caps, members, expected) in TREES {
        let now = Instant::now();
        let mut made: Vec<RateCap> = Vec::new();
        for &(above, most, weight) in *caps {
            let most = most.map(|most| most * UNIT);
            let cap = match above {
                Some(above) => made[above].within("cap", most, now),
                None => RateCap::new("host", most, now),
            };
            cap.set_weight(weight, now);
            made.push(cap);
        }
        let join = |&(cap, weight, wish): &(usize, f64, Option<u64>)| {
            let membership = CapMembership { cap: made[cap].clone(), weight };
            let share = RateShares::join(Some(membership), &CapMemberships::default(), now).unwrap();
            share.set_wish(wish.map(|wish| wish * UNIT));
            share
        };
        let shares: Vec<_> = members.iter().map(join).collect();
        let parts: Vec<_> = shares.iter().map(|share| share.bps().unwrap()).collect();
        let near = |part: &u64, expected: &u64| part.abs_diff(expected * UNIT) <= 3;
        let is_so = parts.iter().zip(*expected).all(|(part, expected)| near(part, expected));
        assert!(is_so && parts.len() == expected.len(), "{rule}: {parts:?}");
    }
}

#[test]
fn a_guarantee_holds_against_any_weight_and_goes_with_its_session() {
    let now = Instant::now();
    let cap = RateCap::new("host", Some(1_000_000), now);
    let [sure, heavy] = [(); 2].map(|()| cap.join(now).unwrap());
    heavy.set_weight(1000.0, now);
    let parts = || [&sure, &heavy].map(|share| share.bps().unwrap());
    assert!(parts()[0] < 10_000, "{:?}", parts());
    let guarantee = RateGuarantee { bps: 300_000, turn: 1, yields: true };
    sure.set_guarantee(Some(guarantee));
    assert_eq!(parts(), [300_000, 700_000]);
    // An earlier turn comes first.
    heavy.set_guarantee(Some(RateGuarantee { bps: 900_000, turn: 0, yields: false }));
    assert_eq!(parts(), [100_000, 900_000]);
    heavy.set_guarantee(None);
    heavy.set_wish(Some(200_000));
    assert_eq!(parts(), [800_000, 200_000], "it takes what nobody else wants");
    heavy.set_wish(None);
    sure.set_guarantee(None);
    assert!(parts()[0] < 10_000, "{:?}", parts());
    sure.set_guarantee(Some(guarantee));
    drop(sure);
    assert_eq!(heavy.bps(), Some(1_000_000));
}

#[test]
fn a_session_moves_to_another_cap_and_counts_there() {
    let now = Instant::now();
    let host = RateCap::new("host", Some(1_200_000), now);
    let [campus, peer] = [Some(600_000), Some(400_000)].map(|most| host.within("cap", most, now));
    let key = host.beside("this key", Some(900_000), now);
    let memberships = |cap: &RateCap| vec![CapMembership::from(cap.clone())];
    let named = CapMemberships::from(memberships(&campus));
    let share = RateShares::join(Some(key.clone().into()), &named, now).unwrap();
    let stays = campus.join(now).unwrap();
    share.has_moved(1000, 0, now);
    assert_eq!((share.bps(), stays.bps()), (Some(300_000), Some(300_000)));
    named.set(memberships(&peer), now);
    assert_eq!((share.bps(), stays.bps()), (Some(400_000), Some(600_000)));
    share.has_moved(3000, 0, now);
    // A session that begins later is in the caps that the first one has by now, and keeps the key's cap.
    let second = RateShares::join(Some(key.clone().into()), &named, now).unwrap();
    assert_eq!((share.bps(), second.bps()), (Some(200_000), Some(200_000)));
    let figures = |cap: &RateCap| (cap.usage().sessions, cap.usage().moved_bytes);
    assert_eq!([&campus, &peer, &key, &host].map(figures), [(1, 1000), (2, 2000), (2, 3000), (3, 3000)]);
    // In no named cap, only the key's cap is left.
    named.set(Vec::new(), now);
    assert_eq!((share.bps(), second.bps(), stays.bps()), (Some(450_000), Some(450_000), Some(600_000)));
    named.set(memberships(&campus), now);
    assert_eq!((share.bps(), stays.bps()), (Some(200_000), Some(200_000)));
    drop((share, second));
    assert_eq!((stays.bps(), figures(&key).0), (Some(600_000), 0));
    // Nobody is in them any more.
    let weak = named.downgrade();
    drop(named);
    assert!(weak.upgrade().is_none());
}

#[test]
fn one_that_moves_is_lowered_before_others_are_raised() {
    let now = Instant::now();
    let host = RateCap::new("host", Some(1_000_000), now);
    let campus = host.within("campus", Some(200_000), now);
    let named = CapMemberships::from(vec![host.clone().into()]);
    let moves = RateShares::join(None, &named, now).unwrap();
    moves.follow(|| {});
    let (in_host, in_campus) = (host.join(now).unwrap(), campus.join(now).unwrap());
    moves.confirm(moves.part().unwrap(), now);
    assert_eq!(
        [&moves, &in_host, &in_campus].map(RateShares::bps),
        [Some(400_000), Some(400_000), Some(200_000)]
    );
    named.set(vec![campus.clone().into()], now);
    assert_eq!(
        [&moves, &in_host, &in_campus].map(RateShares::bps),
        [Some(100_000), Some(500_000), Some(100_000)],
        "the host's session gets what the campus' has given up; the one that moves may still use all that it had"
    );
    moves.confirm(moves.part().unwrap(), now);
    assert_eq!(
        [&moves, &in_host, &in_campus].map(RateShares::bps),
        [Some(100_000), Some(800_000), Some(100_000)]
    );
}

#[test]
fn changes_that_count_at_once_raise_nobody_in_between() {
    let now = Instant::now();
    let host = RateCap::new("host", Some(1_000_000), now);
    let old = host.within("campus", Some(400_000), now);
    let named: [CapMemberships; 2] = [(); 2].map(|()| CapMemberships::from(vec![old.clone().into()]));
    let rung = Arc::new(AtomicBool::new(false));
    let shares = named.each_ref().map(|named| RateShares::join(None, named, now).unwrap());
    for share in &shares {
        let rung = rung.clone();
        share.follow(move || rung.store(true, Ordering::Relaxed));
        share.confirm(share.part().unwrap(), now);
    }
    assert!(shares.iter().all(|share| share.bps() == Some(200_000)));
    rung.store(false, Ordering::Relaxed);
    host.at_once(|| {
        let new = host.within("campus", Some(400_000), now);
        named.iter().for_each(|named| named.set(vec![new.clone().into()], now));
        assert!(shares.iter().all(|share| share.bps() == Some(200_000)));
    });
    assert!(shares.iter().all(|share| share.bps() == Some(200_000)));
    assert!(!rung.load(Ordering::Relaxed), "nothing has changed for them");
}

#[test]
fn what_was_taken_in_one_cap_does_not_come_back_in_another() {
    let now = Instant::now();
    let host = RateCap::new("host", Some(4 * MOST), now);
    let [old, new] = [(); 2].map(|()| host.within("cap", Some(MOST), now));
    let named = CapMemberships::from(vec![old.clone().into()]);
    let share = RateShares::join(None, &named, now).unwrap();
    share.allow(ContentRole::Receiver);
    assert_eq!(share.take_blocks(100, now), BURST_BLOCKS as u64);
    named.set(vec![new.clone().into()], now);
    share.give_back_blocks(BURST_BLOCKS as u64);
    let other = new.join(now).unwrap();
    other.allow(ContentRole::Receiver);
    let taken = share.take_blocks(100, now) + other.take_blocks(100, now);
    assert_eq!(taken, BURST_BLOCKS as u64, "of the new cap's own");
}
