//! Rate caps: the most that several sessions may move together, and each session's part of it. One
//! principal's sessions at a daemon are in a cap, which lies within the daemon's own cap for all principals;
//! a service also has named caps.
//!
//! Rates are of IP bytes, both ways, repairs and headers included, where this end sends or receives;
//! `rate_cap/headers.rs` says what of that is exact and what is estimated. A session that sends keeps to its
//! part by pacing. One that receives asks the far end to keep to it, and grants no more credit than the part
//! allows, so that a sender who ignores the request gains nothing.
//!
//! The members of a cap get parts in proportion to their weights. Guarantees of sessions come before that
//! ([`RateGuarantee`]). Rate that a member does not want, or has not used lately, goes to the cap's other members. A
//! cap within another cap is one member of the outer cap, however many sessions the inner cap has. The inner cap
//! divides its part of the outer cap among its own members. A session may be in several caps, also of different
//! trees. Then its part is what the tightest of these caps leaves it. Rate of the other caps that the session cannot
//! use goes to the other members of those caps (`rate_cap/fill.rs`). The owner of named caps may move a running
//! session to other caps (`rate_cap/memberships.rs`).
//!
//! When parts change, the members whose parts fall are told first. The members whose parts rise get the rate that
//! the falling members have confirmed to give up (`rate_cap/order.rs`). A sender here has confirmed when its pacers
//! have the new rate. A sender at the far end has confirmed when it has acknowledged the message, or when less
//! arrives. After two seconds a change counts as confirmed in any case.
//!
//! If parts are not used as fast as they are given, some of a cap is lost although everybody wants more.
//! `rate_cap/lag.rs` makes up for that loss: the code divides an adjusted cap, which is at most a twentieth more or
//! less than the cap that was set.
//!
//! Always true: the parts come to no more than the cap (except for sessions that have the smallest possible
//! rate), and to all of it if the members want that much. No part rises while the sum, with what others may
//! still be using, would exceed the cap. The content that is granted comes to no more than what the
//! receivers' parts have allowed since the cap began, plus [`BURST_BLOCKS`], plus one block for each
//! receiver.

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

use crate::BLOCK_BYTES;
use crate::content_role::ContentRole;
use crate::options::RateOptions;
use balance::{Balance, Member, with};
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};

pub use memberships::{CapMemberships, WeakCapMemberships};

/// The blocks that may be granted at once after a silence, or those of this time if they are more: grants
/// come as rarely as a flow thread wakes by itself.
const BURST_BLOCKS: f64 = 4.0;
const BURST_SECONDS: f64 = 0.25;
/// The blocks that a flow has before it needs them, on the shortest path.
const BLOCKS_AHEAD: u64 = 1;
/// The bytes of a bit.
const BITS: f64 = 1.0 / 8.0;
/// The bits a second of a part without any bound.
const FREE: u64 = u64::MAX;

/// A cap on what its sessions may move together. Clones are the same cap. It exists as long as a clone of it
/// or a session in it.
#[derive(Debug, Clone)]
pub struct RateCap(Arc<CapInner>);

#[derive(Debug)]
struct CapInner {
    balance: Arc<Mutex<Balance>>,
    id: u64,
    /// Keeps the cap that this one lies within.
    _above: Option<RateCap>,
}

/// A named cap that a session is in, and the session's weight in it: parts are in proportion to the weights.
#[derive(Debug, Clone)]
pub struct CapMembership {
    pub cap: RateCap,
    /// 1 is usual; the weight is kept within 0.001 and 1000.
    pub weight: f64,
}

impl From<RateCap> for CapMembership {
    fn from(cap: RateCap) -> CapMembership {
        CapMembership { cap, weight: 1.0 }
    }
}

/// A rate that a session gets in its caps before weights count. Rate that it does not use goes to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateGuarantee {
    /// The bits a second.
    pub bps: u64,
    /// Where a cap cannot give all that is guaranteed in it, lower turns come first.
    pub turn: i64,
    /// True if the session gets beyond its guarantee only what all others leave.
    pub yields: bool,
}

/// Another session is refused, as each would have less than the smallest rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rate of {whose} is used up ({most_bps} bit/s): another transfer would get almost nothing")]
pub struct RateUsedUp {
    /// The owner of the rate, as messages name him.
    pub whose: Arc<str>,
    /// The cap in bits a second.
    pub most_bps: u64,
}

impl From<RateUsedUp> for Error {
    fn from(used_up: RateUsedUp) -> Error {
        let whose = &used_up.whose;
        let hint = format!(
            "try again when others have ended, or let {whose} move more (serve `max-rate`; max-rate= before its key)"
        );
        Error::new(Code::ShareUsed, used_up.to_string()).with_hint(hint)
    }
}

/// The use of a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapUse {
    /// The cap in bits a second, if it is set.
    pub most_bps: Option<u64>,
    /// The sessions in it, and in the caps within it.
    pub sessions: u64,
    /// The bits a second that these may use now, together; sessions without any limit do not count.
    pub given_bps: u64,
    /// The IP bytes that its sessions have moved, including sessions that have ended.
    pub moved_bytes: u64,
}

impl RateCap {
    /// A cap that lies within no other; `whose` names the owner in messages.
    pub fn new(whose: impl Into<Arc<str>>, most_bps: Option<u64>, now: Instant) -> RateCap {
        RateCap::of(&Arc::default(), whose.into(), most_bps, None, now)
    }

    /// A cap within this one: its sessions share one part of this one.
    pub fn within(&self, whose: impl Into<Arc<str>>, most_bps: Option<u64>, now: Instant) -> RateCap {
        RateCap::of(&self.0.balance, whose.into(), most_bps, Some(self.clone()), now)
    }

    /// A cap that lies within no other, for sessions that may be in this one, too.
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

    /// Returns whether a rate is set, here or in a cap above.
    pub fn is_set(&self) -> bool {
        with(&self.0.balance, |balance| balance.is_set(self.0.id))
    }

    /// Adds a session that is in this cap alone.
    pub fn join(&self, now: Instant) -> Result<RateShares, RateUsedUp> {
        RateShares::join(Some(self.clone().into()), &CapMemberships::default(), now)
    }

    /// Sets the cap; running sessions adjust to it.
    pub fn set_most(&self, most_bps: Option<u64>, now: Instant) {
        with(&self.0.balance, |balance| balance.set_most(self.0.id, most_bps, now));
    }

    /// Sets the weight that this cap has in the cap above.
    pub fn set_weight(&self, weight: f64, now: Instant) {
        with(&self.0.balance, |balance| balance.set_cap_weight(self.0.id, weight, now));
    }

    /// Makes all changes of `work` to this cap, to those beside it and to their members count at once.
    /// Otherwise a session could get a part that belongs neither to the old state nor to the new one.
    pub fn at_once<R>(&self, work: impl FnOnce() -> R) -> R {
        let _changes = BatchedChanges::begin(&self.0.balance);
        work()
    }

    /// How the cap is used.
    pub fn usage(&self) -> CapUse {
        with(&self.0.balance, |balance| balance.usage(self.0.id))
    }

    /// Returns whether the cap may be forgotten: no session has a part of it, and it has saved up all that it
    /// may.
    pub fn is_idle(&self, now: Instant) -> bool {
        with(&self.0.balance, |balance| balance.is_idle(self.0.id, now))
    }

    /// Returns whether both are the same cap.
    pub fn is(&self, other: &RateCap) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether a session can be in both caps.
    pub fn is_beside(&self, other: &RateCap) -> bool {
        Arc::ptr_eq(&self.0.balance, &other.0.balance)
    }
}

/// Makes changes count at once, when it is dropped.
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

/// A session's parts of the caps that it is in; dropping it gives them back. The default is in no cap and has
/// no limit.
#[derive(Debug, Default)]
pub struct RateShares(Option<Arc<Share>>);

#[derive(Debug)]
struct Share {
    id: u64,
    balance: Arc<Mutex<Balance>>,
    /// The session's own cap, which it keeps whatever happens to the named ones.
    own: Option<CapMembership>,
    /// All caps that it is in; this keeps them in existence.
    caps: Mutex<Vec<RateCap>>,
    /// The handle by which its named caps are changed.
    _named: CapMemberships,
    /// True if its part has changed since this was last read.
    news: Arc<AtomicBool>,
}

/// The bits of IP a second that a session may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RatePart {
    pub in_all: u64,
    pub each_way: u64,
}

impl RatePart {
    /// The user's wish, bounded by what the pacers may send each way.
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

    /// Moves the session into these named caps, besides its own.
    fn move_to(&self, named: &[CapMembership], now: Instant) {
        let (ids, caps) = memberships_of(&self.balance, self.own.as_ref(), named);
        self.with(|balance| balance.move_to(self.id, &ids, now));
        // Dropping the old caps may end them, for which the balance must not be locked.
        let _before = std::mem::replace(&mut *self.caps.lock().in_any_case(), caps);
    }
}

/// The ids of the caps that a session is in, with its weights there, and the caps. Caps of another balance
/// are left out.
fn memberships_of(
    balance: &Arc<Mutex<Balance>>,
    own: Option<&CapMembership>,
    named: &[CapMembership],
) -> (Vec<(u64, f64)>, Vec<RateCap>) {
    let all = own.into_iter().chain(named);
    let memberships: Vec<_> =
        all.filter(|membership| Arc::ptr_eq(&membership.cap.0.balance, balance)).collect();
    debug_assert_eq!(memberships.len(), usize::from(own.is_some()) + named.len(), "caps of two balances");
    (
        memberships.iter().map(|membership| (membership.cap.0.id, membership.weight)).collect(),
        memberships.iter().map(|membership| membership.cap.clone()).collect(),
    )
}

impl RateShares {
    /// Adds a session that is in its own cap, in these named ones, and in those that replace these later.
    /// All of them must have been made within or beside the first one. A session that begins in no cap stays
    /// in none, and has no limit.
    pub fn join(
        own: Option<CapMembership>,
        named: &CapMemberships,
        now: Instant,
    ) -> Result<RateShares, RateUsedUp> {
        named.join(own, now)
    }

    /// Returns whether the session is in no cap.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The most bits of IP a second that go each way; `None` if there is no limit.
    pub fn bps(&self) -> Option<u64> {
        self.read(Member::each_way_bps)
    }

    /// The session's part as it is now.
    pub(crate) fn part(&self) -> Option<RatePart> {
        self.read(|session| Some(RatePart { in_all: session.part_bps()?, each_way: session.each_way_bps()? }))
    }

    fn read<T>(&self, of: impl FnOnce(&Member) -> Option<T>) -> Option<T> {
        let share = self.0.as_ref()?;
        share.with(|balance| balance.sessions.get(&share.id).and_then(of))
    }

    /// Sets the most that the session's users want, in bits of IP a second; the rest goes to other sessions.
    pub(crate) fn set_wish(&self, wish_bps: Option<u64>) {
        self.change(|session| session.set_wish(wish_bps));
    }

    /// Sets a weight that multiplies the weights that the session has in its caps.
    pub fn set_weight(&self, weight: f64, now: Instant) {
        self.change_at(now, |session| session.set_weight(weight));
    }

    /// Sets the rate that the session is to have whatever others want, in bits of IP a second.
    pub(crate) fn set_guarantee(&self, guarantee: Option<RateGuarantee>) {
        self.change(|session| session.set_guarantee(guarantee));
    }

    #[cfg(test)]
    pub(crate) fn guarantee(&self) -> Option<RateGuarantee> {
        self.read(Member::guarantee)
    }

    /// The session begins to send, or to receive; for a receiver, its part limits the blocks that are
    /// granted. One that does both has half of its part for each.
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

    // ---- the use of parts -----------------------------------------------------------------------

    /// The session begins to use its part: from now on it must confirm a part that falls. `ring` is called
    /// when the part has changed.
    pub(crate) fn follow(&self, ring: impl Fn() + Send + Sync + 'static) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.follow(share.id, share.news.clone(), Arc::new(ring)));
        }
    }

    /// Returns whether the part has changed since the last call.
    pub(crate) fn take_news(&self) -> bool {
        self.0.as_ref().is_some_and(|share| {
            share.news.load(Ordering::Relaxed) && share.news.swap(false, Ordering::AcqRel)
        })
    }

    /// The sender now keeps to this part; what it had above that goes to other sessions.
    pub(crate) fn confirm(&self, part: RatePart, now: Instant) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.confirm(share.id, part.in_all, now));
        }
    }

    /// Reports that the session has moved `ip_bytes` in all; what it does not use goes to others until it
    /// uses it. `beside_content` are the bytes received since the last report that were not granted content.
    pub(crate) fn has_moved(&self, ip_bytes: u64, beside_content: u64, now: Instant) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.has_moved(share.id, ip_bytes, beside_content, now));
        }
    }

    /// How many blocks of this length a flow needs ahead: what its part brings in a round trip, and one more.
    pub(crate) fn blocks_ahead(&self, round_trip: Duration, block_bytes: f64) -> u64 {
        let bytes = |bps: u64| bps as f64 * BITS * round_trip.as_secs_f64();
        self.bps().map_or(u64::MAX, |bps| BLOCKS_AHEAD + (bytes(bps) / block_bytes.max(1.0)).ceil() as u64)
    }

    /// Takes `wanted` blocks, or as many as may be granted now.
    pub(crate) fn take_blocks(&self, wanted: u64, now: Instant) -> u64 {
        let Some(share) = &self.0 else { return wanted };
        share.with(|balance| balance.take_blocks(share.id, wanted, now))
    }

    /// Takes a block for a flow that has none left, even ahead of the allowance.
    pub(crate) fn take_when_dry(&self, now: Instant) -> u64 {
        let Some(share) = &self.0 else { return 1 };
        share.with(|balance| balance.take_when_dry(share.id, now))
    }

    /// The session moves nothing any more; its part goes to others.
    pub(crate) fn leave(&self) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.leave(share.id, Instant::now()));
        }
    }

    /// Gives back blocks that were taken and will not come.
    pub(crate) fn give_back_blocks(&self, blocks: u64) {
        if let Some(share) = &self.0 {
            share.with(|balance| balance.give_back(share.id, (blocks * BLOCK_BYTES as u64) as f64));
        }
    }

    /// Gives back the unused rest of a block that is only `len` bytes long.
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
