//! The carriers of a session: what carries now, the channel, and the ways to get streams while it runs.
//!
//! Always true: it decides on what it is told, and opens no flow itself; `carriers.rs` does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use farhaul_words::{Carrier, Error};

use super::super::setup::{CarrierFallback, Dial, FlowSetup, Transport};
use crate::carriers::udp_blocks::UdpBlockNotes;

/// How long to wait before opening a failed stream carrier again.
const DIAL_INTERVAL: Duration = Duration::from_secs(1);
/// The same while the channel carries.
const DIAL_AGAIN: Duration = Duration::from_secs(30);
/// After a failed attempt to connect, the next one beside others waits for this long.
const DIAL_PAUSE: Duration = Duration::from_secs(3);

/// The result of a thread that dials.
pub(super) type DialResult = Result<FlowSetup, Error>;

/// The carriers of a session.
pub(super) struct CarrierSet {
    carrier: Carrier,
    /// What the channel is called when it carries everything.
    channel_carrier: Carrier,
    fallback: CarrierFallback,
    last_dial: Option<Instant>,
    dial_failed: Option<Instant>,
    dialing: Vec<Receiver<DialResult>>,
    /// The newest spare that has brought UDP back.
    taken_up: Option<u16>,
    /// The flow on the channel.
    channel: Option<u16>,
    /// The notes of far ends that UDP does not reach.
    blocked: Option<UdpBlockNotes>,
    udp_ports: Vec<u16>,
}

impl CarrierSet {
    pub(super) fn new(
        transport: Transport,
        fallback: CarrierFallback,
        blocked: Option<UdpBlockNotes>,
        udp_ports: Vec<u16>,
    ) -> CarrierSet {
        let carrier = Carrier::from(transport);
        let channel_carrier = match &fallback {
            CarrierFallback::Ready(_) => Carrier::Channel,
            _ if is_channel_from_start(transport) => carrier,
            CarrierFallback::None
            | CarrierFallback::Dial(_)
            | CarrierFallback::Await(_)
            | CarrierFallback::Listen(_) => Carrier::Tcp,
        };
        CarrierSet {
            carrier,
            channel_carrier,
            fallback,
            last_dial: None,
            dial_failed: None,
            dialing: Vec::new(),
            taken_up: None,
            channel: None,
            blocked,
            udp_ports,
        }
    }

    // ---- what carries -------------------------------------------------------------------------

    /// What carries content now.
    pub(super) fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Content takes this carrier from now on; returns the one before, if that was another one.
    pub(super) fn set(&mut self, to: Carrier) -> Option<Carrier> {
        let from = std::mem::replace(&mut self.carrier, to);
        (from != to).then_some(from)
    }

    /// What carries if this stream carries everything.
    pub(super) fn of_stream(&self, index: u16) -> Carrier {
        if self.is_channel(index) { self.channel_carrier } else { Carrier::Tcp }
    }

    /// The newest spare that has brought UDP back.
    pub(super) fn taken_up(&self) -> Option<u16> {
        self.taken_up
    }

    pub(super) fn take_up(&mut self, newest: u16) {
        self.taken_up = Some(newest);
    }

    // ---- the channel ------------------------------------------------------------------------

    /// The flow of the channel, if both ends have agreed on one that is ready from the start.
    pub(super) fn take_ready(&mut self) -> Result<Option<FlowSetup>, Error> {
        if matches!(self.fallback, CarrierFallback::Ready(_)) { self.fallback.open() } else { Ok(None) }
    }

    /// This flow is on the channel; `direct` leads to streams that are better.
    pub(super) fn set_channel(&mut self, index: u16, direct: CarrierFallback) {
        self.channel = Some(index);
        self.fallback = direct;
    }

    pub(super) fn is_channel(&self, index: u16) -> bool {
        self.channel == Some(index)
    }

    // ---- ways to get streams --------------------------------------------------------------------

    /// The far end has agreed to another way to get streams.
    pub(super) fn set_fallback(&mut self, fallback: CarrierFallback) {
        self.fallback = fallback;
    }

    /// Returns whether this end can open connections.
    pub(super) fn can_dial(&self) -> bool {
        matches!(self.fallback, CarrierFallback::Dial(_))
    }

    /// Returns whether a better stream than the channel may come.
    pub(super) fn may_get_direct(&self) -> bool {
        matches!(self.fallback, CarrierFallback::Dial(_) | CarrierFallback::Listen(_))
            && self.channel.is_some()
    }

    /// Returns whether it is time to open the first connection.
    pub(super) fn is_dial_due(&self, now: Instant) -> bool {
        self.has_rested(now, DIAL_INTERVAL) && self.dialing.is_empty()
    }

    /// The same while the channel carries, so that there is no hurry.
    pub(super) fn is_better_dial_due(&self, now: Instant) -> bool {
        self.has_rested(now, DIAL_AGAIN) && self.is_dial_due(now)
    }

    fn has_rested(&self, now: Instant, pause: Duration) -> bool {
        self.last_dial.is_none_or(|last| now.saturating_duration_since(last) >= pause)
    }

    /// What dials, and where the result is put; `None` if this end cannot dial.
    pub(super) fn begin_dial(&mut self, now: Instant) -> Option<(Arc<dyn Dial>, Sender<DialResult>)> {
        let CarrierFallback::Dial(dialer) = &self.fallback else { return None };
        let dialer = dialer.clone();
        self.last_dial = Some(now);
        let (done, dialing) = bounded(1);
        self.dialing.push(dialing);
        Some((dialer, done))
    }

    /// How many connections are being opened.
    pub(super) fn dialing(&self) -> usize {
        self.dialing.len()
    }

    /// Connections that this end has opened, and why others could not be.
    pub(super) fn take_dialled(&mut self) -> Vec<DialResult> {
        let mut results = Vec::new();
        self.dialing.retain(|dialing| match dialing.try_recv() {
            Ok(result) => {
                results.push(result);
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => false,
        });
        results
    }

    /// A connection that the other end has opened, if one has come.
    pub(super) fn take_arrived(&mut self) -> Result<Option<FlowSetup>, Error> {
        match &self.fallback {
            CarrierFallback::Await(_) | CarrierFallback::Listen(_) => self.fallback.open(),
            CarrierFallback::None | CarrierFallback::Ready(_) | CarrierFallback::Dial(_) => Ok(None),
        }
    }

    /// A connection could not be opened.
    pub(super) fn note_failed_dial(&mut self, now: Instant) {
        self.dial_failed = Some(now);
    }

    /// Returns whether a connection could not be opened a moment ago.
    pub(super) fn has_just_failed(&self, now: Instant) -> bool {
        self.dial_failed.is_some_and(|at| now.saturating_duration_since(at) < DIAL_PAUSE)
    }

    // ---- where UDP is blocked -------------------------------------------------------------------

    /// The far end's UDP ports, for messages about firewalls.
    pub(super) fn udp_ports(&self) -> &[u16] {
        &self.udp_ports
    }

    /// Returns whether it was noted that UDP does not reach the far end.
    pub(super) fn is_noted(&self) -> bool {
        self.blocked.as_ref().is_some_and(UdpBlockNotes::was_noted)
    }

    pub(super) fn note_blocked(&mut self) {
        if let Some(blocked) = &mut self.blocked {
            blocked.note();
        }
    }

    pub(super) fn forget_note(&mut self) {
        if let Some(blocked) = &mut self.blocked {
            blocked.forget();
        }
    }
}

/// Returns whether the first flow is on the channel itself.
pub(super) fn is_channel_from_start(transport: Transport) -> bool {
    matches!(transport, Transport::Channel | Transport::Local)
}

#[cfg(test)]
mod tests {
    use farhaul_words::Code;

    use super::*;

    struct Forbidden;

    impl Dial for Forbidden {
        fn dial(&self) -> Result<FlowSetup, Error> {
            Err(Error::new(Code::Bug, "nobody dials here"))
        }
    }

    fn set(transport: Transport, fallback: CarrierFallback) -> CarrierSet {
        CarrierSet::new(transport, fallback, None, Vec::new())
    }

    #[test]
    fn a_stream_that_carries_everything_has_the_word_of_what_it_is() {
        let udp = set(Transport::Udp, CarrierFallback::None);
        assert_eq!((udp.carrier(), udp.of_stream(4)), (Carrier::Udp, Carrier::Tcp));
        let mut ssh = set(Transport::Channel, CarrierFallback::None);
        ssh.set_channel(0, CarrierFallback::None);
        assert_eq!((ssh.of_stream(0), ssh.of_stream(1)), (Carrier::Channel, Carrier::Tcp));
        assert_eq!((ssh.set(Carrier::Tcp), ssh.set(Carrier::Tcp)), (Some(Carrier::Channel), None));
    }

    #[test]
    fn one_connection_is_dialled_at_a_time_and_not_too_often() {
        let start = Instant::now();
        let mut carriers = set(Transport::Udp, CarrierFallback::Dial(Arc::new(Forbidden)));
        assert!(carriers.can_dial() && carriers.is_dial_due(start) && !carriers.may_get_direct());
        let (dialer, done) = carriers.begin_dial(start).unwrap();
        assert!(!carriers.is_dial_due(start + DIAL_INTERVAL), "the result is not there yet");
        done.send(dialer.dial()).unwrap();
        assert_eq!((carriers.take_dialled().len(), carriers.dialing()), (1, 0));
        carriers.note_failed_dial(start);
        assert!(carriers.has_just_failed(start) && !carriers.has_just_failed(start + DIAL_PAUSE));
        assert!(
            !carriers.is_dial_due(start + DIAL_INTERVAL / 2) && carriers.is_dial_due(start + DIAL_INTERVAL)
        );
        assert!(!carriers.is_better_dial_due(start + DIAL_INTERVAL));
        assert!(carriers.is_better_dial_due(start + DIAL_AGAIN));
    }

    #[test]
    fn who_waits_for_connections_does_not_dial() {
        let (_opened, arrived) = bounded(1);
        let mut carriers = set(Transport::Udp, CarrierFallback::Await(arrived));
        assert!(!carriers.can_dial() && carriers.begin_dial(Instant::now()).is_none());
        assert!(matches!(carriers.take_arrived(), Ok(None)));
    }
}
