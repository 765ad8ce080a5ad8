//! The caps of a process and the sessions in them. They are balanced together, under one lock.
//!
//! Always true: an id never gets a second meaning; a cap lies only within caps with smaller ids; a session
//! that nobody follows moves nothing, so that it uses less as soon as it is given less.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;

use super::demand::RateDemand;
use super::fill::{FillLeaf, FillNode, FillResult, bounding, fill};
use super::lag::CapLag;
use super::order::{CONFIRM_MAX, MemberRate, change};
use super::{BITS, BURST_BLOCKS, BURST_SECONDS, CapUse, FREE, RateGuarantee, RateUsedUp};
use crate::BLOCK_BYTES;
use crate::options::RATE_MIN_BPS;

/// How often the changed needs of sessions make the parts change.
const DEMANDS_EVERY: Duration = Duration::from_millis(50);
/// How long the rate of a session is measured to see whether it has fallen, and how far above its part it may
/// then be.
const FALL_LOOK: Duration = Duration::from_millis(200);
const FALL_NEAR: f64 = 1.05;
/// The least and the greatest weight.
const WEIGHTS: (f64, f64) = (0.001, 1000.0);

/// Called when a session's part has changed.
pub(super) type PartObserver = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct Balance {
    pub(super) caps: BTreeMap<u64, CapState>,
    pub(super) sessions: BTreeMap<u64, Member>,
    next_id: u64,
    /// True if sessions need more or less than when the parts were made.
    is_stale: bool,
    /// When the parts were made.
    made: Option<Instant>,
    /// The latest time that a caller has named: time does not go back.
    latest: Option<Instant>,
    /// The observers to call once the lock is free.
    to_ring: Vec<PartObserver>,
    /// True if somebody may still use more than it was given.
    is_any_falling: bool,
    /// The number of batches of changes under way.
    changes: u32,
    /// True if anything has changed during them.
    has_changed: bool,
}

#[derive(Debug)]
pub(super) struct CapState {
    /// The owner, as messages to the user name it.
    pub(super) whose: Arc<str>,
    pub(super) most_bps: Option<u64>,
    pub(super) above: Option<u64>,
    /// The weight among the members of the cap above.
    pub(super) weight: f64,
    /// IP bytes that its sessions have moved, including those that have left.
    pub(super) moved: u64,
    lag: CapLag,
    bucket: TokenBucket,
}

/// Counts the bytes that may be granted.
#[derive(Debug)]
pub(super) struct TokenBucket {
    bytes: f64,
    at: Instant,
    /// The rate in bits a second at which it fills.
    bps: f64,
    /// The number of sessions that receive: each may take one block more than there is.
    receivers: u64,
}

impl TokenBucket {
    fn new(bps: f64, now: Instant) -> TokenBucket {
        TokenBucket { bytes: burst(bps), at: now, bps, receivers: 0 }
    }

    /// Adds the bytes of the time until now, at the rate that held until now.
    fn settle(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let burst = burst(self.bps);
        if self.bytes < burst {
            self.bytes = (self.bytes + seconds * self.bps * BITS).min(burst);
        }
    }

    fn fill_at(&mut self, bps: f64, now: Instant) {
        self.settle(now);
        self.bps = bps;
    }

    fn is_full(&self) -> bool {
        self.bytes >= burst(self.bps)
    }

    fn blocks(&self) -> u64 {
        (self.bytes / BLOCK_BYTES as f64).max(0.0) as u64
    }
}

/// The most bytes that may be granted at once, at a rate of `bps` bits a second.
fn burst(bps: f64) -> f64 {
    (BURST_BLOCKS * BLOCK_BYTES as f64).max(bps * BITS * BURST_SECONDS)
}

/// A session, as a member of its caps.
pub(super) struct Member {
    /// The caps that the session is directly in, with its weight in each cap.
    memberships: Vec<(u64, f64)>,
    /// A factor for the weights of all memberships.
    weight: f64,
    /// The caps that the session is directly in, and all caps that these lie within; each once.
    caps: Vec<u64>,
    /// The most that the session's users want, if they have said so.
    wish_bps: Option<u64>,
    /// The rate that the session is to have whatever other sessions want.
    guarantee: Option<RateGuarantee>,
    /// The need that the session seems to have.
    demand: RateDemand,
    /// The part that the session would get if all sessions wanted everything.
    even: u64,
    sends: bool,
    receives: bool,
    /// The IP bytes that the session has moved.
    moved: u64,
    rate: MemberRate,
    /// The bits that the session's parts would have let it move since its demand was last measured, and the time up
    /// to which these bits are counted.
    allowed: (f64, Instant),
    /// The time since which the session may use more than it was given.
    fell: Option<Instant>,
    /// The time when the session's rate was last measured, and the bytes that the session had moved by then.
    measured: (Instant, u64),
    bucket: TokenBucket,
    /// For each of `caps`: the bytes that the session has taken from the cap's bucket since the session came into
    /// the cap, without the bytes given back. The session can give back no more than these.
    taken: Vec<f64>,
    follower: Option<(Arc<AtomicBool>, PartObserver)>,
}

impl Member {
    /// The part of its rate that goes each way.
    pub(super) fn each_way_bps(&self) -> Option<u64> {
        let ways = if self.sends && self.receives { 2 } else { 1 };
        self.part_bps().map(|part| (part / ways).max(RATE_MIN_BPS))
    }

    /// Its part, both ways together; `None` if there is no limit.
    pub(super) fn part_bps(&self) -> Option<u64> {
        Some(self.rate.given).filter(|given| *given != FREE).map(|given| given.max(RATE_MIN_BPS))
    }

    /// The part of its rate at which it grants to those who send to it.
    fn granting_bps(&self) -> f64 {
        if self.receives { self.each_way_bps().unwrap_or(0) as f64 } else { 0.0 }
    }
}

/// Runs `work` under the lock, then calls the observers of the sessions whose parts have changed.
pub(super) fn with<R>(balance: &Mutex<Balance>, work: impl FnOnce(&mut Balance) -> R) -> R {
    let (result, to_ring) = {
        let mut balance = balance.lock().in_any_case();
        let result = work(&mut balance);
        (result, std::mem::take(&mut balance.to_ring))
    };
    to_ring.iter().for_each(|ring| ring());
    result
}

impl std::fmt::Debug for Balance {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Balance").field("caps", &self.caps).finish_non_exhaustive()
    }
}

impl Balance {
    // ---- caps -----------------------------------------------------------------------------------

    pub(super) fn add_cap(
        &mut self,
        whose: Arc<str>,
        most_bps: Option<u64>,
        above: Option<u64>,
        now: Instant,
    ) -> u64 {
        let id = self.take_id();
        let bucket = TokenBucket::new(most_bps.unwrap_or(0) as f64, now);
        let lag = CapLag::new(now);
        self.caps.insert(id, CapState { whose, most_bps, above, weight: 1.0, moved: 0, lag, bucket });
        id
    }

    pub(super) fn set_most(&mut self, cap: u64, most_bps: Option<u64>, now: Instant) {
        if let Some(cap) = self.caps.get_mut(&cap).filter(|cap| cap.most_bps != most_bps) {
            cap.most_bps = most_bps;
            cap.lag.begin(cap.moved, now);
            self.changed(now);
        }
    }

    pub(super) fn set_cap_weight(&mut self, cap: u64, weight: f64, now: Instant) {
        if let Some(cap) = self.caps.get_mut(&cap) {
            cap.weight = bounded(weight);
            self.changed(now);
        }
    }

    pub(super) fn is_set(&self, cap: u64) -> bool {
        self.chain(cap).iter().any(|cap| self.caps[cap].most_bps.is_some())
    }

    /// Returns whether no session is in the cap and it has saved up all that it may.
    pub(super) fn is_idle(&mut self, id: u64, now: Instant) -> bool {
        let has_sessions = self.sessions.values().any(|session| session.caps.contains(&id));
        let Some(cap) = self.caps.get_mut(&id) else { return true };
        cap.bucket.settle(now);
        !has_sessions && (cap.most_bps.is_none() || cap.bucket.is_full())
    }

    pub(super) fn usage(&self, id: u64) -> CapUse {
        let Some(cap) = self.caps.get(&id) else { return CapUse::default() };
        let mut usage = CapUse { most_bps: cap.most_bps, moved_bytes: cap.moved, ..CapUse::default() };
        for session in self.sessions.values().filter(|session| session.caps.contains(&id)) {
            usage.sessions += 1;
            usage.given_bps = usage.given_bps.saturating_add(session.part_bps().unwrap_or(0));
        }
        // The adjusted cap may be a little more than the one that was set.
        usage.given_bps = cap.most_bps.map_or(usage.given_bps, |most_bps| usage.given_bps.min(most_bps));
        usage
    }

    /// The ids of a cap and of those that it lies within.
    fn chain(&self, cap: u64) -> Vec<u64> {
        std::iter::successors(Some(cap), |cap| self.caps[cap].above).collect()
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    // ---- sessions -------------------------------------------------------------------------------

    pub(super) fn join(&mut self, memberships: &[(u64, f64)], now: Instant) -> Result<u64, RateUsedUp> {
        let id = self.take_id();
        let (memberships, caps) = self.resolved(memberships);
        let taken = vec![0.0; caps.len()];
        let session = Member {
            memberships,
            weight: 1.0,
            caps,
            wish_bps: None,
            guarantee: None,
            demand: RateDemand::new(now),
            even: FREE,
            sends: false,
            receives: false,
            moved: 0,
            rate: MemberRate::default(),
            allowed: (0.0, now),
            fell: None,
            measured: (now, 0),
            bucket: TokenBucket::new(0.0, now),
            taken,
            follower: None,
        };
        self.sessions.insert(id, session);
        if let Err(used_up) = self.has_room(id) {
            self.sessions.remove(&id);
            return Err(used_up);
        }
        self.divide(now);
        Ok(id)
    }

    /// Moves a session into these caps, and into the caps that these lie within. The rate that the session may still
    /// be using counts in the new caps at once. A session that is to have less is given less at once; other
    /// sessions rise as the session confirms that it uses less.
    pub(super) fn move_to(&mut self, id: u64, memberships: &[(u64, f64)], now: Instant) {
        let (memberships, caps) = self.resolved(memberships);
        if let Some(session) = self.sessions.get_mut(&id) {
            let before = |cap: &u64| session.caps.iter().position(|other| other == cap);
            let taken = |cap| before(cap).map_or(0.0, |at| session.taken[at]);
            session.taken = caps.iter().map(taken).collect();
            (session.memberships, session.caps) = (memberships, caps);
            self.changed(now);
        }
    }

    /// Returns each of these memberships once, with its weight kept within bounds; and the ids of their caps and of
    /// all caps that their caps lie within.
    fn resolved(&self, memberships: &[(u64, f64)]) -> (Vec<(u64, f64)>, Vec<u64>) {
        let mut own: Vec<(u64, f64)> = Vec::new();
        let mut caps = Vec::new();
        for &(cap, weight) in memberships {
            if own.iter().all(|(other, _)| *other != cap) {
                own.push((cap, bounded(weight)));
            }
            let chain = self.chain(cap);
            caps.extend(chain.into_iter().filter(|cap| !caps.contains(cap)).collect::<Vec<_>>());
        }
        (own, caps)
    }

    /// Checks that each member of the caps that a session is in could have the smallest rate.
    fn has_room(&self, id: u64) -> Result<(), RateUsedUp> {
        let members = self.member_counts();
        let memberships = &self.sessions[&id].memberships;
        memberships.iter().try_for_each(|(cap, _)| self.has_room_in(*cap, &members))
    }

    /// The number of members of each cap: the caps directly within the cap that have sessions, and the sessions that
    /// are directly in the cap.
    fn member_counts(&self) -> BTreeMap<u64, u64> {
        let mut members: BTreeMap<u64, u64> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for session in self.sessions.values() {
            session.memberships.iter().for_each(|(cap, _)| *members.entry(*cap).or_default() += 1);
            for cap in session.caps.iter().filter(|cap| seen.insert(**cap)) {
                if let Some(above) = self.caps[cap].above {
                    *members.entry(above).or_default() += 1;
                }
            }
        }
        members
    }

    /// Checks that each member of a cap could have the smallest rate, and so could each member of the caps that the
    /// cap lies within. `members` has the number of members of each cap.
    fn has_room_in(&self, cap: u64, members: &BTreeMap<u64, u64>) -> Result<(), RateUsedUp> {
        // The most that the cap can have, and the owner of the cap that sets this bound.
        let mut most: Option<(u64, &Arc<str>)> = None;
        let mut members_above = 1;
        for cap in self.chain(cap).into_iter().rev() {
            let own = self.caps[&cap].most_bps.map(|bps| (bps, &self.caps[&cap].whose));
            let of_above = most.map(|(bps, whose)| (bps / members_above, whose));
            most = own.into_iter().chain(of_above).min_by_key(|(bps, _)| *bps);
            members_above = members.get(&cap).copied().unwrap_or(1).max(1);
            if let Some((most_bps, whose)) = most.filter(|(bps, _)| bps / members_above < RATE_MIN_BPS) {
                return Err(RateUsedUp { whose: whose.clone(), most_bps });
            }
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, id: u64, now: Instant) {
        if self.sessions.remove(&id).is_some() {
            self.divide(now);
        }
    }

    pub(super) fn change(&mut self, id: u64, now: Instant, change: impl FnOnce(&mut Member)) {
        if let Some(session) = self.sessions.get_mut(&id) {
            change(session);
            self.divide(now);
        }
    }

    pub(super) fn follow(&mut self, id: u64, news: Arc<AtomicBool>, ring: PartObserver) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.follower = Some((news, ring));
        }
    }

    /// Notes that the session keeps to this part now.
    pub(super) fn confirm(&mut self, id: u64, part_bps: u64, now: Instant) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let in_use = session.rate.given.max(part_bps);
        if in_use < session.rate.in_use {
            session.rate.in_use = in_use;
            self.raise(now);
        }
    }

    /// Counts what a session has moved: `ip_bytes` in all. Of those since the last call, `beside_content`
    /// bytes were not content, which is counted when it is granted.
    pub(super) fn has_moved(&mut self, id: u64, ip_bytes: u64, beside_content: u64, now: Instant) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let more = ip_bytes.saturating_sub(session.moved);
        session.moved += more;
        self.is_stale |= session.look_at_demand(now);
        let has_fallen = session.look_at_fall(now);
        session.bucket.bytes -= beside_content as f64;
        for cap in &session.caps {
            if let Some(cap) = self.caps.get_mut(cap) {
                cap.moved += more;
                if let Some(most_bps) = cap.most_bps {
                    cap.bucket.bytes -= beside_content as f64;
                    self.is_stale |= cap.lag.look(cap.moved, most_bps, now);
                }
            }
        }
        if has_fallen {
            self.count_as_confirmed(id);
        }
        let overdue = self.overdue(now);
        overdue.iter().for_each(|id| self.count_as_confirmed(*id));
        let is_due = self.made.is_none_or(|made| now.saturating_duration_since(made) >= DEMANDS_EVERY);
        if self.is_stale && is_due {
            self.divide(now);
        } else if has_fallen || !overdue.is_empty() {
            self.raise(now);
        }
    }

    /// The sessions that should have confirmed a smaller part by now.
    fn overdue(&self, now: Instant) -> Vec<u64> {
        if !self.is_any_falling {
            return Vec::new();
        }
        let is_overdue = |session: &Member| {
            session.fell.is_some_and(|fell| now.saturating_duration_since(fell) >= CONFIRM_MAX)
        };
        self.sessions.iter().filter(|(_, session)| is_overdue(session)).map(|(id, _)| *id).collect()
    }

    /// Counts the session as using no more than it was given.
    fn count_as_confirmed(&mut self, id: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.rate.in_use = session.rate.given;
        }
    }

    // ---- grants ---------------------------------------------------------------------------------

    /// Takes `wanted` blocks, or as many as may be granted now.
    pub(super) fn take_blocks(&mut self, id: u64, wanted: u64, now: Instant) -> u64 {
        let Some(session) = self.sessions.get_mut(&id) else { return wanted };
        if session.part_bps().is_none() {
            return wanted;
        }
        session.bucket.settle(now);
        let mut taken = wanted.min(session.bucket.blocks());
        for cap in &session.caps {
            if let Some(cap) = self.caps.get_mut(cap).filter(|cap| cap.most_bps.is_some()) {
                cap.bucket.settle(now);
                taken = taken.min(cap.bucket.blocks());
            }
        }
        self.take(id, (taken * BLOCK_BYTES as u64) as f64);
        taken
    }

    /// Takes a block for a session that has none left. Other sessions may hold all bytes of a cap as blocks ahead, so
    /// the cap lends this block. Once a cap has lent a block to each of its receivers, all of them wait until
    /// the cap's bucket has filled again.
    pub(super) fn take_when_dry(&mut self, id: u64, now: Instant) -> u64 {
        let Some(session) = self.sessions.get_mut(&id) else { return 1 };
        if session.part_bps().is_none() {
            return 1;
        }
        session.bucket.settle(now);
        let mut may_take = session.bucket.blocks() > 0;
        for cap in &session.caps {
            if let Some(cap) = self.caps.get_mut(cap).filter(|cap| cap.most_bps.is_some()) {
                cap.bucket.settle(now);
                let lent = (cap.bucket.receivers * BLOCK_BYTES as u64) as f64;
                may_take &= cap.bucket.bytes + lent >= BLOCK_BYTES as f64;
            }
        }
        if may_take {
            self.take(id, BLOCK_BYTES as f64);
        }
        may_take.into()
    }

    fn take(&mut self, id: u64, bytes: f64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.bucket.bytes -= bytes;
        for (cap, taken) in session.caps.iter().zip(&mut session.taken) {
            if let Some(cap) = self.caps.get_mut(cap).filter(|cap| cap.most_bps.is_some()) {
                cap.bucket.bytes -= bytes;
                *taken += bytes;
            }
        }
    }

    /// Gives back bytes that were taken and will not be used.
    pub(super) fn give_back(&mut self, id: u64, bytes: f64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.part_bps().is_none() {
            return;
        }
        session.bucket.bytes += bytes;
        for (cap, taken) in session.caps.iter().zip(&mut session.taken) {
            if let Some(cap) = self.caps.get_mut(cap).filter(|cap| cap.most_bps.is_some()) {
                let bytes = bytes.min(*taken);
                cap.bucket.bytes += bytes;
                *taken -= bytes;
            }
        }
    }

    // ---- parts ----------------------------------------------------------------------------------

    pub(super) fn begin_changes(&mut self) {
        self.changes += 1;
    }

    pub(super) fn end_changes(&mut self, now: Instant) {
        self.changes -= 1;
        if std::mem::take(&mut self.has_changed) {
            self.divide(now);
        }
    }

    /// Caps or their members have changed. If further changes follow in the same batch, parts do not change
    /// yet.
    fn changed(&mut self, now: Instant) {
        self.has_changed = self.changes > 0;
        if !self.has_changed {
            self.divide(now);
        }
    }

    /// Divides all caps anew.
    fn divide(&mut self, now: Instant) {
        (self.is_stale, self.made) = (false, Some(now));
        let (nodes, leaves) = self.tree();
        let FillResult { bps, even } = fill(&nodes, &leaves);
        let caps = leaves.iter().map(|leaf| bounding(&nodes, leaf)).collect();
        for (session, (target, even)) in self.sessions.values_mut().zip(bps.into_iter().zip(even)) {
            session.rate.target = target;
            session.even = even;
        }
        self.give(&nodes, caps, now);
    }

    /// Gives more to sessions whose caps have free rate again.
    fn raise(&mut self, now: Instant) {
        let (nodes, leaves) = self.tree();
        let caps = leaves.iter().map(|leaf| bounding(&nodes, leaf)).collect();
        self.give(&nodes, caps, now);
    }

    /// First gives less to sessions that are to have less, then more to those whose caps have free rate.
    /// `caps` has the caps of each session.
    fn give(&mut self, nodes: &[FillNode], caps: Vec<Vec<usize>>, now: Instant) {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        self.latest = Some(now);
        let cap_rates: Vec<_> = nodes.iter().map(|node| node.most).collect();
        let mut rates: Vec<MemberRate> = self.sessions.values().map(|session| session.rate).collect();
        // Falling parts first: a session that nobody follows moves nothing, so it gives up the difference at once.
        for (rate, session) in rates.iter_mut().zip(self.sessions.values()) {
            if session.follower.is_none() {
                rate.given = rate.given.min(rate.target);
                rate.in_use = rate.given;
            }
        }
        change(&cap_rates, &caps, &mut rates);
        self.is_any_falling = rates.iter().any(MemberRate::is_falling);
        for (session, rate) in self.sessions.values_mut().zip(rates) {
            self.to_ring.extend(session.take_rate(rate, now));
        }
        self.trace();
        self.set_granting(now);
    }

    /// Traces why a session has the part that it has: `FARHAUL_LOG=trace`.
    fn trace(&self) {
        if tracing::enabled!(tracing::Level::TRACE) {
            for (id, session) in &self.sessions {
                let MemberRate { target, given, in_use } = session.rate;
                let (need, is_new, even) = (session.demand.bps(), session.demand.is_new(), session.even);
                tracing::trace!(id, target, given, in_use, even, need, is_new, moved = session.moved, "part");
            }
        }
    }

    /// Sets the rates of the buckets to the new parts.
    fn set_granting(&mut self, now: Instant) {
        let mut granting: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
        for session in self.sessions.values_mut() {
            let bps = session.granting_bps();
            session.bucket.fill_at(bps, now);
            for cap in &session.caps {
                let (sum, receivers) = granting.entry(*cap).or_default();
                *sum += bps;
                *receivers += u64::from(session.receives);
            }
        }
        for (id, cap) in self.caps.iter_mut().filter(|(_, cap)| cap.most_bps.is_some()) {
            // Without sessions nothing is granted, and the bucket fills at the whole rate.
            let none = (cap.most_bps.unwrap_or(0) as f64, 0);
            let (bps, receivers) = granting.get(id).copied().unwrap_or(none);
            cap.bucket.fill_at(bps, now);
            cap.bucket.receivers = receivers;
        }
    }

    /// The caps that have sessions, and the sessions, in the order of their ids.
    fn tree(&self) -> (Vec<FillNode>, Vec<FillLeaf>) {
        let mut ids: Vec<u64> =
            self.sessions.values().flat_map(|session| session.caps.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        let at = |id: &u64| ids.binary_search(id).ok();
        let node = |id: &u64| {
            let cap = &self.caps[id];
            let most = cap.most_bps.map(|most_bps| cap.lag.bps(most_bps));
            FillNode { above: cap.above.as_ref().and_then(at), most, weight: cap.weight }
        };
        let leaf = |session: &Member| FillLeaf {
            memberships: session
                .memberships
                .iter()
                .filter_map(|(cap, weight)| Some((at(cap)?, weight * session.weight)))
                .collect(),
            wish: session.wish_bps,
            need: session.demand.bps(),
            is_new: session.demand.is_new(),
            guarantee: session.guarantee,
        };
        (ids.iter().map(node).collect(), self.sessions.values().map(leaf).collect())
    }
}

impl Member {
    /// Returns whether the session, whose part has fallen, now uses no more than that part. Looks once every
    /// [`FALL_LOOK`].
    fn look_at_fall(&mut self, now: Instant) -> bool {
        let (at, moved) = self.measured;
        let time = now.saturating_duration_since(at);
        if time < FALL_LOOK {
            return false;
        }
        self.measured = (now, self.moved);
        let used = 8.0 * (self.moved - moved) as f64 / time.as_secs_f64();
        let is_news = self.fell.is_some_and(|fell| fell <= at);
        is_news && used <= FALL_NEAR * self.rate.given as f64
    }

    /// Counts the time until now with the part that held until now.
    fn settle_allowed(&mut self, now: Instant) {
        let (bits, at) = &mut self.allowed;
        *bits += now.saturating_duration_since(*at).as_secs_f64() * self.rate.given as f64;
        *at = now.max(*at);
    }

    /// Sets a new rate. Returns the observer to call, if the session's part has changed and its follower does not
    /// know of a change yet.
    fn take_rate(&mut self, rate: MemberRate, now: Instant) -> Option<PartObserver> {
        self.settle_allowed(now);
        let before = std::mem::replace(&mut self.rate, rate);
        self.fell = rate.is_falling().then(|| match before.given > rate.given {
            true => now,
            false => self.fell.unwrap_or(now),
        });
        let (news, ring) = self.follower.as_ref().filter(|_| rate.given != before.given)?;
        (!news.swap(true, Ordering::AcqRel)).then(|| ring.clone())
    }

    /// Returns whether the session needs more or less than before.
    fn look_at_demand(&mut self, now: Instant) -> bool {
        self.settle_allowed(now);
        let time = now.saturating_duration_since(self.demand.looked()).as_secs_f64();
        if self.even == FREE || time == 0.0 {
            return false;
        }
        let mean = (self.allowed.0 / time) as u64;
        let has_changed = self.demand.look(self.moved, mean, self.even, now);
        if self.demand.looked() == now {
            self.allowed = (0.0, now);
        }
        has_changed
    }

    pub(super) fn set_wish(&mut self, wish_bps: Option<u64>) {
        self.wish_bps = wish_bps;
    }

    #[cfg(test)]
    pub(super) fn guarantee(&self) -> Option<RateGuarantee> {
        self.guarantee
    }

    pub(super) fn set_guarantee(&mut self, guarantee: Option<RateGuarantee>) {
        self.guarantee = guarantee;
    }

    pub(super) fn set_weight(&mut self, weight: f64) {
        self.weight = bounded(weight);
    }

    pub(super) fn begin_to_send(&mut self) {
        self.sends = true;
    }

    pub(super) fn begin_to_receive(&mut self) {
        self.receives = true;
    }
}

fn bounded(weight: f64) -> f64 {
    if weight.is_nan() { 1.0 } else { weight.clamp(WEIGHTS.0, WEIGHTS.1) }
}
