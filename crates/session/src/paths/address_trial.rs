//! A new address of the peer, on trial: it is used for nothing else before it has answered a challenge (RFC
//! 9000, section 8.2), because anybody can send a copy of an authentic packet from an address of his own.
//!
//! Always true: the address gets at most three times as many bytes as came from it.

use std::net::SocketAddr;
use std::time::Duration;

use farhaul_proto::Timestamp;

/// The first pause before a challenge is repeated, as it or its answer may be lost; later pauses are longer.
const INTERVAL: Duration = Duration::from_millis(100);
/// The most challenges to an address; with the growing pauses they take half a minute.
const TRIES_MAX: u32 = 16;
const AGE_MAX: Duration = Duration::from_secs(30);
/// How long an address has to answer before another one may take its place.
const TURN: Duration = Duration::from_millis(500);
/// Bytes that may be sent for each one received.
const AMPLIFICATION: u64 = 3;

#[derive(Debug)]
pub(crate) struct AddressTrial {
    address: SocketAddr,
    token: [u8; 8],
    received: u64,
    sent: u64,
    tries: u32,
    began: Timestamp,
    due: Timestamp,
}

impl AddressTrial {
    pub(crate) fn new(address: SocketAddr, token: [u8; 8], now: Timestamp) -> AddressTrial {
        AddressTrial { address, token, received: 0, sent: 0, tries: 0, began: now, due: now }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token(&self) -> [u8; 8] {
        self.token
    }

    /// An authentic datagram has come from the address.
    pub(crate) fn on_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    /// When the next challenge of `bytes` is due; `None` while it would be more than is allowed, or after the
    /// last try.
    pub(crate) fn due(&self, bytes: usize) -> Option<Timestamp> {
        let is_allowed = self.sent + bytes as u64 <= AMPLIFICATION * self.received;
        (is_allowed && self.tries < TRIES_MAX).then_some(self.due)
    }

    pub(crate) fn on_sent(&mut self, bytes: usize, now: Timestamp) {
        self.sent += bytes as u64;
        self.due = now + INTERVAL * (1 + self.tries * self.tries / 8);
        self.tries += 1;
    }

    /// Returns whether the trial is lost, as no challenge was answered in time.
    pub(crate) fn is_lost(&self, now: Timestamp) -> bool {
        (self.tries >= TRIES_MAX && now >= self.due) || now - self.began >= AGE_MAX
    }

    /// Returns whether another address may take the place of this one.
    pub(crate) fn is_old(&self, now: Timestamp) -> bool {
        now - self.began >= TURN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 50;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn trial() -> AddressTrial {
        AddressTrial::new("192.0.2.1:7".parse().unwrap(), *b"question", at(1000))
    }

    #[test]
    fn no_more_than_three_times_what_came_goes_there() {
        let mut trial = trial();
        assert_eq!(trial.due(LEN), None);
        trial.on_received(34);
        assert_eq!(trial.due(LEN), Some(at(1000)));
        trial.on_sent(LEN, at(1000));
        trial.on_sent(LEN, at(1100));
        assert_eq!(trial.due(LEN), None, "102 bytes are allowed");
        assert!(!trial.is_lost(at(2000)) && trial.is_lost(at(40_000)), "not kept for ever either");
        trial.on_received(16);
        assert_eq!(trial.due(LEN), Some(at(1200)));
    }

    #[test]
    fn an_address_that_never_answers_is_given_up() {
        let mut trial = trial();
        trial.on_received(1_000_000);
        let mut now = at(1000);
        while let Some(due) = trial.due(LEN) {
            assert!(due >= now && !trial.is_lost(now));
            now = due;
            trial.on_sent(LEN, now);
        }
        assert!(!trial.is_lost(now) && trial.is_lost(now + Duration::from_secs(5)));
        assert!((at(5_000)..at(60_000)).contains(&now), "{now:?}");
    }
}
