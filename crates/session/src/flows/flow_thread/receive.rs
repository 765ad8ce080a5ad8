//! Receives for a flow: opens the datagrams that have come, and tells the transport of them.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farhaul_net::RecvBatch;
use farhaul_proto::{ReceivedPacket, SegmentVerdict, Timestamp};
use farhaul_words::{Error, Misbehaviour};

use super::super::flow_thread::FlowLoop;
use crate::paths::peer_address::{AddressChange, AuthenticPacket};

/// The most datagrams of the listening socket that are taken in a turn.
const FIRST_PER_TURN: usize = 64;

impl FlowLoop {
    /// Takes the datagrams that have come, and returns their number.
    ///
    /// The clock is read after they are taken. If it were read before, and the thread stood still in between,
    /// they would be dated too early, and round trips would seem shorter than the path.
    pub(super) fn receive(&mut self, batch: &mut RecvBatch) -> Result<usize, Error> {
        let started = Instant::now();
        let mut count = 0;
        while count < FIRST_PER_TURN
            && let Some(mut first) = self.thread.peer.receive_first()
        {
            let now = self.thread.shared.now();
            self.handle_datagram(now, &mut first.bytes, Some(&first.from), false)?;
            count += 1;
        }
        let received = self.thread.link.recv(batch).map_err(cannot_receive)?;
        let now = self.thread.shared.now();
        if received == 0 {
            self.drain_events(now)?;
            return Ok(count);
        }
        count += received;
        let received = Instant::now();
        self.meters.receive.add(received - started);
        for datagram in batch.datagrams() {
            self.handle_datagram(now, datagram.bytes, datagram.from, datagram.ecn_ce)?;
        }
        self.drain_events(now)?;
        self.meters.open.add(received.elapsed());
        Ok(count)
    }

    fn handle_datagram(
        &mut self,
        now: Timestamp,
        bytes: &mut [u8],
        from: Option<&SocketAddr>,
        ecn_ce: bool,
    ) -> Result<(), Error> {
        let wire_len = bytes.len() as u32;
        let thread = &mut self.thread;
        let Some(number) = thread.packets.peek(bytes) else {
            return if thread.own.congestion.is_some() { Err(damaged()) } else { Ok(()) };
        };
        if thread.flow.is_replay(number) {
            return Ok(());
        }
        // The result is read where it lies: moving a value that was just written field by field is slow.
        let payload_len = thread.packets.payload_len_ahead(bytes.len());
        let ahead = match payload_len {
            Some(len) => self.incoming.ahead(len),
            None => None,
        };
        let opened = thread.packets.open_to(bytes, ahead);
        let Some(opened) = &opened else {
            // Nothing is lost on a stream, and what is damaged does not come again.
            return if thread.own.congestion.is_some() { Err(damaged()) } else { Ok(()) };
        };
        let authentic = AuthenticPacket { from, number: opened.number, len: wire_len as usize };
        if let Some(from) = from {
            thread.own.peer_ip.get_or_init(|| from.ip());
        }
        if thread.peer.authentic(now, authentic, &mut thread.link) == AddressChange::Connected {
            let _ = thread.link.set_ecn(self.is_marking);
        }
        let segment = opened.segment.as_ref().map(|(segment, _)| segment);
        let received =
            ReceivedPacket { number: opened.number, control: opened.control, segment, wire_len, ecn_ce };
        let verdict = if opened.control.is_empty() {
            thread.flow.handle_content(now, &received).map_err(misbehaved)?
        } else {
            let mut control = thread.shared.control.lock();
            let mut controller = thread.shared.controller(thread.own.path);
            let unacked = control.unacked();
            let verdict = thread.flow.handle_packet(now, &received, &mut control, &mut controller);
            if control.unacked() != unacked {
                thread.shared.control.notify();
            }
            verdict.map_err(misbehaved)?
        };
        thread.own.heard_ms.store(now.as_nanos() / 1_000_000, Ordering::Relaxed);
        if thread.own.refused_ms.load(Ordering::Relaxed) != 0 {
            thread.own.refused_ms.store(0, Ordering::Relaxed);
        }
        if let (SegmentVerdict::Place, Some((segment, payload))) = (verdict, &opened.segment) {
            match opened.is_in_place {
                true => self.incoming.placed(segment),
                false => self.incoming.place(segment, payload)?,
            }
        }
        Ok(())
    }
}

/// A link that fails is a path that is gone; but a stream with invalid data is the far end's doing.
fn cannot_receive(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::InvalidData => Error::misbehaved(Misbehaviour::DamagedCarrier, error.to_string()),
        _ => Error::io("cannot receive")(error),
    }
}

/// Ends the connection; its blocks go by another one.
fn damaged() -> Error {
    Error::io("the stream is damaged")(std::io::ErrorKind::ConnectionAborted.into())
}

fn misbehaved(error: farhaul_proto::Error) -> Error {
    match error {
        farhaul_proto::Error::Misbehaved(how) => Error::misbehaved(how.into(), how.to_string()),
        other => Error::bug(other.to_string()),
    }
}
