//! The small datagrams beside the measured ones: to find the other end, and to report what has arrived.
//!
//! Always true: only these go to an address that has not shown the token; they begin with a byte that none of
//! our packets begins with.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farhaul_connect::hello::HelloSecret;
use farhaul_net::{Link, RecvBatch, SendBatch, UdpLink, wait};

/// How long the ends look for each other.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often an end calls the other one.
const CALL_EVERY: Duration = Duration::from_millis(20);

const MEET: u8 = 0xb1;
const NEWS: u8 = 0xb2;

/// A message beside the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeetingMessage {
    /// The sender is here and, if `heard`, has heard the other end.
    Meet { heard: bool },
    /// The number behind the newest datagram that has arrived, and how many have arrived.
    News { next: u64, count: u64 },
}

/// Identifies a flow of a measurement.
#[derive(Debug, Clone)]
pub(super) struct FlowBadge {
    pub(super) token: HelloSecret,
    pub(super) flow: u16,
}

const MESSAGE_LEN: usize = 1 + 32 + 2 + 16;

impl FlowBadge {
    fn encode(&self, message: MeetingMessage) -> [u8; MESSAGE_LEN] {
        let (kind, value, count) = match message {
            MeetingMessage::Meet { heard } => (MEET, u64::from(heard), 0),
            MeetingMessage::News { next, count } => (NEWS, next, count),
        };
        let mut bytes = [0; MESSAGE_LEN];
        bytes[0] = kind;
        bytes[1..33].copy_from_slice(&self.token.0);
        bytes[33..35].copy_from_slice(&self.flow.to_be_bytes());
        bytes[35..43].copy_from_slice(&value.to_be_bytes());
        bytes[43..].copy_from_slice(&count.to_be_bytes());
        bytes
    }

    /// Decodes a message; `None` if it is not one, or not for this flow.
    pub(super) fn decode(&self, bytes: &[u8]) -> Option<MeetingMessage> {
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
        if bytes[1..33] != self.token.0 || bytes[33..35] != self.flow.to_be_bytes() {
            return None;
        }
        let value = u64::from_be_bytes(bytes[35..43].try_into().ok()?);
        let count = u64::from_be_bytes(bytes[43..].try_into().ok()?);
        match bytes[0] {
            MEET => Some(MeetingMessage::Meet { heard: value != 0 }),
            NEWS => Some(MeetingMessage::News { next: value, count }),
            _ => None,
        }
    }

    /// Sends a message. It may get lost, so callers repeat it.
    pub(super) fn send(
        &self,
        link: &mut UdpLink,
        batch: &mut SendBatch,
        to: Option<SocketAddr>,
        message: MeetingMessage,
    ) -> io::Result<()> {
        batch.clear();
        batch.to(to);
        if let Some(bytes) = batch.datagram(MESSAGE_LEN) {
            bytes.copy_from_slice(&self.encode(message));
        }
        let _ = link.send(batch)?;
        Ok(())
    }
}

/// Calls all candidates until the other end has been heard and has heard us; from then on, the link sends
/// only there. Returns `false` if time is up or `stop` is set.
pub(super) fn meet(
    link: &mut UdpLink,
    badge: &FlowBadge,
    candidates: &[SocketAddr],
    stop: &AtomicBool,
) -> io::Result<bool> {
    let (mut out, mut arrived) = (SendBatch::new(0), RecvBatch::new());
    let until = Instant::now() + PATIENCE;
    let mut heard = false;
    while Instant::now() < until && !stop.load(Relaxed) {
        if heard {
            badge.send(link, &mut out, None, MeetingMessage::Meet { heard })?;
        } else {
            for &candidate in candidates {
                badge.send(link, &mut out, Some(candidate), MeetingMessage::Meet { heard })?;
            }
        }
        let mut fds = Vec::new();
        link.poll_fds(false, &mut fds);
        wait(&mut fds, Some(CALL_EVERY))?;
        while link.recv(&mut arrived)? > 0 {
            let mut is_mutual = false;
            for datagram in arrived.datagrams() {
                match badge.decode(datagram.bytes) {
                    Some(MeetingMessage::Meet { heard: mutual }) => {
                        if let Some(from) = datagram.from
                            && !heard
                        {
                            link.set_remote(*from)?;
                            heard = true;
                        }
                        is_mutual |= mutual;
                    }
                    Some(MeetingMessage::News { .. }) => {}
                    // Data: the other end has heard us and has begun. Before that, a stranger's datagrams do
                    // not count.
                    None => is_mutual |= heard,
                }
            }
            if is_mutual {
                // The other end stops calling as soon as one of these has arrived.
                for _ in 0..3 {
                    badge.send(link, &mut out, None, MeetingMessage::Meet { heard: true })?;
                }
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn badge(first: u8, flow: u16) -> FlowBadge {
        FlowBadge { token: HelloSecret([first; 32]), flow }
    }

    #[test]
    fn only_an_end_with_the_token_decodes_a_message() {
        for message in [
            MeetingMessage::Meet { heard: false },
            MeetingMessage::Meet { heard: true },
            MeetingMessage::News { next: 1 << 39, count: 7 },
        ] {
            let bytes = badge(1, 2).encode(message);
            assert_eq!(badge(1, 2).decode(&bytes), Some(message));
            assert_eq!(badge(1, 3).decode(&bytes), None);
            assert_eq!(badge(2, 2).decode(&bytes), None);
            assert_eq!(badge(1, 2).decode(&bytes[1..]), None);
            assert!(!farhaul_proto::is_ours(bytes[0]));
        }
    }

    #[test]
    fn two_ends_find_each_other_and_a_stranger_finds_no_one() {
        let bind = || UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (mut one, mut two, mut other) = (bind(), bind(), bind());
        let address_of = |link: &UdpLink| link.local_addr().unwrap();
        let (first, second, third) = (address_of(&one), address_of(&two), address_of(&other));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let near = scope.spawn(|| meet(&mut one, &badge(1, 0), &[third, second], &stop));
            let stranger = scope.spawn(|| meet(&mut other, &badge(9, 0), &[first, second], &stop));
            // Without candidates, this end waits for the near end to begin.
            assert!(meet(&mut two, &badge(1, 0), &[], &stop).unwrap());
            assert!(near.join().unwrap().unwrap());
            stop.store(true, Relaxed);
            assert!(!stranger.join().unwrap().unwrap());
        });
        assert_eq!((one.remote(), two.remote()), (Some(second), Some(first)));
    }
}
