//! How much may be sent to an address before it is known that somebody there wants it. Whoever starts a
//! session can name any address, and can forge the source address of the datagrams that he sends.
//!
//! Always true: until an address has answered a challenge, it gets at most three times as many bytes as came
//! from it (RFC 9000, section 8). Besides these it gets the few datagrams ([`GRANTS_MAX`]) that open the way
//! through two firewalls at the start, or that find the way back after a silence.

use std::time::Duration;

use farhaul_proto::Timestamp;

/// The most datagrams of [`GRANT_LEN`] bytes that a session sends to addresses from which nothing has come.
pub(crate) const GRANTS_MAX: u16 = 10;
/// The most bytes of such a datagram; a longer one counts as several.
const GRANT_LEN: usize = 1200;
/// Bytes that may be sent for each one received.
const AMPLIFICATION: u64 = 3;
/// The first pause between such datagrams at the start, where a live peer is expected; each pause is twice
/// the one before.
const PAUSE_FIRST: Duration = Duration::from_millis(60);
/// The first pause between them after a silence, which may last for minutes.
const PAUSE_SILENT: Duration = Duration::from_millis(600);
/// The first pause before a challenge is repeated; later pauses are longer.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);

/// The share of [`GRANTS_MAX`] that flow `index` of a session with `flows` flows has.
pub(crate) fn grants_of(index: u16, flows: u16) -> u16 {
    let (index, flows) = (index % flows.max(1), flows.max(1));
    GRANTS_MAX / flows + u16::from(index < GRANTS_MAX % flows)
}

/// The proof, or the lack of it, that somebody is at the address that an acceptor's flow sends to.
#[derive(Debug, Default)]
pub(crate) enum AddressStanding {
    /// The address has answered a challenge, now or in the handshake.
    #[default]
    Proven,
    Unproven(UnprovenAddress),
}

#[derive(Debug)]
pub(crate) struct UnprovenAddress {
    token: Option<[u8; 8]>,
    received: u64,
    sent: u64,
    grants: u16,
    pause: Duration,
    due: Timestamp,
    challenges: u32,
    challenge_due: Timestamp,
}

impl AddressStanding {
    /// The standing of an address that the peer has only named.
    pub(crate) fn named(grants: u16) -> AddressStanding {
        AddressStanding::Unproven(UnprovenAddress::new(0, grants, PAUSE_FIRST, Timestamp::default()))
    }

    /// The standing of an address from which one datagram of `bytes` bytes has come.
    pub(crate) fn heard_once(bytes: usize) -> AddressStanding {
        AddressStanding::Unproven(UnprovenAddress::new(bytes as u64, 0, PAUSE_FIRST, Timestamp::default()))
    }

    /// The standing of a proven address from which nothing comes any more.
    pub(crate) fn fallen_silent(grants: u16, now: Timestamp) -> AddressStanding {
        AddressStanding::Unproven(UnprovenAddress::new(0, grants, PAUSE_SILENT, now))
    }

    pub(crate) fn is_proven(&self) -> bool {
        matches!(self, AddressStanding::Proven)
    }

    pub(crate) fn on_received(&mut self, bytes: usize) {
        if let AddressStanding::Unproven(unproven) = self {
            unproven.received += bytes as u64;
        }
    }

    /// A challenge was answered; returns whether it was the challenge to this address.
    pub(crate) fn answered(&mut self, token: [u8; 8]) -> bool {
        let is_own = matches!(self, AddressStanding::Unproven(UnprovenAddress { token: Some(own), .. }) if *own == token);
        if is_own {
            *self = AddressStanding::Proven;
        }
        is_own
    }

    /// The most bytes that the next datagram may have; `None` if there is no limit.
    pub(crate) fn room(&self, now: Timestamp) -> Option<usize> {
        let AddressStanding::Unproven(unproven) = self else { return None };
        let granted = if now >= unproven.due { usize::from(unproven.grants) * GRANT_LEN } else { 0 };
        Some(granted.max(unproven.owed()))
    }

    pub(crate) fn on_sent(&mut self, bytes: usize, now: Timestamp) {
        if let AddressStanding::Unproven(unproven) = self {
            unproven.on_sent(bytes, now);
        }
    }

    /// When [`AddressStanding::room`] grows without a datagram from the peer.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        match self {
            AddressStanding::Unproven(unproven) if unproven.grants > 0 => Some(unproven.due),
            AddressStanding::Unproven(_) | AddressStanding::Proven => None,
        }
    }

    /// When a challenge of `bytes` is to be sent; `None` while nothing has come from the address, as nothing
    /// may be there.
    pub(crate) fn challenge_due(&self, bytes: usize) -> Option<Timestamp> {
        match self {
            AddressStanding::Unproven(unproven) => {
                (unproven.owed() >= bytes).then_some(unproven.challenge_due)
            }
            AddressStanding::Proven => None,
        }
    }

    /// The token to send as a challenge. The first call makes it with `new`; later calls repeat it.
    pub(crate) fn challenge(
        &mut self,
        now: Timestamp,
        new: impl FnOnce() -> Option<[u8; 8]>,
    ) -> Option<[u8; 8]> {
        let AddressStanding::Unproven(unproven) = self else { return None };
        unproven.token = unproven.token.or_else(new);
        let tries = unproven.challenges;
        unproven.challenge_due = now + CHALLENGE_INTERVAL * (1 + tries.min(100) * tries.min(100) / 8);
        unproven.challenges += 1;
        unproven.token
    }
}

impl UnprovenAddress {
    fn new(received: u64, grants: u16, pause: Duration, due: Timestamp) -> UnprovenAddress {
        let challenge_due = Timestamp::default();
        UnprovenAddress { token: None, received, sent: 0, grants, pause, due, challenges: 0, challenge_due }
    }

    /// How many more bytes may go there in return for the bytes that have come.
    fn owed(&self) -> usize {
        let left = (AMPLIFICATION * self.received).saturating_sub(self.sent);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    fn on_sent(&mut self, bytes: usize, now: Timestamp) {
        if bytes <= self.owed() {
            self.sent += bytes as u64;
            return;
        }
        let count = u16::try_from(bytes.div_ceil(GRANT_LEN)).unwrap_or(u16::MAX);
        self.grants = self.grants.saturating_sub(count);
        self.due = now + self.pause;
        self.pause *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Sends whatever may be sent, and looks again each millisecond; returns when it sent, and how many bytes
    /// in all.
    fn send_all(standing: &mut AddressStanding, len: usize, until: u64) -> (Vec<u64>, usize) {
        let mut times = Vec::new();
        for ms in 0..until {
            while standing.room(at(ms)).is_none_or(|room| room >= len) {
                standing.on_sent(len, at(ms));
                times.push(ms);
            }
        }
        let bytes = times.len() * len;
        (times, bytes)
    }

    #[test]
    fn an_address_that_was_only_named_gets_ten_datagrams_with_growing_pauses() {
        let mut standing = AddressStanding::named(GRANTS_MAX);
        let (times, bytes) = send_all(&mut standing, 1200, 100_000);
        assert_eq!((times.len(), bytes), (10, 12_000));
        assert_eq!(times[..4], [0, 60, 180, 420]);
        assert_eq!((standing.room(at(200_000)), standing.due()), (Some(0), None));
        let mut standing = AddressStanding::named(GRANTS_MAX);
        assert!(send_all(&mut standing, 1472, 100_000).1 <= 12_000, "longer ones count for more");
        assert_eq!(standing.challenge_due(64), None, "nobody is known to be there yet");
    }

    #[test]
    fn three_times_what_came_goes_back_until_the_challenge_is_answered() {
        let mut standing = AddressStanding::heard_once(1200);
        assert_eq!(send_all(&mut standing, 1200, 10_000).1, 3600);
        standing.on_received(100);
        assert_eq!(send_all(&mut standing, 64, 10_000).1, 256);
        standing.on_received(100);
        assert_eq!(standing.challenge_due(64), Some(at(0)));
        let token = standing.challenge(at(5), || Some([7; 8])).expect("a challenge is due");
        assert_eq!(standing.challenge_due(64), Some(at(105)));
        assert_eq!(standing.challenge(at(105), || Some([8; 8])), Some(token), "the question stays the same");
        assert!(!standing.answered([0; 8]) && !standing.is_proven());
        assert!(standing.answered(token) && standing.is_proven());
        assert_eq!((standing.room(at(6)), standing.challenge_due(64)), (None, None));
        assert!(!standing.answered(token));
    }

    #[test]
    fn a_silent_path_is_tried_for_minutes() {
        let mut standing = AddressStanding::fallen_silent(GRANTS_MAX, at(0));
        let (times, bytes) = send_all(&mut standing, 100, 400_000);
        assert_eq!((times.len(), bytes), (10, 1000));
        assert!(times[9] > 300_000, "{times:?}");
    }

    #[test]
    fn flows_share_what_a_session_has() {
        for flows in 1..=16 {
            let grants: Vec<u16> = (0..flows).map(|index| grants_of(index, flows)).collect();
            assert_eq!(grants.iter().sum::<u16>(), GRANTS_MAX, "{grants:?}");
            assert!(grants.is_sorted_by(|one, next| one >= next && one - next <= 1));
        }
    }
}
