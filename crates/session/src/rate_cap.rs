//! The most that several sessions may move together, and each one's part of it: those of one principal at a
//! daemon, and within the daemon's own cap those of all principals.
//!
//! A session that sends keeps to its part by its own pace. One that receives asks the far end to do so, and
//! grants it no more blocks than its part allows: who does not listen gets no further for it.
//!
//! Parts are even, but what a member does not want, or has not used of late, is the others'. A cap within another
//! is one member of that, however many sessions it has: it divides the part that it has there.
//!
//! Always true: the parts come to no more than the cap (but for sessions that have the smallest rate there is), and to all
//! of it where the wishes do; the blocks that
//! all receivers together have granted come to no more than what their parts allow since the cap began, and
//! [`burst`]. A cap is locked before the one that it lies within.

mod demand;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;

use super::BLOCK_BYTES;
use super::options::{RATE_MIN_BPS, RateOptions};
use super::supervisor::Role;
use crate::error::{Code, Error};
use demand::Demand;

/// Blocks that may be granted at once after a silence, and the time that they may be worth where that is
/// more: grants come as seldom as a flow thread wakes by itself.
const BURST_BLOCKS: f64 = 4.0;
const BURST_SECONDS: f64 = 0.25;
/// Blocks that a flow has before it needs them, on the nearest path.
const BLOCKS_AHEAD: u64 = 1;
/// Bytes of a bit.
const BITS: f64 = 1.0 / 8.0;

/// What may be moved together. Clones are the same.
#[derive(Debug, Clone)]
pub struct RateCap(Arc<Mutex<State>>);

/// Each session would have less than the smallest rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rate of {whose} is used up ({most_bps} bit/s): another transfer would have next to none of it")]
pub struct RateUsedUp {
    /// Whose rate it is, as people are told.
    pub whose: &'static str,
    /// Bits a second.
    pub most_bps: u64,
}

impl From<RateUsedUp> for Error {
    fn from(used_up: RateUsedUp) -> Error {
        let hint = "try again when others have ended, or let the far end move more (serve --max-rate; max-rate= before its key)";
        Error::new(Code::ShareUsed, used_up.to_string()).with_hint(hint)
    }
}

#[derive(Debug)]
struct State {
    /// Whose it is, as people are told.
    whose: &'static str,
    /// What it is set to, and what of that it has within the cap above.
    own_bps: Option<u64>,
    most_bps: Option<u64>,
    /// The cap that it lies within, and while it has members its part of that.
    above: Option<(RateCap, Option<RateShare>)>,
    members: Vec<Member>,
    next_id: u64,
    /// Bytes that all its members have moved, also those that have left.
    moved: u64,
    /// Bytes that receivers may grant now, and when that was.
    bytes: f64,
    at: Instant,
}

#[derive(Debug)]
struct Member {
    id: u64,
    /// What its users want at most, if they said so.
    wish_bps: Option<u64>,
    /// What it seems to need.
    demand: Demand,
    ways: Ways,
    /// Bytes that it has moved.
    moved: u64,
    part_bps: u64,
}

/// Which ways a member's bytes go.
#[derive(Debug)]
enum Ways {
    Session {
        sends: bool,
        receives: bool,
    },
    /// A cap, and the share of its part that its receivers have.
    Cap {
        received: f64,
    },
}

impl Member {
    /// Of its part, what goes each way.
    fn each_way_bps(&self) -> u64 {
        let ways = if matches!(self.ways, Ways::Session { sends: true, receives: true }) { 2 } else { 1 };
        (self.part_bps / ways).max(RATE_MIN_BPS)
    }

    /// Of its part, what is granted to who sends to it.
    fn granting_bps(&self) -> f64 {
        match self.ways {
            Ways::Session { receives: true, .. } => self.each_way_bps() as f64,
            Ways::Session { receives: false, .. } => 0.0,
            Ways::Cap { received } => self.part_bps as f64 * received,
        }
    }
}

/// A session's part of a cap, which is the others' again when it is dropped.
#[derive(Debug)]
pub struct RateShare {
    cap: RateCap,
    id: u64,
}

impl RateCap {
    /// A cap within no other; `whose` is for people.
    pub fn new(whose: &'static str, most_bps: Option<u64>, now: Instant) -> RateCap {
        RateCap::of(whose, most_bps, None, now)
    }

    /// A cap within this one: its sessions have one part of this one together.
    pub fn within(&self, whose: &'static str, most_bps: Option<u64>, now: Instant) -> RateCap {
        RateCap::of(whose, most_bps, Some((self.clone(), None)), now)
    }

    fn of(
        whose: &'static str,
        own_bps: Option<u64>,
        above: Option<(RateCap, Option<RateShare>)>,
        now: Instant,
    ) -> RateCap {
        RateCap(Arc::new(Mutex::new(State {
            whose,
            own_bps,
            most_bps: own_bps,
            above,
            members: Vec::new(),
            next_id: 0,
            moved: 0,
            bytes: burst(own_bps.unwrap_or(0) as f64),
            at: now,
        })))
    }

    /// Whether there is a most, here or above.
    pub fn is_set(&self) -> bool {
        let state = self.0.lock().in_any_case();
        state.own_bps.is_some() || state.above.as_ref().is_some_and(|(cap, _)| cap.is_set())
    }

    /// Another session.
    pub fn join(&self, now: Instant) -> Result<RateShare, RateUsedUp> {
        self.add(Ways::Session { sends: false, receives: false }, now)
    }

    fn add(&self, ways: Ways, now: Instant) -> Result<RateShare, RateUsedUp> {
        let mut state = self.0.lock().in_any_case();
        state.join_above(now)?;
        let id = state.next_id;
        state.next_id += 1;
        let demand = Demand::new(now);
        let member = Member { id, wish_bps: None, demand, ways, moved: 0, part_bps: 0 };
        state.change(now, |state| state.members.push(member));
        // What is above has changed with what is wanted here.
        state.look_above(now);
        match state.most_bps.filter(|most| most / (state.members.len() as u64) < RATE_MIN_BPS) {
            None => Ok(RateShare { cap: self.clone(), id }),
            Some(most_bps) => {
                let whose = state.limiting();
                state.remove(id, now);
                Err(RateUsedUp { whose, most_bps })
            }
        }
    }

    /// From now on so much; running sessions go on at it.
    pub fn set_most(&self, most_bps: Option<u64>, now: Instant) {
        let mut state = self.0.lock().in_any_case();
        if state.own_bps != most_bps {
            state.own_bps = most_bps;
            state.tell_above(now);
            state.look_above(now);
        }
    }

    /// Whether nothing would be known less without it: no session has a part, and all that may be saved is.
    pub fn is_idle(&self, now: Instant) -> bool {
        let mut state = self.0.lock().in_any_case();
        state.settle(now);
        state.members.is_empty() && (state.most_bps.is_none() || state.bytes >= state.burst())
    }
}

impl RateShare {
    /// The cap as it is now, within what it has above.
    fn state(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.cap.0.lock().in_any_case();
        state.look_above(now);
        state
    }

    /// Bits a second that go each way, at most; `None` for as many as it likes.
    pub fn bps(&self) -> Option<u64> {
        self.read(Member::each_way_bps)
    }

    /// Bits a second in all, at most.
    fn part_bps(&self) -> Option<u64> {
        self.read(|member| member.part_bps)
    }

    fn read(&self, of: impl FnOnce(&Member) -> u64) -> Option<u64> {
        let state = self.state(Instant::now());
        state.most_bps.and_then(|_| state.members.iter().find(|member| member.id == self.id)).map(of)
    }

    /// What the two users want, within this part.
    pub(crate) fn bounds(&self, wish: RateOptions) -> RateOptions {
        let Some(part) = self.bps() else { return wish };
        let rate_bps = wish.rate_bps.map_or(part, |bps| bps.min(part));
        let rate_min_bps = wish.rate_min_bps.map(|bps| bps.min(rate_bps));
        RateOptions { rate_bps: Some(rate_bps), rate_min_bps, ..wish }
    }

    /// What its users want at most: what they leave is the others'.
    pub(crate) fn set_wish(&self, wish_bps: Option<u64>) {
        self.change(Instant::now(), |member| member.wish_bps = wish_bps);
    }

    /// It has moved so many bytes in all: what it does not use is the others' until it does.
    pub(crate) fn has_moved(&self, bytes: u64, now: Instant) {
        let mut state = self.state(now);
        let even = state.most_bps.map(|most| most / state.members.len().max(1) as u64);
        let Some(member) = state.members.iter_mut().find(|member| member.id == self.id) else { return };
        let more = bytes.saturating_sub(member.moved);
        member.moved += more;
        let has_changed = even.is_some_and(|even| member.demand.look(bytes, member.part_bps, even, now));
        state.moved += more;
        if has_changed {
            state.change(now, |_| {});
        }
        let moved = state.moved;
        if let Some((_, Some(share))) = &state.above {
            share.has_moved(moved, now);
        }
    }

    /// This end sends from now on, or it receives: then its part counts where blocks are granted. One that does
    /// both has half of its part for each.
    pub(crate) fn allow(&self, role: Role) {
        self.change(Instant::now(), |member| match (&mut member.ways, role) {
            (Ways::Session { sends, .. }, Role::Sender) => *sends = true,
            (Ways::Session { receives, .. }, Role::Receiver) => *receives = true,
            (Ways::Cap { .. }, _) => {}
        });
    }

    /// Blocks of such a length that a flow needs before it has begun with them: what its part brings in a
    /// round trip, and one that follows.
    pub(crate) fn blocks_ahead(&self, round_trip: Duration, block_bytes: f64) -> u64 {
        let bytes = |bps: u64| bps as f64 * BITS * round_trip.as_secs_f64();
        self.bps().map_or(u64::MAX, |bps| BLOCKS_AHEAD + (bytes(bps) / block_bytes.max(1.0)).ceil() as u64)
    }

    /// Takes so many blocks, or as many as may be granted now.
    pub(crate) fn take_blocks(&self, wanted: u64, now: Instant) -> u64 {
        let mut state = self.state(now);
        let within = match state.most_bps {
            Some(_) => {
                state.settle(now);
                wanted.min((state.bytes / BLOCK_BYTES as f64).max(0.0) as u64)
            }
            None => wanted,
        };
        let taken = match &state.above {
            Some((_, Some(share))) => share.take_blocks(within, now),
            Some((_, None)) | None => within,
        };
        if state.most_bps.is_some() {
            state.bytes -= (taken * BLOCK_BYTES as u64) as f64;
        }
        taken
    }

    /// A block that was taken is only so long.
    pub(crate) fn give_back_rest(&self, len: u32) {
        let mut state = self.cap.0.lock().in_any_case();
        if state.most_bps.is_some() {
            state.bytes += (BLOCK_BYTES as u64).saturating_sub(len.into()) as f64;
        }
        if let Some((_, Some(share))) = &state.above {
            share.give_back_rest(len);
        }
    }

    fn change(&self, now: Instant, change: impl FnOnce(&mut Member)) {
        let mut state = self.state(now);
        state.change(now, |state| {
            if let Some(member) = state.members.iter_mut().find(|member| member.id == self.id) {
                change(member);
            }
        });
    }
}

impl Drop for RateShare {
    fn drop(&mut self) {
        let mut state = self.cap.0.lock().in_any_case();
        state.remove(self.id, Instant::now());
    }
}

impl State {
    // ---- the cap above -----------------------------------------------------------------------------------------------

    /// A cap with members has a part of the one above, and time to find its rate whenever another one comes.
    fn join_above(&mut self, now: Instant) -> Result<(), RateUsedUp> {
        match &mut self.above {
            Some((cap, share @ None)) => *share = Some(cap.add(Ways::Cap { received: 0.0 }, now)?),
            Some((_, Some(share))) => share.change(now, |member| member.demand = Demand::new(now)),
            None => {}
        }
        Ok(())
    }

    fn leave_above_if_empty(&mut self, now: Instant) {
        if let Some((_, share)) = self.above.as_mut().filter(|_| self.members.is_empty()) {
            drop(share.take());
            self.moved = 0;
            self.look_above(now);
        }
    }

    /// What it has is what it is set to, within its part of the cap above.
    fn look_above(&mut self, now: Instant) {
        let part = match &self.above {
            Some((_, Some(share))) => share.part_bps(),
            Some((_, None)) | None => None,
        };
        let most = self.own_bps.into_iter().chain(part).min();
        if most != self.most_bps {
            self.change(now, |state| state.most_bps = most);
        }
    }

    /// Whose cap it is that bounds this one.
    fn limiting(&self) -> &'static str {
        match &self.above {
            Some((cap, _)) if self.most_bps != self.own_bps => cap.0.lock().in_any_case().limiting(),
            Some(_) | None => self.whose,
        }
    }

    /// What of the part above goes which way, and how much of it its members want.
    fn tell_above(&self, now: Instant) {
        let Some((_, Some(share))) = &self.above else { return };
        let wishes = self.members.iter().map(|member| member.wish_bps).sum::<Option<u64>>();
        let wish_bps = self.own_bps.into_iter().chain(wishes.filter(|_| !self.members.is_empty())).min();
        let parts: u64 = self.members.iter().map(|member| member.part_bps).sum();
        let received = match (self.most_bps, parts) {
            (None, _) | (_, 0) => 1.0,
            (Some(_), parts) => (self.granting_bps() / parts as f64).min(1.0),
        };
        share.change(now, |member| {
            member.wish_bps = wish_bps;
            member.ways = Ways::Cap { received };
        });
    }

    // ---- its members -------------------------------------------------------------------------------------------------

    /// The time until now counts by the parts that there were.
    fn change(&mut self, now: Instant, change: impl FnOnce(&mut State)) {
        self.settle(now);
        change(self);
        if let Some(most) = self.most_bps {
            let wishes: Vec<_> =
                self.members.iter().map(|member| (member.wish_bps, member.demand.bps())).collect();
            for (member, part) in self.members.iter_mut().zip(parts(most, &wishes)) {
                member.part_bps = part.max(RATE_MIN_BPS);
            }
        }
        self.tell_above(now);
    }

    fn remove(&mut self, id: u64, now: Instant) {
        self.change(now, |state| state.members.retain(|member| member.id != id));
        self.leave_above_if_empty(now);
    }

    fn settle(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        // Without sessions nobody sends, and all of it is saved up.
        let rate =
            if self.members.is_empty() { self.most_bps.unwrap_or(0) as f64 } else { self.granting_bps() };
        let burst = self.burst();
        if self.bytes < burst {
            self.bytes = (self.bytes + seconds * rate * BITS).min(burst);
        }
    }

    /// The parts of those that receive.
    fn granting_bps(&self) -> f64 {
        self.members.iter().map(Member::granting_bps).sum()
    }

    fn burst(&self) -> f64 {
        burst(self.granting_bps())
    }
}

/// Bytes that may be granted at once at most, where so many bits a second are.
fn burst(bps: f64) -> f64 {
    (BURST_BLOCKS * BLOCK_BYTES as f64).max(bps * BITS * BURST_SECONDS)
}

/// Parts of `most` for sessions that wish and seem to need so much: even ones, but nobody has more than it
/// wishes, nor more than it needs where others need that.
fn parts(most: u64, sessions: &[(Option<u64>, Option<u64>)]) -> Vec<u64> {
    let least = |wish: Option<u64>, need: Option<u64>| wish.into_iter().chain(need).min();
    let needed: Vec<_> = sessions.iter().map(|&(wish, need)| least(wish, need)).collect();
    let first = divide(most, &needed);
    // What nobody needs is nobody's loss.
    let left = most - first.iter().sum::<u64>();
    let room: Vec<_> = sessions
        .iter()
        .zip(&first)
        .map(|(&(wish, _), part)| wish.map(|wish| wish.saturating_sub(*part)))
        .collect();
    first.iter().zip(divide(left, &room)).map(|(first, more)| first + more).collect()
}

/// Even parts of `most`, but nobody has more than it wishes: the others share what it leaves.
fn divide(most: u64, wishes: &[Option<u64>]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|&index| wishes[index].unwrap_or(u64::MAX));
    let (mut left, mut parts) = (most, vec![0; wishes.len()]);
    for (done, &index) in order.iter().enumerate() {
        let even = left / (wishes.len() - done) as u64;
        parts[index] = wishes[index].map_or(even, |wish| wish.min(even));
        left -= parts[index];
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::Policy;

    const BLOCK: u64 = BLOCK_BYTES as u64;
    /// Two blocks a second.
    const MOST: u64 = 2 * 8 * BLOCK;

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
            assert_eq!(divide(90, &wishes), parts, "{wishes:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_never_come_to_more_than_there_is(
            most in 0u64..1_000_000,
            wishes in proptest::collection::vec(proptest::option::of(0u64..300_000), 1..20),
        ) {
            let parts = divide(most, &wishes);
            let sum: u64 = parts.iter().sum();
            prop_assert!(sum <= most);
            prop_assert!(parts.iter().zip(&wishes).all(|(part, wish)| wish.is_none_or(|wish| *part <= wish)));
            // What is left is what nobody wants, or what cannot be divided.
            let are_content = parts.iter().zip(&wishes).all(|(part, wish)| *wish == Some(*part));
            prop_assert!(are_content || most - sum < wishes.len() as u64);
        }
    }

    #[test]
    fn what_one_does_not_use_is_the_others() {
        for (sessions, expected) in [
            (vec![], vec![]),
            (vec![(None, Some(10))], vec![90]),
            (vec![(None, Some(10)), (None, None)], vec![10, 80]),
            (vec![(None, Some(10)), (None, Some(20))], vec![40, 50]),
            (vec![(Some(30), Some(10)), (None, Some(20))], vec![30, 60]),
            (vec![(Some(20), None), (None, None), (None, Some(70))], vec![20, 35, 35]),
        ] {
            assert_eq!(parts(90, &sessions), expected, "{sessions:?}");
        }
        let begin = Instant::now();
        let cap = RateCap::new("this key", Some(MOST), begin);
        let (idle, busy) = (cap.join(begin).unwrap(), cap.join(begin).unwrap());
        let mut moved = 0;
        for step in 1..=40 {
            let now = begin + step * Duration::from_millis(100);
            moved += busy.bps().unwrap() / 80;
            busy.has_moved(moved, now);
            idle.has_moved(0, now);
        }
        assert_eq!((idle.bps(), busy.bps()), (Some(MOST / 8), Some(MOST - MOST / 8)));
        idle.has_moved(MOST, begin + Duration::from_secs(5));
        assert_eq!((idle.bps(), busy.bps()), (Some(MOST / 2), Some(MOST / 2)));
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
            assert_eq!(share.bounds(wish), bounded);
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
            receiver.allow(Role::Receiver);
        }
        drop(sender);
        // Nobody counts what was taken in which session.
        let mut taken = one.take_blocks(100, at(0));
        assert_eq!(taken, BURST_BLOCKS as u64);
        for step in 1..=1000 {
            taken += [&one, &other][step % 2].take_blocks(100, at(100 * step as u64));
        }
        assert!((199..=204).contains(&taken), "{taken}");
        // A session that comes again gets nothing for it.
        drop((one, other));
        assert!(!cap.is_idle(at(100_100)));
        let again = cap.join(at(100_100)).unwrap();
        again.allow(Role::Receiver);
        assert!(again.take_blocks(100, at(100_100)) <= 1);
        drop(again);
        assert!(cap.is_idle(at(110_000)));
    }

    #[test]
    fn both_ways_of_a_session_come_to_its_part() {
        let begin = Instant::now();
        let share = RateCap::new("this key", Some(MOST), begin).join(begin).unwrap();
        share.allow(Role::Sender);
        assert_eq!(share.bps(), Some(MOST));
        share.allow(Role::Receiver);
        share.allow(Role::Receiver);
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
        let bps = |shares: &[&RateShare]| shares.iter().map(|share| share.bps().unwrap()).collect::<Vec<_>>();
        let first = join(&one);
        assert_eq!(bps(&[&first]), [1_200_000]);
        let second = join(&one);
        let alone = join(&other);
        // What the other's own cap leaves is the first one's.
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
        assert_eq!(small.join(now).unwrap_err().whose, "this key");
        let crowd: Vec<_> =
            (0..200).map_while(|_| process.within("this key", None, now).join(now).ok()).collect();
        assert_eq!(crowd.len(), 148, "each has the smallest rate");
        let refused = process.within("this key", None, now).join(now).unwrap_err();
        assert_eq!((refused.whose, refused.most_bps), ("this daemon", 1_200_000));
    }

    #[test]
    fn all_that_is_granted_comes_to_no_more_than_the_cap_above() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let process = RateCap::new("this daemon", Some(MOST), begin);
        let keys = [(); 3].map(|()| process.within("this key", None, begin));
        let shares: Vec<_> = (0..7).map(|session| keys[session % 3].join(begin).unwrap()).collect();
        shares[1..].iter().for_each(|share| share.allow(Role::Receiver));
        shares[0].allow(Role::Sender);
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
                let parts: Vec<_> = shares.iter().map(|share| share.part_bps().unwrap()).collect();
                let of_key: u64 = parts.iter().sum();
                prop_assert!(own.is_none_or(|own| of_key <= own));
                prop_assert!(parts.iter().zip(*wishes).all(|(part, wish)| wish.is_none_or(|wish| *part <= wish)));
                sum += of_key;
            }
            prop_assert!(sum <= most);
            // What nobody has is what nobody may have or wants, or what cannot be divided.
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
        share.allow(Role::Receiver);
        for _ in 0..1000 {
            assert_eq!(share.take_blocks(1, now), 1);
            share.give_back_rest(1);
        }
        assert_eq!(share.take_blocks(9, now), BURST_BLOCKS as u64 - 1);
    }
}
