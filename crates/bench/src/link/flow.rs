//! One flow of a case, on a thread of its own: it meets its other end and sends or receives.
//!
//! Always true: a sender has no more than its window on the way, as far as it has news, and with a rate given sends no
//! faster; without any news it ends after [`SILENCE`].

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farhaul_engine::session::{Packets, Payload};
use farhaul_net::{Link, RecvBatch, SendBatch, Sent, UdpLink, wait};
use farhaul_proto::{HEADER_LEN, Header};

use super::case::{Case, OVERHEAD};
use super::meet::{Badge, Word};
use super::window::Window;
use crate::sealed::packet;
use crate::stopwatch::{Stopwatch, starved_seconds};

/// After so long without news, what is on the way is taken as lost; a flow that never had any ends.
const SILENCE: Duration = Duration::from_secs(1);
/// A receiver tells its news after so many bytes, or when nothing more is waiting.
const NEWS_BYTES: u64 = 128 << 10;
/// How long a receiver waits for late datagrams after the sender has ended.
const LATE: Duration = Duration::from_millis(150);
/// How much a sender that was held up may catch up with.
const CATCH_UP: f64 = 0.01;

/// What a flow has counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) first: Instant,
    pub(super) last: Instant,
    pub(super) cpu_seconds: f64,
    pub(super) starved_seconds: f64,
    pub(super) window_seconds: f64,
    pub(super) overflows: u64,
}

impl Counted {
    fn nothing() -> Counted {
        let now = Instant::now();
        Counted {
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

/// Where a sender stands.
struct Outgoing {
    next: u64,
    /// The number behind the newest that has arrived, or been given up.
    arrived: u64,
    heard: Instant,
    has_news: bool,
    window: Window,
}

pub(super) fn send(
    link: &mut UdpLink,
    badge: &Badge,
    packets: &mut Packets,
    case: &Case,
    stop: &AtomicBool,
) -> io::Result<Counted> {
    let room = link.capabilities().batch_bytes;
    let len = case.datagram_bytes;
    let payload = vec![0x5a; len - OVERHEAD];
    let (mut batch, mut news) = (SendBatch::new(room), RecvBatch::new());
    let mut pace = Pace::new(case.flow_rate());
    let mut counted = Counted::nothing();
    let (watch, starved) = (Stopwatch::start(), starved_seconds());
    let window = match case.rate_bps {
        Some(_) => Window::fixed(len, case.flow_window()),
        None => Window::adapting(len, case.flow_window()),
    };
    let mut out = Outgoing { next: 0, arrived: 0, heard: Instant::now(), has_news: false, window };
    while watch.wall() < case.seconds && !stop.load(Relaxed) {
        hear(link, badge, &mut news, &mut out)?;
        let on_the_way = (out.next - out.arrived) * len as u64;
        let window = out.window.bytes().saturating_sub(on_the_way) / len as u64;
        if window == 0 {
            if out.heard.elapsed() > SILENCE {
                if !out.has_news {
                    break;
                }
                out.arrived = out.next;
                out.heard = Instant::now();
            }
            let waited = Instant::now();
            sleep(link, Duration::from_millis(10), Direction::In)?;
            counted.window_seconds += waited.elapsed().as_secs_f64();
            continue;
        }
        let paced = pace.room(watch.wall()) / len as u64;
        if paced == 0 {
            sleep(link, pace.pause(watch.wall(), len), Direction::In)?;
            continue;
        }
        batch.clear();
        let count = window.min(paced).min((room / len) as u64);
        for _ in 0..count {
            let Some(bytes) = batch.datagram(len) else { break };
            if case.cipher.is_some() {
                let content = Payload::Content(&payload);
                packets.seal(&packet(out.next, 0, payload.len()), &[], content, bytes);
            } else {
                let header = Header { flow_id: badge.flow, number: out.next };
                bytes[..HEADER_LEN].copy_from_slice(&header.encode());
            }
            out.next += 1;
        }
        pace.took(batch.bytes() as u64);
        while link.send(&mut batch)? == Sent::Blocked {
            if stop.load(Relaxed) {
                break;
            }
            sleep(link, Duration::from_millis(10), Direction::Out)?;
        }
    }
    counted.datagrams = out.next;
    counted.bytes = out.next * len as u64;
    counted.last = Instant::now();
    counted.cpu_seconds = watch.cpu();
    counted.starved_seconds = starved_seconds() - starved;
    Ok(counted)
}

fn hear(link: &mut UdpLink, badge: &Badge, news: &mut RecvBatch, out: &mut Outgoing) -> io::Result<()> {
    while link.recv(news)? > 0 {
        for datagram in news.datagrams() {
            if let Some(Word::News { next, count }) = badge.decode(datagram.bytes)
                && (out.arrived..=out.next).contains(&next)
            {
                out.window.on_news(next, count, out.next);
                out.arrived = next;
                out.heard = Instant::now();
                out.has_news = true;
            }
        }
    }
    Ok(())
}

pub(super) fn receive(
    link: &mut UdpLink,
    badge: &Badge,
    packets: &mut Packets,
    case: &Case,
    ending: &AtomicBool,
    stop: &AtomicBool,
) -> io::Result<Counted> {
    let (mut arrived, mut out) = (RecvBatch::new(), SendBatch::new(0));
    let mut counted = Counted::nothing();
    let (mut watch, mut starved) = (Stopwatch::start(), starved_seconds());
    let (mut next, mut told) = (0, 0);
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
                is_called |= matches!(badge.decode(datagram.bytes), Some(Word::Meet { .. }));
                let number = match case.cipher {
                    Some(_) => packets.open(datagram.bytes).map(|opened| opened.number),
                    None => Header::decode(datagram.bytes).map(|header| header.number),
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
                badge.say(link, &mut out, None, Word::Meet { heard: true })?;
            }
            if counted.bytes - told >= news_bytes {
                told = counted.bytes;
                badge.say(link, &mut out, None, Word::News { next, count: counted.datagrams })?;
            }
        }
        if counted.bytes > told {
            told = counted.bytes;
            badge.say(link, &mut out, None, Word::News { next, count: counted.datagrams })?;
        }
        sleep(link, Duration::from_millis(20), Direction::In)?;
    }
    counted.cpu_seconds = watch.cpu();
    counted.starved_seconds = starved_seconds() - starved;
    counted.overflows = link.stats().receive_overflows;
    Ok(counted)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

fn sleep(link: &UdpLink, time: Duration, direction: Direction) -> io::Result<()> {
    let mut fds = Vec::new();
    link.poll_fds(direction == Direction::Out, &mut fds);
    wait(&mut fds, Some(time))
}

/// How many bytes may be sent by when.
#[derive(Debug)]
struct Pace {
    /// Bytes a second; none: as many as will go.
    rate: Option<f64>,
    /// Bytes that the rate had allowed at the time of the last look.
    allowed: f64,
    looked: f64,
}

impl Pace {
    fn new(rate: Option<f64>) -> Pace {
        Pace { rate, allowed: 0.0, looked: 0.0 }
    }

    /// Bytes that may be sent now, `seconds` after the beginning.
    fn room(&mut self, seconds: f64) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        self.allowed = (self.allowed + (seconds - self.looked) * rate).min((rate * CATCH_UP).max(65_536.0));
        self.looked = seconds;
        self.allowed.max(0.0) as u64
    }

    fn took(&mut self, bytes: u64) {
        self.allowed -= bytes as f64;
    }

    /// Until there is room for `len` bytes, and then some, so that datagrams leave in batches.
    fn pause(&self, seconds: f64, len: usize) -> Duration {
        let missing = len as f64 - self.allowed - (seconds - self.looked);
        let seconds = self.rate.map_or(0.0, |rate| missing / rate);
        Duration::from_secs_f64(seconds.clamp(0.0005, 0.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_whatever_the_rhythm() {
        let mut pace = Pace::new(Some(1e6));
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
        let mut pace = Pace::new(Some(1e9));
        assert_eq!(pace.room(100.0), 10_000_000);
        assert_eq!(Pace::new(None).room(0.0), u64::MAX);
        let mut slow = Pace::new(Some(1000.0));
        slow.room(1.0);
        slow.took(1400);
        assert!(slow.pause(1.0, 1472) <= Duration::from_millis(100));
    }
}
