//! The tables of a daemon's running sessions: flow ids, by which first datagrams find their session, and
//! tickets, by which further connections do.
//!
//! Always true: an id belongs to one session at a time, and is free again when that session's
//! [`Registration`] is dropped. A ticket works only for the key that it was given to; a flow index is taken
//! once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use farhaul_handover::Held as _;
use farhaul_session::MemoryMinimum;
use farhaul_session::budget::{Budget, ResourceLimits};
use farhaul_session::rate_cap::RateShares;
use farhaul_session::setup::{FirstDatagram, FlowSetup, StopFlag};
use farhaul_words::{Code, Error};
use tokio::sync::Notify;

use super::flows::{attached_indices, random_flow_ids};
use super::hello::HelloSecret;
use super::principal::{AuthenticatedPeer, PrincipalId};
use super::rights::Rights;

/// The most first datagrams of a flow that wait for the session's thread; further ones are dropped, and the
/// sender repeats them.
const FIRST_DATAGRAMS_MAX: usize = 64;
/// The most further connections that wait for a session's thread.
const ATTACHED_WAITING: usize = 64;
/// The most bytes of first datagrams that wait for all flows of a session: twice what an honest client sends
/// before it is answered.
pub(crate) const FIRST_BYTES_MAX: u64 = 256 << 10;
/// The memory that a waiting datagram takes besides its bytes.
const FIRST_BYTES: usize = 160;
/// For datagrams that come before their session is known: the most of all clients together, the longest one,
/// and how long it waits.
const EARLY_MAX: usize = 64;
const EARLY_LEN_MAX: usize = 1500;
const EARLY_TIME: Duration = Duration::from_secs(1);
/// The most sessions at once.
const SESSIONS_MAX: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(crate) struct Registry(Arc<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// `None` means that the id is taken by a stream, to which no datagram belongs.
    flows: RwLock<HashMap<u16, Option<FirstQueue>>>,
    /// A client need not wait for the reply, so its first datagrams may overtake its hello. Locked after
    /// `flows`.
    early: Mutex<VecDeque<EarlyDatagram>>,
    tickets: Mutex<HashMap<[u8; 32], SessionEntry>>,
    /// Signals that a session has come.
    come: Notify,
}

/// The queue of a flow's first datagrams. Anybody can send some, so their memory is bounded for all flows of
/// a session together.
#[derive(Debug)]
struct FirstQueue {
    to: Sender<FirstDatagram>,
    waiting: Budget,
}

/// A datagram for an unknown flow. At the bound, the oldest one makes room.
#[derive(Debug)]
struct EarlyDatagram {
    flow_id: u16,
    len: usize,
    at: Instant,
    datagram: FirstDatagram,
}

struct SessionEntry {
    /// The key that has opened the session, and has to open its further connections.
    key: PrincipalId,
    /// The client, and the rights by which its requests were judged.
    client: AuthenticatedPeer,
    /// The indices for further connections, and those that were taken.
    indices: Range<u16>,
    taken: HashSet<u16>,
    stop: StopFlag,
    /// True if the client lacked some of its rights at the last look.
    is_missed: bool,
    attached: Sender<FlowSetup>,
}

impl std::fmt::Debug for SessionEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionEntry(..)")
    }
}

/// A session's places in the tables; dropping it clears them.
#[derive(Debug)]
pub struct Registration {
    tables: Registry,
    ids: Vec<u16>,
    ticket: HelloSecret,
    /// The budget of the session, and what the session may have whatever others have.
    budget: Budget,
    _minimum: MemoryMinimum,
    /// The session's parts of rates, until the session takes them.
    rate: RateShares,
}

impl Registration {
    /// Gives the session its budget, the minimum that is its own from the start, and its parts of rates.
    pub(crate) fn admit(&mut self, budget: Budget, minimum: MemoryMinimum, rate: RateShares) {
        (self.budget, self._minimum, self.rate) = (budget, minimum, rate);
    }

    pub(crate) fn take_rate(&mut self) -> RateShares {
        std::mem::take(&mut self.rate)
    }

    pub(crate) fn budget(&self) -> Budget {
        self.budget.clone()
    }
}

/// Why a connection cannot join a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttachError {
    #[error("the session has ended")]
    Ended,
    #[error("the flow index {0} was used before, or is not for further connections")]
    Index(u16),
}

/// The result of [`Registry::register`].
pub(crate) struct NewRegistration {
    pub(crate) registration: Registration,
    pub(crate) ids: Vec<u16>,
    /// The receivers of first datagrams, one for each flow; empty for a stream.
    pub(crate) first: Vec<Receiver<FirstDatagram>>,
    pub(crate) ticket: HelloSecret,
    pub(crate) attached: Receiver<FlowSetup>,
    /// Ends this session.
    pub(crate) stop: StopFlag,
}

impl Registry {
    /// Enters a session of this client, which the owner of `key` has opened, with `flows` flows. Flows over
    /// UDP get the `offered` ids if all of these are free.
    pub(crate) fn register(
        &self,
        key: &PrincipalId,
        client: &AuthenticatedPeer,
        flows: usize,
        offered: Option<&[u16]>,
    ) -> Result<NewRegistration, Error> {
        let ticket = HelloSecret::random()?;
        let stop = StopFlag::default();
        let (attached_to, attached) = crossbeam_channel::bounded(ATTACHED_WAITING);
        {
            let mut tickets = self.tickets();
            if tickets.len() >= SESSIONS_MAX {
                return Err(Error::new(Code::Busy, format!("{SESSIONS_MAX} transfers are running already"))
                    .with_hint("try again later"));
            }
            let session = SessionEntry {
                key: key.clone(),
                client: client.clone(),
                indices: attached_indices(flows),
                taken: HashSet::new(),
                stop: stop.clone(),
                is_missed: false,
                attached: attached_to,
            };
            tickets.insert(ticket.0, session);
        }
        self.0.come.notify_one();
        let mut registration = Registration {
            tables: self.clone(),
            ids: Vec::new(),
            ticket: ticket.clone(),
            budget: Budget::default(),
            _minimum: MemoryMinimum::default(),
            rate: RateShares::default(),
        };
        let mut table = self.0.flows.write().in_any_case();
        let is_free = |ids: &[u16]| {
            let different: HashSet<_> = ids.iter().collect();
            different.len() == flows && ids.len() == flows && !ids.iter().any(|id| table.contains_key(id))
        };
        let found = match offered.filter(|ids| is_free(ids)) {
            Some(ids) => Ok(ids.to_vec()),
            None => random_flow_ids(flows, |id| table.contains_key(&id)),
        };
        let ids = match found {
            Ok(ids) => ids,
            Err(error) => {
                // Dropping the registration takes the same lock.
                drop(table);
                return Err(error);
            }
        };
        registration.ids.clone_from(&ids);
        let mut first = Vec::new();
        let waiting =
            Budget::new("the first datagrams of a session", ResourceLimits::memory(FIRST_BYTES_MAX));
        for &id in &ids {
            let (to, receiver) = crossbeam_channel::bounded(FIRST_DATAGRAMS_MAX);
            table.insert(id, offered.is_some().then(|| FirstQueue { to, waiting: waiting.clone() }));
            first.push(receiver);
        }
        let early = self.take_early(&ids);
        drop(table);
        for EarlyDatagram { flow_id, len, datagram, .. } in early {
            self.deliver(flow_id, len, || datagram);
        }
        Ok(NewRegistration { registration, ids, first, ticket, attached, stop })
    }

    /// Takes the datagrams that have come for these flows before they were known. The caller has locked the
    /// table of flows, so that nothing comes meanwhile.
    fn take_early(&self, ids: &[u16]) -> Vec<EarlyDatagram> {
        let mut early = self.early();
        early.retain(|early| early.at.elapsed() < EARLY_TIME);
        let (taken, kept) = early.drain(..).partition(|early| ids.contains(&early.flow_id));
        *early = kept;
        Vec::from(taken)
    }

    fn early(&self) -> MutexGuard<'_, VecDeque<EarlyDatagram>> {
        self.0.early.lock().in_any_case()
    }

    /// Hands a datagram to its session. A datagram for an unknown flow waits for a moment among a few others;
    /// what comes too fast is dropped.
    pub(crate) fn deliver(&self, flow_id: u16, len: usize, datagram: impl FnOnce() -> FirstDatagram) {
        let table = self.0.flows.read().in_any_case();
        let known = table.get(&flow_id);
        if known.is_none() && len <= EARLY_LEN_MAX {
            let mut early = self.early();
            if early.len() == EARLY_MAX {
                early.pop_front();
            }
            early.push_back(EarlyDatagram { flow_id, len, at: Instant::now(), datagram: datagram() });
        } else if let Some(Some(queue)) = known
            && !queue.to.is_full()
            && let Ok(kept) = queue.waiting.charge((len + FIRST_BYTES) as u64)
        {
            match queue.to.try_send(FirstDatagram { _kept: Some(kept), ..datagram() }) {
                Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
            }
        }
    }

    /// Lets in a further flow of a client that shows `ticket` and has the key that it was given to. The
    /// client has chosen the index.
    pub(crate) fn admit(
        &self,
        ticket: &HelloSecret,
        key: &PrincipalId,
        index: u16,
    ) -> Result<Sender<FlowSetup>, AttachError> {
        let mut tickets = self.tickets();
        let session = tickets.get_mut(&ticket.0).filter(|session| session.key == *key);
        let session = session.ok_or(AttachError::Ended)?;
        if !session.indices.contains(&index) || !session.taken.insert(index) {
            return Err(AttachError::Index(index));
        }
        Ok(session.attached.clone())
    }

    /// Looks up the present rights of the client whose session has this ticket, to judge a further request.
    /// From here on, the session must not lose these; if it has lost some already, it gets no further
    /// request.
    pub(crate) fn renew(&self, ticket: &HelloSecret, now: Option<Rights>) -> Result<Rights, Error> {
        let mut tickets = self.tickets();
        let session = tickets.get_mut(&ticket.0).ok_or_else(has_ended)?;
        let now = now.ok_or_else(not_let_in)?;
        if let Some(lost) = now.lack(&session.client.rights) {
            return Err(narrowed(lost));
        }
        session.client.rights = now.clone();
        Ok(now)
    }

    /// Waits until a session has come since the last call.
    pub(crate) async fn come(&self) {
        self.0.come.notified().await;
    }

    pub(crate) fn stop_all(&self) {
        self.tickets().values().for_each(|session| session.stop.stop());
    }

    /// Returns whether the owner of this key has opened a session that is running.
    pub(crate) fn has_session_by(&self, key: &PrincipalId) -> bool {
        self.tickets().values().any(|session| session.key == *key)
    }

    /// The principals whose sessions are running.
    pub(crate) fn clients(&self) -> Vec<PrincipalId> {
        let tickets = self.tickets();
        let ids: HashSet<_> = tickets.values().map(|session| &session.client.principal.id).collect();
        ids.into_iter().cloned().collect()
    }

    /// Ends the sessions of clients that have lost some of the rights by which their requests were judged;
    /// `now` has their present rights. A right must be missing twice, as the first look may have met a file
    /// that was just being written.
    pub(crate) fn end_what_is_not_allowed(&self, now: &HashMap<PrincipalId, Option<Rights>>) {
        for session in self.tickets().values_mut() {
            let AuthenticatedPeer { principal, rights } = &session.client;
            // A client that has come since then is checked next time.
            let Some(now) = now.get(&principal.id) else { continue };
            let missed = match now {
                None => Some(not_let_in()),
                Some(now) => now.lack(rights).map(narrowed),
            };
            let was_missed = std::mem::replace(&mut session.is_missed, missed.is_some());
            if let Some(why) = missed.filter(|_| was_missed) {
                session.stop.revoke(why);
            }
        }
    }

    fn tickets(&self) -> MutexGuard<'_, HashMap<[u8; 32], SessionEntry>> {
        self.0.tickets.lock().in_any_case()
    }
}

fn has_ended() -> Error {
    Error::new(Code::PeerGone, AttachError::Ended.to_string())
}

fn not_let_in() -> Error {
    let what = "the client's key is no longer authorized by the daemon";
    Error::new(Code::KeyRevoked, what).with_hint("ask who runs the daemon")
}

/// The next session can do what is still allowed.
fn narrowed(lost: &str) -> Error {
    let hint = "run the same command again; it goes on where it stopped, or is told why it may not";
    Error::new(Code::RightsNarrowed, format!("the daemon has narrowed what this key may do: {lost}"))
        .with_hint(hint)
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.tables.tickets().remove(&self.ticket.0);
        let mut flows = self.tables.0.flows.write().in_any_case();
        for id in &self.ids {
            flows.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::principal::Principal;
    use super::super::rights::Access;
    use super::*;

    fn id(name: &str) -> PrincipalId {
        PrincipalId::Ed25519(name.into())
    }

    fn client(name: &str) -> AuthenticatedPeer {
        let principal = Principal { id: id(name), comment: String::new() };
        AuthenticatedPeer { principal, rights: Rights::default() }
    }

    fn register(
        registry: &Registry,
        client: &AuthenticatedPeer,
        flows: usize,
        offered: Option<&[u16]>,
    ) -> Result<NewRegistration, Error> {
        registry.register(&client.principal.id, client, flows, offered)
    }

    fn datagram() -> FirstDatagram {
        let address = "127.0.0.1:9".parse().unwrap();
        FirstDatagram { bytes: vec![5; 30], from: address, local: address, _kept: None }
    }

    #[test]
    fn datagrams_find_their_session_within_bounds() {
        let registry = Registry::default();
        let one = register(&registry, &client("a"), 2, Some(&[])).unwrap();
        let two = register(&registry, &client("b"), 1, None).unwrap();
        for _ in 0..1000 {
            registry.deliver(one.ids[1], 30, datagram);
            registry.deliver(two.ids[0], 30, datagram);
        }
        assert_eq!(one.first[0].len(), 0);
        assert_eq!(one.first[1].len(), FIRST_DATAGRAMS_MAX);
        assert_eq!(two.first[0].len(), 0, "no datagram belongs to a stream");
        let id = one.ids[1];
        drop(one.registration);
        let table = registry.0.flows.read().unwrap();
        assert!(!table.contains_key(&id));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn the_clients_ids_are_taken_where_they_are_free() {
        let registry = Registry::default();
        let register = |ids: &[u16]| register(&registry, &client("a"), 2, Some(ids)).unwrap();
        let one = register(&[7, 9]);
        assert_eq!(one.ids, [7, 9]);
        for taken in [[9, 11], [8, 8]] {
            let ids = register(&taken).ids;
            assert_ne!(ids, taken);
            assert_ne!(ids[0], ids[1]);
        }
        drop(one);
        assert_eq!(register(&[9, 11]).ids, [9, 11]);
    }

    #[test]
    fn datagrams_that_overtake_the_hello_wait_for_it_within_bounds() {
        let registry = Registry::default();
        let deliver = |id, times: usize| (0..times).for_each(|_| registry.deliver(id, 30, datagram));
        deliver(7, 3);
        deliver(8, 2);
        registry.deliver(7, EARLY_LEN_MAX + 1, || panic!("such a long datagram must not be kept"));
        let session = register(&registry, &client("a"), 1, Some(&[7])).unwrap();
        assert_eq!(session.first[0].len(), 3);
        assert_eq!(registry.early().len(), 2, "the datagrams of other flows still wait");
        deliver(9, 2 * EARLY_MAX);
        assert_eq!(registry.early().len(), EARLY_MAX);
        let late = register(&registry, &client("b"), 1, Some(&[8])).unwrap();
        assert_eq!(late.first[0].len(), 0, "they had to make room");
    }

    #[test]
    fn the_first_datagrams_of_all_flows_take_only_so_much() {
        let registry = Registry::default();
        let session = register(&registry, &client("a"), 16, Some(&[])).unwrap();
        let large = || FirstDatagram { bytes: vec![5; 60_000], ..datagram() };
        let deliver =
            || session.ids.iter().for_each(|&id| (0..64).for_each(|_| registry.deliver(id, 60_000, large)));
        let waiting = || session.first.iter().map(Receiver::len).sum::<usize>();
        deliver();
        assert_eq!(waiting() as u64, FIRST_BYTES_MAX / (60_000 + FIRST_BYTES as u64));
        // Datagrams that were taken make room.
        session.first.iter().for_each(|first| first.try_iter().for_each(drop));
        deliver();
        assert_eq!(waiting() as u64, FIRST_BYTES_MAX / (60_000 + FIRST_BYTES as u64));
    }

    #[test]
    fn who_is_missed_twice_is_stopped_and_nobody_else() {
        let registry = Registry::default();
        assert!(registry.clients().is_empty());
        let [alice, bob] =
            ["alice", "bob"].map(|name| register(&registry, &client(name), 1, Some(&[])).unwrap());
        let mut clients = registry.clients();
        clients.sort_by_key(PrincipalId::name);
        let mut expected = vec![id("alice"), id("bob")];
        expected.sort_by_key(PrincipalId::name);
        assert_eq!(clients, expected);
        let with = |alice: Option<Rights>, bob: Option<Rights>| {
            registry.end_what_is_not_allowed(&HashMap::from([(id("alice"), alice), (id("bob"), bob)]));
        };
        let all = || Some(Rights::default());
        with(None, all());
        with(all(), None);
        with(None, all());
        assert!(!alice.stop.is_set() && !bob.stop.is_set(), "each was missed once at a time");
        registry.end_what_is_not_allowed(&HashMap::new());
        with(None, all());
        assert!(alice.stop.is_set() && !bob.stop.is_set());
        assert!(matches!(alice.stop.take_revocation(), Some(error) if error.code() == Code::KeyRevoked));
        assert!(alice.stop.take_revocation().is_none(), "it is told once");
        with(all(), Some(Rights { access: Access::ReadOnly, ..Rights::default() }));
        with(all(), Some(Rights { rate_max_bps: Some(9), ..Rights::default() }));
        let why = bob.stop.take_revocation().unwrap();
        assert!(why.code() == Code::RightsNarrowed && why.what().contains("its rate is limited"), "{why}");
    }

    #[test]
    fn what_a_further_request_was_judged_by_must_not_be_lost_either() {
        let registry = Registry::default();
        let read_only = || Rights { access: Access::ReadOnly, ..Rights::default() };
        let client = AuthenticatedPeer { rights: read_only(), ..client("alice") };
        let session = register(&registry, &client, 1, Some(&[])).unwrap();
        let renew = |now| registry.renew(&session.ticket, now);
        let look = |now| registry.end_what_is_not_allowed(&HashMap::from([(id("alice"), Some(now))]));
        assert_eq!(renew(Some(read_only())).unwrap(), read_only());
        assert_eq!(renew(Some(Rights::default())).unwrap(), Rights::default());
        let lost = renew(Some(read_only())).unwrap_err();
        assert!(lost.to_string().contains("it may not write any more"), "{lost}");
        assert!(renew(None).is_err_and(|error| error.code() == Code::KeyRevoked));
        look(read_only());
        assert!(!session.stop.is_set());
        look(read_only());
        assert!(session.stop.is_set());
        drop(session.registration);
        assert!(registry.renew(&session.ticket, Some(Rights::default())).is_err(), "it is over");
    }

    #[test]
    fn all_sessions_end_when_the_daemon_does() {
        let registry = Registry::default();
        let session = register(&registry, &client("a"), 1, Some(&[])).unwrap();
        registry.stop_all();
        assert!(session.stop.is_set() && session.stop.take_revocation().is_none());
    }

    #[test]
    fn a_ticket_serves_its_owner_while_the_session_lives_and_an_index_once() {
        let registry = Registry::default();
        let session = register(&registry, &client("alice"), 3, Some(&[])).unwrap();
        let admit =
            |ticket: &HelloSecret, client, index| registry.admit(ticket, &id(client), index).map(drop);
        let ticket = session.ticket.clone();
        assert_eq!(admit(&ticket, "mallory", 3), Err(AttachError::Ended));
        assert_eq!(admit(&HelloSecret([0; 32]), "alice", 3), Err(AttachError::Ended));
        let last = attached_indices(3).end - 1;
        for (index, is_fresh) in [
            (3, true),
            (3, false),
            (last, true),
            (7, true),
            (4, true),
            (7, false),
            (last, false),
            (0, false),
            (2, false),
            (last + 1, false),
            (u16::MAX, false),
        ] {
            let expected = if is_fresh { Ok(()) } else { Err(AttachError::Index(index)) };
            assert_eq!(admit(&ticket, "alice", index), expected);
        }
        drop(session);
        assert_eq!(admit(&ticket, "alice", 5), Err(AttachError::Ended));
    }
}
