//! The most that several sessions may move together, and each one's part of it: those of one principal at a
//! daemon, within the daemon's own cap those of all principals, and those in the named caps of a service.
//!
//! Rates are of IP bytes both ways, repairs and headers included, where this end sends or receives; what of that is
//! exact and what an estimate is said in `rate_cap/headers.rs`. A session that sends keeps to its part by its own pace. One that
//! receives asks the far end to do so, and grants it no more than its part allows: who does not listen gets no
//! further for it.
//!
//! Parts are as the weights of the members, but what a member does not want, or has not used of late, is the others'.
//! A cap within another is one member of that, however many sessions it has: it divides the part that it has there.
//! A session may be in several caps, also of different trees: its part is what the least of them leaves it, and what it does not use in
//! one is the others' there (`rate_cap/fill.rs`). Whoever put it into named ones may put it into others while it runs (`rate_cap/memberships.rs`).
//!
//! When parts change, those that fall are told first, and the others get what these have confirmed to have let go
//! (`rate_cap/order.rs`). A sender here has when its pacers have the new rate; one at the far end when it has acknowledged
//! that it was told, or what arrives has fallen; in any case after two seconds.
//!
//! Parts that are not used as fast as they are given leave something of a cap that everybody wants. It is made up for
//! (`rate_cap/lag.rs`): below, a cap is what it is taken for by that, at most a twentieth more or less than it was set to.
//!
//! Always true: the parts come to no more than the cap (but for sessions that have the smallest rate there is), and
//! to all of it where the wishes do; no part rises while it would come to more with what others may still be using;
//! the content that is granted comes to no more than what the parts of those that receive allow since the cap
//! began, [`BURST_BLOCKS`], and a block for each of those that are there.

mod balance;
mod demand;
mod fill;
pub(crate) mod headers;
mod lag;
mod memberships;
mod order;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::BLOCK_BYTES;
use super::options::RateOptions;
use super::supervisor::ContentRole;
use crate::error::{Code, Error};
use balance::{Balance, Member, with};
use farhaul_handover::Held as _;

pub use memberships::{CapMemberships, WeakCapMemberships};

/// Blocks that may be granted at once after a silence, and the time that they may be worth where that is
/// more: grants come as seldom as a flow thread wakes by itself.
const BURST_BLOCKS: f64 = 4.0;
const BURST_SECONDS: f64 = 0.25;
/// Blocks that a flow has before it needs them, on the nearest path.
const BLOCKS_AHEAD: u64 = 1;
/// Bytes of a bit.
const BITS: f64 = 1.0 / 8.0;
/// Bits a second where nothing bounds them.
const FREE: u64 = u64::MAX;

/// What may be moved together. Clones are the same; it is there as long as one of them is, or a session in it.
#[derive(Debug, Clone)]
pub struct RateCap(Arc<CapInner>);

#[derive(Debug)]
struct CapInner {
    balance: Arc<Mutex<Balance>>,
    id: u64,
    /// The one that it lies within has to be there as long.
    _above: Option<RateCap>,
}

/// A named cap that a session is to be in, and with which weight: parts are as the weights of those that are in it.
#[derive(Debug, Clone)]
pub struct CapMembership {
    pub cap: RateCap,
    /// 1 is usual; within 0.001 and 1000.
    pub weight: f64,
}

impl From<RateCap> for CapMembership {
    fn from(cap: RateCap) -> CapMembership {
        CapMembership { cap, weight: 1.0 }
    }
}

/// Each session would have less than the smallest rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rate of {whose} is used up ({most_bps} bit/s): another transfer would have next to none of it")]
pub struct RateUsedUp {
    /// Whose rate it is, as people are told.
    pub whose: Arc<str>,
    /// Bits a second.
    pub most_bps: u64,
}

impl From<RateUsedUp> for Error {
    fn from(used_up: RateUsedUp) -> Error {
        let hint = "try again when others have ended, or let the far end move more (serve --max-rate; max-rate= before its key)";
        Error::new(Code::ShareUsed, used_up.to_string()).with_hint(hint)
    }
}

/// How a cap is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapUse {
    /// Bits a second that it is set to.
    pub most_bps: Option<u64>,
    /// Sessions in it, and in what lies within it.
    pub sessions: u64,
    /// Bits a second that these may use now, together; those without any limit do not count.
    pub given_bps: u64,
    /// IP bytes that its sessions have moved, also those that have ended.
    pub moved_bytes: u64,
}

impl RateCap {
    /// A cap within no other; `whose` is for people.
    pub fn new(whose: impl Into<Arc<str>>, most_bps: Option<u64>, now: Instant) -> RateCap {
        RateCap::of(&Arc::default(), whose.into(), most_bps, None, now)
    }

    /// A cap within this one: its sessions have one part of this one together.
    pub fn within(&self, whose: impl Into<Arc<str>>, most_bps: Option<u64>, now: Instant) -> RateCap {
        RateCap::of(&self.0.balance, whose.into(), most_bps, Some(self.clone()), now)
    }

    /// A cap within no other, for sessions that may be in this one, too.
    pub fn beside(&self, whose: impl Into<Arc<str>>, most_bps: Option<u64>, now: Instant) -> RateCap {
        RateCap::of(&self.0.balance, whose.into(), most_bps, None, now)
    }

    fn of(
        balance: &Arc<Mutex<Balance>>,
        whose: Arc<str>,
        most_bps: Option<u64>,
        above: Option<RateCap>,
        now: Instant,
    ) -> RateCap {
        let id_above = above.as_ref().map(|above| above.0.id);
        let id = with(balance, |balance| balance.add_cap(whose, most_bps, id_above, now));
        RateCap(Arc::new(CapInner { balance: balance.clone(), id, _above: above }))
    }

    /// Whether there is a most, here or above.
    pub fn is_set(&self) -> bool {
        with(&self.0.balance, |balance| balance.is_set(self.0.id))
    }

    /// Another session, in this cap alone.
    pub fn join(&self, now: Instant) -> Result<RateShares, RateUsedUp> {
        RateShares::join(Some(self.clone().into()), &CapMemberships::default(), now)
    }

    /// From now on so much; running sessions go on at it.
    pub fn set_most(&self, most_bps: Option<u64>, now: Instant) {
        with(&self.0.balance, |balance| balance.set_most(self.0.id, most_bps, now));
    }

    /// From now on it has a part of the cap above by this weight.
    pub fn set_weight(&self, weight: f64, now: Instant) {
        with(&self.0.balance, |balance| balance.set_cap_weight(self.0.id, weight, now));
    }

    /// All that `work` changes of this cap, of those beside it and of who is in them counts at once: on the way from the old to the
    /// new nobody is given a part that belongs to neither.
    pub fn at_once<R>(&self, work: impl FnOnce() -> R) -> R {
        let _changes = BatchedChanges::begin(&self.0.balance);
        work()
    }

    /// How it is used.
    pub fn usage(&self) -> CapUse {
        with(&self.0.balance, |balance| balance.usage(self.0.id))
    }

    /// Whether nothing would be known less without it: no session has a part, and all that may be saved is.
    pub fn is_idle(&self, now: Instant) -> bool {
        with(&self.0.balance, |balance| balance.is_idle(self.0.id, now))
    }

    /// Whether they are the same.
    pub fn is(&self, other: &RateCap) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether a session can be in both.
    pub fn is_beside(&self, other: &RateCap) -> bool {
        Arc::ptr_eq(&self.0.balance, &other.0.balance)
    }
}

/// Changes that are to count at once, until this is dropped.
struct BatchedChanges<'a>(&'a Mutex<Balance>);

impl BatchedChanges<'_> {
    fn begin(balance: &Mutex<Balance>) -> BatchedChanges<'_> {
        with(balance, Balance::begin_changes);
        BatchedChanges(balance)
    }
}

impl Drop for BatchedChanges<'_> {
    fn drop(&mut self) {
        with(self.0, |balance| balance.end_changes(Instant::now()));
    }
}

impl Drop for CapInner {
    fn drop(&mut self) {
        with(&self.balance, |balance| balance.caps.remove(&self.id));
    }
}

/// A session's parts of the caps that it is in, which are the others' again when this is dropped. The default is in
/// none, and may move what it likes.
#[derive(Debug, Default)]
pub struct RateShares(Option<Arc<Share>>);

#[derive(Debug)]
struct Share {
    id: u64,
    balance: Arc<Mutex<Balance>>,
    /// The cap that it stays in whatever becomes of the named ones.
    own: Option<CapMembership>,
    /// All that it is in, which have to be there as long.
    caps: Mutex<Vec<RateCap>>,
    /// From there its named ones are changed.
    _named: CapMemberships,
    /// Its part has changed since this was looked at.
    news: Arc<AtomicBool>,
}

/// Bits of IP a second that a session may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RatePart {
    pub in_all: u64,
    pub each_way: u64,
}

impl RatePart {
    /// What two users want, within what the pacers may send each way.
    pub(crate) fn bounds(self, wish: RateOptions, most: u64) -> RateOptions {
        let rate_bps = wish.rate_bps.map_or(most, |bps| bps.min(most));
        let rate_min_bps = wish.rate_min_bps.map(|bps| bps.min(rate_bps));
        RateOptions { rate_bps: Some(rate_bps), rate_min_bps, ..wish }
    }
}

impl Share {
    fn with<R>(&self, work: impl FnOnce(&mut Balance) -> R) -> R {
        with(&self.balance, work)
    }

    /// It is in these named caps from now on, and in its own.
    fn move_to(&self, named: &[CapMembership], now: Instant) {
        let (ids, caps) = seats(&self.balance, self.own.as_ref(), named);
        self.with(|balance| balance.place(self.id, &ids, now));
        // What it was in may end with this, for which the balance has to be free.
        let _before = std::mem::replace(&mut *self.caps.lock().in_any_case(), caps);
    }
}

/// What a balance calls the caps that a session is in, with its weights there, and the caps. Of another balance's nothing is known
/// here.
fn seats(
    balance: &Arc<Mutex<Balance>>,
    own: Option<&CapMembership>,
    named: &[CapMembership],
) -> (Vec<(u64, f64)>, Vec<RateCap>) {
    let all = own.into_iter().chain(named);
    let places: Vec<_> = all.filter(|place| Arc::ptr_eq(&place.cap.0.balance, balance)).collect();
    debug_assert_eq!(places.len(), usize::from(own.is_some()) + named.len(), "caps of two balances");
    (
        places.iter().map(|place| (place.cap.0.id, place.weight)).collect(),
        places.iter().map(|place| place.cap.clone()).collect(),
    )
}

impl RateShares {
    /// A session that is in its own cap, in these named ones, and in those that take their place later. Each of them has to have been
    /// made within or beside the first one. One that begins in none may move what it likes, and stays in none.
    pub fn join(
        own: Option<CapMembership>,
        named: &CapMemberships,
        now: Instant,
    ) -> Result<RateShares, RateUsedUp> {
        named.join(own, now)
    }

    /// Whether it is in no cap.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Bits of IP a second that go each way, at most; `None` for as many as it likes.
    pub fn bps(&self) -> Option<u64> {
        self.read(Member::each_way_bps)
    }

    /// Its part, as it is now.
    pub(crate) fn part(&self) -> Option<RatePart> {
        self.read(|session| Some(RatePart { in_all: session.part_bps()?, each_way: session.each_way_bps()? }))
    }

    fn read<T>(&self, of: impl FnOnce(&Member) -> Option<T>) -> Option<T> {
        let share = self.0.as_ref()?;
        share.with(|balance| balance.sessions.get(&share.id).and_then(of))
    }

    /// What its users want at most, in bits of IP a second: what they leave is the others'.
    pub(crate) fn set_wish(&self, wish_bps: Option<u64>) {
        self.change(|session| session.set_wish(wish_bps));
    }

    /// From now on it has parts by this weight, times that which it has in each cap.
    pub fn set_weight(&self, weight: f64, now: Instant) {
        self.change_at(now, |session| session.set_weight(weight));
    }

    /// This end sends from now on, or it receives: then its part counts where blocks are granted. One that does
    /// both has half of its part for each.
    pub(crate) fn allow(&self, role: ContentRole) {
        self.change(|session| match role {
            ContentRole::Sender => session.begin_to_send(),
            ContentRole::Receiver => session.begin_to_receive(),
        });
    }

    fn change(&self, change: impl FnOnce(&mut Member)) {
        self.change_at(Instant::now(), change);
    }

    fn change_at(&self, now: Instant, change: impl FnOnce(&mut Member)) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.change(share.id, now, change));
        }
    }

    // ---- what it has, and what it uses ------------------------------------------------------------------------------

    /// A session begins to use it: from now on a part that falls has to be confirmed, and `ring` is called when it has
    /// changed.
    pub(crate) fn follow(&self, ring: impl Fn() + Send + Sync + 'static) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.follow(share.id, share.news.clone(), Arc::new(ring)));
        }
    }

    /// Whether the part has changed since this was asked last.
    pub(crate) fn take_news(&self) -> bool {
        self.0.as_ref().is_some_and(|share| {
            share.news.load(Ordering::Relaxed) && share.news.swap(false, Ordering::AcqRel)
        })
    }

    /// Whoever sends keeps to this part by now: what it had beyond that is the others'.
    pub(crate) fn confirm(&self, part: RatePart, now: Instant) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.confirm(share.id, part.in_all, now));
        }
    }

    /// It has moved so many IP bytes in all: what it does not use is the others' until it does. Besides what it was granted
    /// it has received `beside_content` since this was said last.
    pub(crate) fn has_moved(&self, ip_bytes: u64, beside_content: u64, now: Instant) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.has_moved(share.id, ip_bytes, beside_content, now));
        }
    }

    /// Blocks of such a length that a flow needs before it has begun with them: what its part brings in a
    /// round trip, and one that follows.
    pub(crate) fn blocks_ahead(&self, round_trip: Duration, block_bytes: f64) -> u64 {
        let bytes = |bps: u64| bps as f64 * BITS * round_trip.as_secs_f64();
        self.bps().map_or(u64::MAX, |bps| BLOCKS_AHEAD + (bytes(bps) / block_bytes.max(1.0)).ceil() as u64)
    }

    /// Takes so many blocks, or as many as may be granted now.
    pub(crate) fn take_blocks(&self, wanted: u64, now: Instant) -> u64 {
        let Some(share) = &self.0 else { return wanted };
        share.with(|balance| balance.take_blocks(share.id, wanted, now))
    }

    /// Takes a block for who has none to go on with, also ahead of what there is.
    pub(crate) fn take_when_dry(&self, now: Instant) -> u64 {
        let Some(share) = &self.0 else { return 1 };
        share.with(|balance| balance.take_when_dry(share.id, now))
    }

    /// It moves nothing any more: what it had is the others'.
    pub(crate) fn leave(&self) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.leave(share.id, Instant::now()));
        }
    }

    /// So many blocks that were taken do not come.
    pub(crate) fn give_back_blocks(&self, blocks: u64) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.give_back(share.id, (blocks * BLOCK_BYTES as u64) as f64));
        }
    }

    /// A block that was taken is only so long.
    pub(crate) fn give_back_rest(&self, len: u32) {
        if let Some(share) = &self.0 {
            let rest = (BLOCK_BYTES as u64).saturating_sub(len.into());
            share.with(|balance| balance.give_back(share.id, rest as f64));
        }
    }
}

impl Drop for RateShares {
    fn drop(&mut self) {
        self.leave();
    }
}
