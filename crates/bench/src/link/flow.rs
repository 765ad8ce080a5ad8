//! One flow of a case, on a thread of its own: it meets its other end, and sends or receives.
//!
//! Always true: a sender has at most its window in flight, as far as it has news, and does not exceed a given
//! rate; without any news it sends its first window again and again, and ends after [`SILENCE`].

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farhaul_net::{Link, RecvBatch, SendBatch, SendStatus, UdpLink, wait};
use farhaul_proto::{HEADER_LEN, PacketHeader};
use farhaul_session::{Packets, SegmentPayload};

use super::case::{LinkCase, OVERHEAD};
use super::meeting::{FlowBadge, MeetingMessage};
use super::window::FlowWindow;
use crate::seal::packet;
use crate::stopwatch::{Stopwatch, starved_seconds};

/// After this time without news, datagrams in flight count as lost; a flow that has never had news ends.
const SILENCE: Duration = Duration::from_secs(1);
/// After this time without the first news, the first window is sent again: the other end may have read it
/// while it was still looking for this one, or the path may have lost all of it.
const FIRST_AGAIN: Duration = Duration::from_millis(100);
/// How often a receiver that gets nothing repeats its news: if they were lost, the sender has no window left.
const NEWS_AGAIN: Duration = Duration::from_millis(50);
/// A receiver sends news after this many bytes, or when nothing more is waiting.
const NEWS_BYTES: u64 = 128 << 10;
/// How long a receiver waits for late datagrams after the sender has ended.
const LATE: Duration = Duration::from_millis(150);
/// The seconds of rate that a sender that was held up may make up for.
const CATCH_UP: f64 = 0.01;

/// The counts of a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowTotals {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) first: Instant,
    pub(super) last: Instant,
    pub(super) cpu_seconds: f64,
    pub(super) starved_seconds: f64,
    pub(super) window_seconds: f64,
    pub(super) overflows: u64,
}

impl FlowTotals {
    fn nothing() -> FlowTotals {
        let now = Instant::now();
        FlowTotals {
            datagrams: 0,
            bytes: 0,
            first: now,
            last: now,
            cpu_seconds: 0.0,
            starved_seconds: 0.0,
            window_seconds: 0.0,
            overflows: 0,
        }
    }
}

/// The state of a sender.
struct SendState {
    next: u64,
    /// The number behind the newest datagram that has arrived or was given up.
    arrived: u64,
    /// When news last came, or datagrams were given up.
    heard: Instant,
    has_news: bool,
    window: FlowWindow,
}

impl SendState {
    fn on_the_way(&self) -> u64 {
        self.next - self.arrived
    }

    /// Counts datagrams in flight as lost if there was no news for too long.
    fn give_up(&mut self) {
        let patience = if self.has_news { SILENCE } else { FIRST_AGAIN };
        if self.heard.elapsed() > patience {
            self.arrived = self.next;
            self.heard = Instant::now();
        }
    }

    fn on_feedback(&mut self, next: u64, count: u64) {
        // The first news may be about a window that was given up.
        let is_new = next > self.arrived || !self.has_news;
        if is_new && next <= self.next {
            self.window.on_feedback(next, count, self.next);
            self.arrived = self.arrived.max(next);
            self.heard = Instant::now();
            self.has_news = true;
        }
    }
}

pub(super) fn send(
    link: &mut UdpLink,
    badge: &FlowBadge,
    packets: &mut Packets,
    case: &LinkCase,
    stop: &AtomicBool,
) -> io::Result<FlowTotals> {
    let room = link.capabilities().batch_bytes;
    let len = case.datagram_bytes;
    let payload = vec![0x5a; len - OVERHEAD];
    let (mut batch, mut news) = (SendBatch::new(room), RecvBatch::new());
    let mut pace = BytePacer::new(case.flow_rate());
    let mut counted = FlowTotals::nothing();
    let (watch, starved) = (Stopwatch::start(), starved_seconds());
    let window = match case.rate_bps {
        Some(_) => FlowWindow::fixed(len, case.flow_window()),
        None => FlowWindow::adapting(len, case.flow_window()),
    };
    let mut out = SendState { next: 0, arrived: 0, heard: Instant::now(), has_news: false, window };
    while watch.wall() < case.seconds && !stop.load(Relaxed) {
        hear(link, badge, &mut news, &mut out)?;
        let window = out.window.bytes().saturating_sub(out.on_the_way() * len as u64) / len as u64;
        if window == 0 {
            if !out.has_news && watch.wall() > SILENCE.as_secs_f64() {
                break;
            }
            out.give_up();
            let waited = Instant::now();
            sleep(link, Duration::from_millis(10), FlowRole::In)?;
            counted.window_seconds += waited.elapsed().as_secs_f64();
            continue;
        }
        let paced = pace.room(watch.wall()) / len as u64;
        if paced == 0 {
            sleep(link, pace.pause(watch.wall(), len), FlowRole::In)?;
            continue;
        }
        batch.clear();
        let count = window.min(paced).min((room / len) as u64);
        for _ in 0..count {
            let Some(bytes) = batch.datagram(len) else { break };
            if case.cipher.is_some() {
                let content = SegmentPayload::Content(&payload);
                packets.seal(&packet(out.next, 0, payload.len()), &[], content, bytes);
            } else {
                let header = PacketHeader { flow_id: badge.flow, number: out.next };
                bytes[..HEADER_LEN].copy_from_slice(&header.encode());
            }
            out.next += 1;
        }
        pace.took(batch.bytes() as u64);
        while link.send(&mut batch)? == SendStatus::Blocked {
            if stop.load(Relaxed) {
                break;
            }
            sleep(link, Duration::from_millis(10), FlowRole::Out)?;
        }
    }
    counted.datagrams = out.next;
    counted.bytes = out.next * len as u64;
    counted.last = Instant::now();
    counted.cpu_seconds = watch.cpu();
    counted.starved_seconds = starved_seconds() - starved;
    Ok(counted)
}

fn hear(link: &mut UdpLink, badge: &FlowBadge, news: &mut RecvBatch, out: &mut SendState) -> io::Result<()> {
    while link.recv(news)? > 0 {
        for datagram in news.datagrams() {
            if let Some(MeetingMessage::News { next, count }) = badge.decode(datagram.bytes) {
                out.on_feedback(next, count);
            }
        }
    }
    Ok(())
}

pub(super) fn receive(
    link: &mut UdpLink,
    badge: &FlowBadge,
    packets: &mut Packets,
    case: &LinkCase,
    ending: &AtomicBool,
    stop: &AtomicBool,
) -> io::Result<FlowTotals> {
    let (mut arrived, mut out) = (RecvBatch::new(), SendBatch::new(0));
    let mut counted = FlowTotals::nothing();
    let (mut watch, mut starved) = (Stopwatch::start(), starved_seconds());
    let (mut next, mut told, mut told_at) = (0, 0, Instant::now());
    let news_bytes = NEWS_BYTES.min(case.flow_window() / 4);
    while !stop.load(Relaxed) {
        let quiet = counted.last.elapsed();
        if ending.load(Relaxed) && quiet > LATE {
            break;
        }
        while link.recv(&mut arrived)? > 0 {
            let is_first = counted.datagrams == 0;
            let mut is_called = false;
            for datagram in arrived.datagrams() {
                let bytes = datagram.bytes.len();
                is_called |= matches!(badge.decode(datagram.bytes), Some(MeetingMessage::Meet { .. }));
                let number = match case.cipher {
                    Some(_) => packets.open(datagram.bytes).map(|opened| opened.number),
                    None => PacketHeader::decode(datagram.bytes).map(|header| header.number),
                };
                if let Some(number) = number {
                    next = next.max(number + 1);
                    counted.datagrams += 1;
                    counted.bytes += bytes as u64;
                }
            }
            if counted.datagrams > 0 {
                counted.last = Instant::now();
                if is_first {
                    counted.first = counted.last;
                    (watch, starved) = (Stopwatch::start(), starved_seconds());
                }
            }
            if is_called {
                badge.send(link, &mut out, None, MeetingMessage::Meet { heard: true })?;
            }
            if counted.bytes - told >= news_bytes {
                (told, told_at) = (counted.bytes, Instant::now());
                badge.send(link, &mut out, None, MeetingMessage::News { next, count: counted.datagrams })?;
            }
        }
        if counted.bytes > told || counted.bytes > 0 && told_at.elapsed() > NEWS_AGAIN {
            (told, told_at) = (counted.bytes, Instant::now());
            badge.send(link, &mut out, None, MeetingMessage::News { next, count: counted.datagrams })?;
        }
        sleep(link, Duration::from_millis(20), FlowRole::In)?;
    }
    counted.cpu_seconds = watch.cpu();
    counted.starved_seconds = starved_seconds() - starved;
    counted.overflows = link.stats().receive_overflows;
    Ok(counted)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowRole {
    In,
    Out,
}

fn sleep(link: &UdpLink, time: Duration, direction: FlowRole) -> io::Result<()> {
    let mut fds = Vec::new();
    link.poll_fds(direction == FlowRole::Out, &mut fds);
    wait(&mut fds, Some(time))
}

/// Limits the bytes that may be sent by a certain time.
#[derive(Debug)]
struct BytePacer {
    /// Bytes a second; `None` is unlimited.
    rate: Option<f64>,
    /// The bytes that were allowed at the last call of `room`.
    allowed: f64,
    looked: f64,
}

impl BytePacer {
    fn new(rate: Option<f64>) -> BytePacer {
        BytePacer { rate, allowed: 0.0, looked: 0.0 }
    }

    /// The bytes that may be sent now, `seconds` after the beginning.
    fn room(&mut self, seconds: f64) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        self.allowed = (self.allowed + (seconds - self.looked) * rate).min((rate * CATCH_UP).max(65_536.0));
        self.looked = seconds;
        self.allowed.max(0.0) as u64
    }

    fn took(&mut self, bytes: u64) {
        self.allowed -= bytes as f64;
    }

    /// The time until there is room for `len` bytes, or a little longer, so that datagrams leave in batches.
    fn pause(&self, seconds: f64, len: usize) -> Duration {
        let missing_s =
            self.rate.map_or(0.0, |rate| (len as f64 - self.allowed) / rate) - (seconds - self.looked);
        Duration::from_secs_f64(missing_s.clamp(0.0005, 0.1))
    }
}

#[cfg(test)]
mod tests {
    use farhaul_connect::hello::HelloSecret;

    use super::*;
    use crate::link::LinkSide;
    use crate::seal;

    /// Ends the threads of a test, even if it fails.
    struct EndOnDrop<'a>(&'a AtomicBool);

    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    /// A flow's other end, which answers each datagram as `answer` says.
    fn other_end(
        mut link: UdpLink,
        badge: &FlowBadge,
        stop: &AtomicBool,
        mut answer: impl FnMut(&[u8]) -> Option<MeetingMessage>,
    ) {
        let (mut arrived, mut out) = (RecvBatch::new(), SendBatch::new(0));
        while !stop.load(Relaxed) {
            sleep(&link, Duration::from_millis(5), FlowRole::In).unwrap();
            while link.recv(&mut arrived).unwrap() > 0 {
                let words: Vec<MeetingMessage> =
                    arrived.datagrams().filter_map(|datagram| answer(datagram.bytes)).collect();
                for word in words {
                    badge.send(&mut link, &mut out, None, word).unwrap();
                }
            }
        }
    }

    fn pair() -> (UdpLink, UdpLink) {
        let bind = || UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (mut one, mut two) = (bind(), bind());
        one.set_remote(two.local_addr().unwrap()).unwrap();
        two.set_remote(one.local_addr().unwrap()).unwrap();
        (one, two)
    }

    fn plain(seconds: f64) -> LinkCase {
        LinkCase {
            sender: LinkSide::Near,
            datagram_bytes: 1472,
            cipher: None,
            flows: 1,
            seconds,
            rate_bps: None,
            window_bytes: 1 << 20,
        }
    }

    #[test]
    fn a_first_window_that_nobody_read_is_sent_again() {
        let (mut link, other) = pair();
        let badge = FlowBadge { token: HelloSecret([1; 32]), flow: 0 };
        let (mut packets, _) = seal::ends(&[2; 32], 0, farhaul::options::Cipher::default());
        let stop = AtomicBool::new(false);
        let counted = std::thread::scope(|scope| {
            let (mut count, stop) = (0, &stop);
            let answer = move |bytes: &[u8]| {
                let number = PacketHeader::decode(bytes)?.number;
                stop.fetch_or(count > 100, Relaxed);
                // The other end was still looking for this one when the first sixteen datagrams came.
                (number >= 16).then(|| {
                    count += 1;
                    MeetingMessage::News { next: number + 1, count }
                })
            };
            let badge = &badge;
            scope.spawn(move || other_end(other, badge, stop, answer));
            let _ends = EndOnDrop(stop);
            send(&mut link, badge, &mut packets, &plain(9.0), stop).unwrap()
        });
        assert!(counted.datagrams > 100, "{counted:?}");
    }

    #[test]
    fn news_that_were_lost_are_said_again() {
        let (mut link, mut other) = pair();
        let badge = FlowBadge { token: HelloSecret([1; 32]), flow: 0 };
        let (_, mut packets) = seal::ends(&[2; 32], 0, farhaul::options::Cipher::default());
        let (ending, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let receiver =
                scope.spawn(|| receive(&mut link, &badge, &mut packets, &plain(9.0), &ending, &stop));
            let _ends = EndOnDrop(&stop);
            let mut batch = SendBatch::new(1 << 16);
            let bytes = batch.datagram(1472).unwrap();
            bytes[..HEADER_LEN].copy_from_slice(&PacketHeader { flow_id: 0, number: 4 }.encode());
            assert_eq!(other.send(&mut batch).unwrap(), SendStatus::All);
            let (mut arrived, mut news) = (RecvBatch::new(), Vec::new());
            // A sender that lost the first news must hear the second. If that never comes, this loop runs
            // until the test is ended.
            while news.len() < 2 {
                sleep(&other, Duration::from_millis(100), FlowRole::In).unwrap();
                while other.recv(&mut arrived).unwrap() > 0 {
                    news.extend(arrived.datagrams().filter_map(|datagram| badge.decode(datagram.bytes)));
                }
            }
            assert!(news.iter().all(|&word| word == MeetingMessage::News { next: 5, count: 1 }), "{news:?}");
            ending.store(true, Relaxed);
            assert_eq!(receiver.join().unwrap().unwrap().datagrams, 1);
        });
    }

    #[test]
    fn news_of_a_window_given_up_count_and_old_ones_keep_nobody_waiting() {
        let window = FlowWindow::adapting(1000, 1 << 20);
        let mut out = SendState { next: 32, arrived: 32, heard: Instant::now(), has_news: false, window };
        out.on_feedback(16, 16);
        assert!(out.has_news && out.on_the_way() == 0 && out.window.bytes() == 32_000);
        out.next = 64;
        let heard = out.heard;
        out.on_feedback(32, 20);
        out.on_feedback(65, 21);
        assert_eq!((out.on_the_way(), out.heard), (32, heard));
        out.on_feedback(64, 64);
        assert_eq!(out.on_the_way(), 0);
    }

    #[test]
    fn a_rate_is_kept_whatever_the_rhythm() {
        let mut pace = BytePacer::new(Some(1e6));
        let (mut sent, mut now) = (0, 0.0);
        for step in 0..10_000 {
            now += if step % 7 == 0 { 0.000_9 } else { 0.000_05 };
            let room = pace.room(now);
            pace.took(room / 1472 * 1472);
            sent += room / 1472 * 1472;
        }
        let share = sent as f64 / (now * 1e6);
        assert!((0.98..=1.0).contains(&share), "{share}");
    }

    #[test]
    fn what_was_missed_is_caught_up_with_in_part_only() {
        let mut pace = BytePacer::new(Some(1e9));
        assert_eq!(pace.room(100.0), 10_000_000);
        assert_eq!(BytePacer::new(None).room(0.0), u64::MAX);
        let mut slow = BytePacer::new(Some(1000.0));
        slow.room(1.0);
        slow.took(1400);
        assert!(slow.pause(1.0, 1472) <= Duration::from_millis(100));
    }
}
