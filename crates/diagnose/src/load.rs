//! The content of a test: blocks that one end fills with nothing, and the other end drops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use farhaul_session::content_role::ContentRole;
use farhaul_session::exchange::{LoadedBlock, Outlet};
use farhaul_session::producer_token::ProducerToken;
use farhaul_session::request::Request;
use farhaul_session::session::Dialogue;
use farhaul_session::{Resource, contained};
use farhaul_words::{Carrier, Error, PathSigns};
use serde::{Deserialize, Serialize};

/// The content of a block.
const BLOCK_CONTENT: usize = 1 << 20;
/// How soon a thread notices that the test is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What one end sees in a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadSigns {
    /// What the path has done to the packets of this end.
    pub(crate) path: PathSigns,
    /// Content that has arrived here.
    pub(crate) content_bytes: u64,
    /// Content that was given to the transport here.
    pub(crate) content_sent: u64,
    /// Datagrams that this host's sockets had no room for, since the host has started; of all its programs.
    pub(crate) full_sockets: u64,
    /// True if the content travels over UDP.
    pub(crate) is_udp: bool,
}

impl LoadSigns {
    /// Makes numbers of it that can be counted with, whatever the far end has said.
    pub(crate) fn tame(mut self) -> LoadSigns {
        let path = &mut self.path;
        for number in
            [&mut path.rtt_min_ms, &mut path.rtt_ms, &mut path.rtt_latest_ms, &mut path.reordering_ms]
        {
            *number = if number.is_finite() { number.clamp(0.0, 1e6) } else { 0.0 };
        }
        self
    }
}

/// The thread that moves the content of one end. It ends when this is dropped.
pub(crate) struct Mover {
    is_over: Arc<AtomicBool>,
    moved: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Starts to send, or to drop what arrives.
    pub(crate) fn start(request: &Arc<Request>, role: ContentRole) -> Result<Mover, Error> {
        let (is_over, moved) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let sent = Arc::<AtomicU64>::default();
        let charge = request.budget().charge_of(Resource::Threads, 1)?;
        let mover = Moving {
            request: request.clone(),
            is_over: is_over.clone(),
            moved: moved.clone(),
            sent: sent.clone(),
        };
        let work = move || {
            let _charge = charge;
            let done = contained(|| match role {
                ContentRole::Sender => mover.send(),
                ContentRole::Receiver => mover.drop_all(),
            });
            if let Err(panic) = done {
                mover.request.fail(panic);
            }
        };
        let thread = Builder::new().name("load".into()).spawn(work).map_err(Error::no_thread)?;
        Ok(Mover { is_over, moved, sent, thread: Some(thread) })
    }

    /// Content that has arrived here.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Moving {
    request: Arc<Request>,
    is_over: Arc<AtomicBool>,
    moved: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
}

impl Moving {
    fn is_done(&self) -> bool {
        self.is_over.load(Relaxed) || self.request.is_stopped()
    }

    /// Sends blocks until the test is over.
    fn send(&self) {
        let outlet = Outlet::new(self.request.clone());
        let _more_will_come = ProducerToken::new(&self.request);
        while !self.is_done() {
            let Some(mut block) = outlet.claim_within(|| LOOK_EVERY, || self.is_done()) else { return };
            block.set_len(BLOCK_CONTENT);
            let load = LoadedBlock::new(block, BLOCK_CONTENT, BLOCK_CONTENT);
            if !outlet.put(load, || self.is_done()) {
                return;
            }
            self.sent.fetch_add(BLOCK_CONTENT as u64, Relaxed);
        }
    }

    /// Drops what arrives until the test is over.
    fn drop_all(&self) {
        let arrived = self.request.arrived();
        while !self.is_done() {
            let _ = arrived.bell().rings().recv_timeout(LOOK_EVERY);
            while let Some(block) = arrived.take() {
                let len = block.len.min(BLOCK_CONTENT) as u64;
                drop(block);
                self.moved.fetch_add(len, Relaxed);
                self.request.counts().content_written.fetch_add(len, Relaxed);
            }
        }
    }
}

/// The signs of this end as they are now.
pub(crate) fn signs(dialogue: &Dialogue, mover: &Mover) -> LoadSigns {
    LoadSigns {
        path: dialogue.path_signs(),
        content_bytes: mover.moved(),
        content_sent: mover.sent.load(Relaxed),
        full_sockets: full_sockets(),
        is_udp: dialogue.carrier().is_some_and(Carrier::has_udp),
    }
}

/// From: proc(5), /proc/net/snmp: the column RcvbufErrors of the lines Udp, and of Udp6 in snmp6.
fn full_sockets() -> u64 {
    let four = std::fs::read_to_string("/proc/self/net/snmp").unwrap_or_default();
    let six = std::fs::read_to_string("/proc/self/net/snmp6").unwrap_or_default();
    of_snmp(&four).unwrap_or(0) + of_snmp6(&six).unwrap_or(0)
}

fn of_snmp(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|name| name == "RcvbufErrors")?;
    values.split_whitespace().nth(column)?.parse().ok()
}

fn of_snmp6(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("Udp6RcvbufErrors"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_counts_what_sockets_had_no_room_for() {
        let text = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 9 8 7 6 5 4\nUdpLite: RcvbufErrors\nUdpLite: 0\n";
        assert_eq!(of_snmp(text), Some(5));
        assert_eq!(of_snmp("Udp: RcvbufErrors\n"), None);
        assert_eq!(of_snmp6("Udp6InErrors  \t3\nUdp6RcvbufErrors\t17\n"), Some(17));
    }
}
