//! How fast the UDP back end moves datagrams: a sender and a receiver thread, over loopback or between two network
//! namespaces joined by a veth pair (which it makes and removes; needs root).
//!
//! `cargo run --release -p farhaul-net --example raw -- [--veth] [--six] [--no-gso] [--size 1472] [--seconds 3]
//! [--window BYTES] [--batch BYTES] [--touch]`
//!
//! The window keeps the receiver's socket from overflowing, as a transfer's controller does. A core's figure is bits
//! per second of CPU time of the thread (the sender's includes the kernel's receive path up to the other socket). With
//! `--touch` the receiver reads every byte.

use std::error::Error;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farhaul_net::{Link, LinkStats, RecvBatch, SendBatch, Sent, UdpLink, wait};

const NAMES: [&str; 2] = ["fhraw0", "fhraw1"];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Options {
    veth: bool,
    six: bool,
    no_gso: bool,
    touch: bool,
    size: usize,
    seconds: f64,
    window: u64,
    batch: usize,
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        veth: false,
        six: false,
        no_gso: false,
        touch: false,
        size: 0,
        seconds: 3.0,
        window: 2 << 20,
        batch: 0,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--veth" => options.veth = true,
            "--six" => options.six = true,
            "--no-gso" => options.no_gso = true,
            "--touch" => options.touch = true,
            "--size" => options.size = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--window" => options.window = value()?.parse()?,
            "--batch" => options.batch = value()?.parse()?,
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    if options.size == 0 {
        options.size = if options.six { 1452 } else { 1472 };
    }
    Ok(options)
}

fn ip(words: &str) -> Outcome<()> {
    let status = Command::new("ip").args(words.split_whitespace()).status()?;
    if status.success() { Ok(()) } else { Err(format!("`ip {words}` failed").into()) }
}

/// Two namespaces, gone when this goes.
struct Namespaces;

impl Namespaces {
    fn new(mtu: usize) -> Outcome<Namespaces> {
        let made = Namespaces;
        for name in NAMES {
            ip(&format!("netns add {name}"))?;
        }
        ip("link add fhr0 netns fhraw0 type veth peer name fhr1 netns fhraw1")?;
        for (index, name) in NAMES.iter().enumerate() {
            ip(&format!("-n {name} addr add 10.199.0.{}/24 dev fhr{index}", index + 1))?;
            ip(&format!("-n {name} addr add fd99::{}/64 dev fhr{index} nodad", index + 1))?;
            ip(&format!("-n {name} link set fhr{index} mtu {mtu} up"))?;
        }
        Ok(made)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in NAMES {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn enter(veth: bool, index: usize) -> Outcome<()> {
    if veth {
        let file = std::fs::File::open(format!("/run/netns/{}", NAMES[index]))?;
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&file),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )?;
    }
    Ok(())
}

fn address(options: &Options, index: usize) -> SocketAddr {
    let text = match (options.veth, options.six) {
        (true, false) => format!("10.199.0.{}:39001", index + 1),
        (true, true) => format!("[fd99::{}]:39001", index + 1),
        (false, false) => format!("127.0.0.{}:39001", index + 1),
        (false, true) => format!("[::1]:{}", 39001 + index),
    };
    text.parse().expect("an address")
}

fn link(options: &Options, index: usize) -> Outcome<UdpLink> {
    enter(options.veth, index)?;
    let mut link = UdpLink::bind(address(options, index))?;
    link.set_remote(address(options, 1 - index))?;
    Ok(link)
}

/// CPU seconds of the calling thread, user and system.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[derive(Default)]
struct Shared {
    received: AtomicU64,
    done: AtomicBool,
}

struct Side {
    stats: LinkStats,
    wall: f64,
    cpu: f64,
}

fn send(options: &Options, shared: &Shared) -> Outcome<Side> {
    let mut link = link(options, 0)?;
    if options.no_gso {
        link.disable_gso();
    }
    let room = if options.batch > 0 { options.batch } else { link.capabilities().batch_bytes };
    let mut batch = SendBatch::new(room);
    // A fresh link loses everything until neighbours have found each other, which can take a second.
    while shared.received.load(Ordering::Acquire) == 0 {
        batch.clear();
        batch.datagram(1).expect("room for one");
        let _ = link.send(&mut batch)?;
        wait(&mut [], Some(Duration::from_millis(10)))?;
    }
    let before = link.stats();
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut lost = 0;
    let mut heard = (0, Instant::now());
    while start.elapsed().as_secs_f64() < options.seconds {
        let received = shared.received.load(Ordering::Acquire);
        if link.stats().bytes_sent.saturating_sub(received + lost) >= options.window {
            if heard.0 != received {
                heard = (received, Instant::now());
            } else if heard.1.elapsed() > Duration::from_millis(100) {
                // Nothing moves: what is out is lost, or the receiver was kept from its core.
                lost = link.stats().bytes_sent - received;
                heard.1 = Instant::now();
            }
            std::thread::yield_now();
            continue;
        }
        batch.clear();
        while batch.bytes() + options.size <= room {
            let Some(bytes) = batch.datagram(options.size) else { break };
            bytes[0] = 5;
        }
        while link.send(&mut batch)? == Sent::Blocked {
            let mut fds = Vec::new();
            link.poll_fds(true, &mut fds);
            wait(&mut fds, Some(Duration::from_millis(10)))?;
        }
    }
    let mut stats = link.stats();
    stats.datagrams_sent -= before.datagrams_sent;
    stats.bytes_sent -= before.bytes_sent;
    stats.sends -= before.sends;
    let side = Side { stats, wall: start.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu };
    shared.done.store(true, Ordering::Release);
    Ok(side)
}

fn receive(options: &Options, shared: &Shared) -> Outcome<Side> {
    let mut link = link(options, 1)?;
    let mut batch = RecvBatch::new();
    let (mut start, mut cpu) = (Instant::now(), cpu_seconds());
    let (mut fds, mut sum) = (Vec::new(), 0_u64);
    while !shared.done.load(Ordering::Acquire) {
        while link.recv(&mut batch)? > 0 {
            for datagram in batch.datagrams() {
                sum += u64::from(datagram.bytes[0]);
                if options.touch {
                    sum += datagram.bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                }
            }
            if shared.received.swap(link.stats().bytes_received, Ordering::AcqRel) == 0 {
                (start, cpu) = (Instant::now(), cpu_seconds());
            }
        }
        fds.clear();
        link.poll_fds(false, &mut fds);
        wait(&mut fds, Some(Duration::from_millis(10)))?;
    }
    std::hint::black_box(sum);
    Ok(Side { stats: link.stats(), wall: start.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu })
}

fn print(name: &str, side: &Side, datagrams: u64, bytes: u64, calls: u64) {
    let gbit = bytes as f64 * 8e-9;
    println!(
        "{name:8} {:7.2} Gbit/s   {:7.2} Gbit/s per core   {:6.0} ns CPU per datagram   {:5.1} datagrams per call   CPU {:3.0} %",
        gbit / side.wall,
        gbit / side.cpu,
        side.cpu * 1e9 / datagrams.max(1) as f64,
        datagrams as f64 / calls.max(1) as f64,
        100.0 * side.cpu / side.wall,
    );
}

fn main() -> Outcome<()> {
    let options = options()?;
    let mtu = if options.size <= 1472 { 1500 } else { options.size + 48 };
    let _namespaces = if options.veth { Some(Namespaces::new(mtu)?) } else { None };
    let shared = Shared::default();
    let (sent, received) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&options, &shared));
        let sender = scope.spawn(|| {
            let side = send(&options, &shared);
            shared.done.store(true, Ordering::Release);
            side
        });
        (sender.join().expect("the sender runs through"), receiver.join().expect("the receiver runs through"))
    });
    let (sent, received) = (sent?, received?);
    print("sent", &sent, sent.stats.datagrams_sent, sent.stats.bytes_sent, sent.stats.sends);
    let stats = &received.stats;
    print("received", &received, stats.datagrams_received, stats.bytes_received, stats.receives);
    println!(
        "reads dropped by the receiver's socket: {}, sends blocked: {}",
        stats.receive_overflows, sent.stats.blocked
    );
    Ok(())
}
