//! The reports of a flow on itself, a few times a second: its figures, its rate, and what holds it back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_handover::Held as _;
use farhaul_proto::{SEGMENT_OVERHEAD, Timestamp};

use super::super::flow_thread::FlowLoop;
use crate::carriers::congestion::is_good;
use crate::flows::flow_shared::PathTreatment;
use crate::meter::Meter;
use crate::rate::rate_cap::headers;
use crate::rate::rate_cap::headers::TrafficCounts;

/// A TCP connection whose queueing delay is longer than this, and than a quarter of its round trip, fills a
/// queue.
const TCP_QUEUE: Duration = Duration::from_millis(5);
/// The weight of the newest tenth of a second in a stream's rate.
const RATE_SMOOTHING: f64 = 0.2;

impl FlowLoop {
    pub(super) fn publish(&mut self, now: Timestamp) {
        let elapsed = now - self.last_published;
        if elapsed < Duration::from_millis(100) {
            return;
        }
        self.last_published = now;
        if let Some(granted) = self.buffer.short_buffer_bytes(&*self.thread.link, self.is_sender, elapsed) {
            self.thread.own.short_buffer.store(granted, Ordering::Relaxed);
        }
        self.set_marking();
        self.measure_stream(elapsed);
        self.look_at_tcp();
        self.tell_pace();
        self.trace_rate();
        let thread = &self.thread;
        let refused = thread.link.stats().refused;
        if refused != self.refused_seen {
            self.refused_seen = refused;
            // Only the first refusal counts: nothing authentic has come since.
            let now_ms = now.as_nanos() / 1_000_000;
            let _ =
                thread.own.refused_ms.compare_exchange(0, now_ms.max(1), Ordering::AcqRel, Ordering::Relaxed);
        }
        self.publish_figures();
    }

    /// Measures the rate of a stream, as it has no controller that knows it.
    fn measure_stream(&mut self, elapsed: Duration) {
        let acked = self.thread.flow.stats().bytes_acked;
        let rate = (acked - self.acked_before) as f64 / elapsed.as_secs_f64();
        self.stream_rate += RATE_SMOOTHING * (rate - self.stream_rate);
        self.acked_before = acked;
    }

    /// A connection is held back by loss alone if it has resent something, has no queue, and does not use
    /// BBR.
    fn look_at_tcp(&self) {
        let own = &self.thread.own;
        let Some(path) = self.thread.link.tcp_path().filter(|_| self.is_sender) else { return };
        let queue = path.round_trip.saturating_sub(path.round_trip_min);
        let has_queue = queue > TCP_QUEUE.max(path.round_trip_min / 4);
        let is_slow = own.congestion.as_deref().is_some_and(|name| !is_good(name));
        own.is_slowed_by_loss.store(is_slow && path.resent > 0 && !has_queue, Ordering::Relaxed);
    }

    pub(super) fn publish_figures(&self) {
        let stats = self.thread.flow.stats();
        let rtt = self.thread.flow.rtt();
        let on_wire = self.on_wire();
        let mut figures = self.thread.own.figures.lock().whole();
        figures.segments_sent = stats.segments_sent;
        figures.segments_retransmitted = stats.segments_retransmitted;
        figures.segments_proactive = stats.segments_proactive;
        figures.segments_duplicate = stats.segments_duplicate;
        figures.packets_sent = stats.packets_sent;
        figures.packets_lost = stats.packets_lost;
        figures.wire_bytes_sent = stats.bytes_sent;
        figures.in_flight = self.thread.flow.in_flight();
        figures.bytes_moved = if self.is_sender { stats.bytes_acked } else { stats.bytes_received };
        figures.bytes_both_ways = stats.bytes_acked + stats.bytes_received;
        figures.on_wire = on_wire;
        if rtt.samples > 0 {
            figures.rtt_min_us = rtt.min.as_micros() as u64;
            figures.rtt_latest_us = rtt.latest.as_micros() as u64;
            figures.rtt_smoothed_us = rtt.smoothed.as_micros() as u64;
            figures.rtt_sum_us = rtt.sum.as_micros() as u64;
            figures.rtt_samples = rtt.samples;
        }
        figures.treatment = PathTreatment {
            packets_late: stats.packets_lost_spuriously,
            reordering_us: self.thread.flow.reordering().as_micros() as u64,
            packets_overtaken: stats.packets_overtaken,
            packets_marked: stats.packets_marked,
            are_marks_thrown_away: self.marks_are_thrown_away,
            datagram_max: self.thread.flow.datagram_max(),
        };
    }

    /// The bytes that the flow has moved, as caps count them; zero if the session is in no cap.
    fn on_wire(&self) -> TrafficCounts {
        let (flow, link) = (self.thread.flow.stats(), self.thread.link.stats());
        if self.thread.shared.rate_shares.is_none() {
            return TrafficCounts::default();
        }
        let is_ipv6 = self.thread.own.peer_ip.get().is_some_and(|ip| ip.to_canonical().is_ipv6());
        let sent = flow.bytes_sent - flow.unpaced_bytes_sent;
        let paced = sent + flow.bytes_received.saturating_sub(flow.control_bytes_received);
        // The content of all segments that have come, without those that came twice.
        let content = flow
            .bytes_received
            .saturating_sub(flow.control_bytes_received)
            .saturating_sub(flow.segments_received * SEGMENT_OVERHEAD as u64);
        let fresh = flow.segments_received.saturating_sub(flow.segments_duplicate);
        let content = (content as f64 * fresh as f64 / flow.segments_received.max(1) as f64) as u64;
        if !self.thread.own.is_stream {
            let header = headers::of_datagram(is_ipv6);
            let packets = flow.packets_sent - flow.unpaced_packets_sent + flow.segments_received;
            let received = link.bytes_received + header * link.datagrams_received;
            return TrafficCounts {
                ip: link.bytes_sent + header * link.datagrams_sent + received,
                paced,
                paced_ip: paced + header * packets,
                beside_content: received.saturating_sub(content),
            };
        }
        let all = link.bytes_sent + link.bytes_received;
        let ip = match self.thread.link.tcp_path().filter(|path| path.bytes_sent > 0) {
            Some(path) => {
                let segments = path.segments_sent + path.segments_received;
                path.bytes_sent + path.bytes_received + headers::of_segment(is_ipv6) * segments
            }
            None => headers::of_stream(all),
        };
        let of_all = |bytes: u64| (ip as f64 * bytes as f64 / all.max(1) as f64) as u64;
        TrafficCounts {
            ip,
            paced,
            paced_ip: of_all(paced),
            beside_content: of_all(link.bytes_received).saturating_sub(content),
        }
    }

    /// Traces what sets the flow's rate: `FARHAUL_LOG=trace`.
    fn trace_rate(&self) {
        if self.is_sender && tracing::enabled!(tracing::Level::TRACE) {
            let (flow, own) = (&self.thread.flow, &self.thread.own);
            let controller = self.thread.shared.controller(own.path);
            let booked_ms = |meter: &Meter| meter.busy().as_millis() as u64;
            let waits = &self.meters.waits;
            tracing::trace!(
                flow = own.index,
                is_active = own.active.load(Ordering::Relaxed),
                ceiling_ppm = own.ceiling_ppm.load(Ordering::Relaxed),
                bytes_sent = flow.stats().bytes_sent,
                state = controller.state(),
                delivered_mbps = controller.delivery_rate() * 8.0 / 1e6,
                pace_mbps = controller.pacing_rate().map(|rate| rate * 8.0 / 1e6),
                window_bytes = controller.window(),
                rtt_us = flow.rtt().latest.as_micros() as u64,
                rtt_min_us = flow.rtt().min.as_micros() as u64,
                loss = controller.loss(),
                in_flight_bytes = flow.in_flight(),
                backlog_bytes = flow.backlog(),
                seal_ms = booked_ms(&self.meters.seal),
                send_ms = booked_ms(&self.meters.send),
                wait_network_ms = booked_ms(&waits.network),
                wait_content_ms = booked_ms(&waits.content),
                wait_receiver_ms = booked_ms(&waits.receiver),
                "rate"
            );
        }
    }
}
