//! What only a question to the kernel shows: ethtool's answers, sockets, the clock, the space of file systems.

use std::fmt::Write as _;
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open, statvfs};
use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};

use super::{Unseen, busy, firewall, memory_slots, own_name, processes, qdisc, quota, routes, split, wear};
use crate::host::wire::{text, u64_at};
use crate::sys::{ANSWER_BYTES, Exchange, is_clock_synchronised};

// From linux/ethtool.h.
const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const SCOALESCE: u32 = 0x0f;
const GRINGPARAM: u32 = 0x10;
const SRINGPARAM: u32 = 0x11;
const GPAUSEPARAM: u32 = 0x12;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GPFLAGS: u32 = 0x27;
const GRXFH: u32 = 0x29;
const SRXFH: u32 = 0x2a;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GCHANNELS: u32 = 0x3c;
const SCHANNELS: u32 = 0x3d;
const SET_STATS: u32 = 1;
const SET_PRIVATE: u32 = 2;
const SET_FEATURES: u32 = 4;
const UDP_V4: u32 = 0x02;
const UDP_V6: u32 = 0x06;
/// The letters of ethtool for the fields of a flow hash, with their bits.
const HASH_FIELDS: [(char, u32); 7] =
    [('m', 1 << 1), ('v', 1 << 2), ('t', 1 << 3), ('s', 1 << 4), ('d', 1 << 5), ('f', 1 << 6), ('n', 1 << 7)];
const NAME_BYTES: usize = 32;
const WORDS: usize = 4;
/// Counters of a driver that are worth looking at; a card with 128 queues has thousands.
const COUNTERS_MAX: usize = ANSWER_BYTES / NAME_BYTES / 2;

type Fields = &'static [(&'static str, usize)];
const RINGS: Fields = &[("rx_max", 1), ("tx_max", 4), ("rx", 5), ("tx", 8)];
const CHANNELS: Fields = &[("combined_max", 4), ("rx", 5), ("tx", 6), ("combined", 8)];
const COALESCE: Fields =
    &[("rx_usecs", 1), ("rx_frames", 2), ("tx_usecs", 5), ("adaptive_rx", 10), ("adaptive_tx", 11)];
const PAUSE: Fields = &[("autoneg", 1), ("rx", 2), ("tx", 3)];

/// Answers a question, which is a place without `asked/`.
pub(super) fn answer(question: &str) -> Result<String, Unseen> {
    match question.split('/').collect::<Vec<_>>()[..] {
        ["ethtool", interface, what] => ethtool(interface, what),
        ["qdisc", interface] => qdisc::of(interface),
        ["firewall"] => firewall::rules(),
        ["routes"] => routes::several().map_err(|_| Unseen::Absent),
        ["memory"] => memory_slots::slots(),
        ["busy"] => Ok(busy::cores()),
        ["own-name"] => Ok(own_name::reverse()),
        ["quota"] => Ok(quota::own()),
        ["wear", disk] => wear::of(disk),
        ["processes"] => Ok(processes::running()),
        ["socket"] => Ok(socket()),
        ["user"] => Ok(format!("root {}\n", yes(rustix::process::geteuid().is_root()))),
        ["clock"] => Ok(format!("synchronised {}\n", yes(is_clock_synchronised()))),
        ["space"] => Ok(space()),
        ["directory"] => Ok(directory()),
        _ => Err(Unseen::Absent),
    }
}

/// Changes a setting, which is a place without `asked/`.
pub(super) fn set(question: &str, value: &str) -> io::Result<()> {
    let (file, key) = split(question);
    let key = key.ok_or(io::ErrorKind::Unsupported)?;
    match file.split('/').collect::<Vec<_>>()[..] {
        ["ethtool", interface, "rings"] => set_field(interface, GRINGPARAM, SRINGPARAM, RINGS, key, value),
        ["ethtool", interface, "channels"] => {
            set_field(interface, GCHANNELS, SCHANNELS, CHANNELS, key, value)
        }
        ["ethtool", interface, "coalesce"] => {
            set_field(interface, GCOALESCE, SCOALESCE, COALESCE, key, value)
        }
        ["ethtool", interface, "features"] => set_feature(interface, key, value),
        ["ethtool", interface, "hash"] => set_hash(interface, key, value),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn ethtool(interface: &str, what: &str) -> Result<String, Unseen> {
    let answer = match what {
        "driver" => driver(interface),
        "rings" => fields(interface, GRINGPARAM, RINGS),
        "channels" => fields(interface, GCHANNELS, CHANNELS),
        "coalesce" => fields(interface, GCOALESCE, COALESCE),
        "pause" => fields(interface, GPAUSEPARAM, PAUSE),
        "hash" => hash(interface),
        "features" => features(interface),
        "statistics" => statistics(interface),
        "private" => private_flags(interface),
        _ => return Err(Unseen::Absent),
    };
    answer.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Unseen::Denied,
        _ => Unseen::Absent,
    })
}

fn asked(interface: &str, words: &[u32]) -> io::Result<Exchange> {
    let mut exchange = Exchange::new(words);
    exchange.ask(interface)?;
    Ok(exchange)
}

fn driver(interface: &str) -> io::Result<String> {
    let exchange = asked(interface, &[GDRVINFO])?;
    let field = |offset| text(&exchange.bytes(offset, NAME_BYTES));
    Ok(format!("driver {}\nversion {}\nfirmware {}\n", field(4), field(36), field(68)))
}

fn fields(interface: &str, command: u32, fields: Fields) -> io::Result<String> {
    let exchange = asked(interface, &[command])?;
    Ok(fields.iter().map(|&(name, index)| format!("{name} {}\n", exchange.word(index))).collect())
}

fn set_field(interface: &str, get: u32, set: u32, fields: Fields, key: &str, value: &str) -> io::Result<()> {
    let index = fields.iter().find(|&&(name, _)| name == key).ok_or(io::ErrorKind::InvalidInput)?.1;
    let mut exchange = asked(interface, &[get])?;
    exchange.set_word(0, set);
    exchange.set_word(index, number(value)?);
    exchange.ask(interface)
}

fn number(value: &str) -> io::Result<u32> {
    value.parse().map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn hash(interface: &str) -> io::Result<String> {
    let mut out = String::new();
    for (name, flow) in [("udp4", UDP_V4), ("udp6", UDP_V6)] {
        let exchange = asked(interface, &[GRXFH, flow])?;
        let bits = exchange.word(2);
        let letters: String =
            HASH_FIELDS.iter().filter(|&&(_, bit)| bits & bit != 0).map(|&(letter, _)| letter).collect();
        let _ = writeln!(out, "{name} {}", if letters.is_empty() { "-" } else { &letters });
    }
    Ok(out)
}

fn set_hash(interface: &str, key: &str, value: &str) -> io::Result<()> {
    let flow = match key {
        "udp4" => UDP_V4,
        "udp6" => UDP_V6,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let bit = |letter| HASH_FIELDS.iter().find(|&&(one, _)| one == letter).map_or(0, |&(_, bit)| bit);
    let bits = value.chars().map(bit).fold(0, |all, bit| all | bit);
    asked(interface, &[SRXFH, flow, bits, 0]).map(|_| ())
}

/// Returns the names of a set of strings.
fn names(interface: &str, set: u32) -> io::Result<Vec<String>> {
    let info = asked(interface, &[GSSET_INFO, 0, 1 << set, 0])?;
    let count = if info.word(2) & (1 << set) == 0 { 0 } else { info.word(WORDS) as usize };
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > COUNTERS_MAX {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let strings = asked(interface, &[GSTRINGS, set, count as u32])?;
    let bytes = strings.bytes(12, count * NAME_BYTES);
    Ok(bytes.chunks(NAME_BYTES).map(|name| text(name).trim().replace(' ', "_")).collect())
}

/// A feature's number in the driver's list, whether it is on, and whether it can be changed.
fn feature_bits(exchange: &Exchange, index: usize) -> (bool, bool) {
    let block = 2 + index / 32 * WORDS;
    let bit = 1 << (index % 32);
    let is_active = exchange.word(block + 2) & bit != 0;
    let can_change = exchange.word(block) & bit != 0 && exchange.word(block + 3) & bit == 0;
    (is_active, can_change)
}

fn features(interface: &str) -> io::Result<String> {
    let names = names(interface, SET_FEATURES)?;
    let exchange = asked(interface, &[GFEATURES, names.len().div_ceil(32) as u32])?;
    let mut out = String::new();
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let (is_active, can_change) = feature_bits(&exchange, index);
        let _ = writeln!(
            out,
            "{name} {}{}",
            if is_active { "on" } else { "off" },
            if can_change { "" } else { " fixed" }
        );
    }
    Ok(out)
}

fn set_feature(interface: &str, key: &str, value: &str) -> io::Result<()> {
    let names = names(interface, SET_FEATURES)?;
    let index = names.iter().position(|name| name == key).ok_or(io::ErrorKind::InvalidInput)?;
    let mut exchange = Exchange::new(&[SFEATURES, names.len().div_ceil(32) as u32]);
    let block = 2 + index / 32 * 2;
    exchange.set_word(block, 1 << (index % 32));
    exchange.set_word(block + 1, if value.starts_with("on") { 1 << (index % 32) } else { 0 });
    exchange.ask(interface)
}

/// Returns whether a counter tells of something that was lost, refused or waited for.
fn is_of_interest(name: &str) -> bool {
    ["drop", "discard", "miss", "out_of_buffer", "err", "pause", "no_buff", "empty_rx_ring", "nodesc", "fifo"]
        .iter()
        .any(|part| name.contains(part))
        || name.ends_with("_packets") && name.contains("rx")
}

fn statistics(interface: &str) -> io::Result<String> {
    let names = names(interface, SET_STATS)?;
    let exchange = asked(interface, &[GSTATS, names.len() as u32])?;
    let bytes = exchange.bytes(8, names.len() * 8);
    let mut out = String::new();
    for (index, name) in names.iter().enumerate().filter(|(_, name)| is_of_interest(name)) {
        let _ = writeln!(out, "{name} {}", u64_at(&bytes, index * 8).unwrap_or_default());
    }
    Ok(out)
}

fn private_flags(interface: &str) -> io::Result<String> {
    let names = names(interface, SET_PRIVATE)?;
    let bits = asked(interface, &[GPFLAGS])?.word(1);
    let on = |index: usize| index < 32 && bits & (1 << index) != 0;
    Ok(names
        .iter()
        .enumerate()
        .map(|(index, name)| format!("{name} {}\n", if on(index) { "on" } else { "off" }))
        .collect())
}

/// What a UDP socket gets: the receive buffer that it may have, and segmentation and its reverse in the kernel.
fn socket() -> String {
    const UDP_SEGMENT: libc::c_int = 103;
    const UDP_GRO: libc::c_int = 104;
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::1]:0")) else {
        return String::new();
    };
    let _ = set_socket_recv_buffer_size(&socket, 1 << 30);
    // The kernel doubles what is asked for, for its own accounts.
    let bytes = socket_recv_buffer_size(&socket).map_or(0, |bytes| bytes / 2);
    let segment = crate::sys::has_udp_option(&socket, UDP_SEGMENT);
    let gro = crate::sys::has_udp_option(&socket, UDP_GRO);
    format!("receive_buffer {bytes}\nudp_segment {}\nudp_gro {}\n", yes(segment), yes(gro))
}

/// A line for each mounted file system that holds files of users: its place, bytes and inodes in all and free.
fn space() -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut out = String::new();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(place), Some(kind)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        // Servers of network file systems may not answer, which would hold up everything.
        if !device.starts_with("/dev/") || crate::check::is_network_file_system(kind) {
            continue;
        }
        let Ok(space) = statvfs(place) else { continue };
        let _ = writeln!(
            out,
            "{place} total {} free {} inodes {} inodes_free {}",
            space.f_blocks.saturating_mul(space.f_frsize),
            space.f_bavail.saturating_mul(space.f_frsize),
            space.f_files,
            space.f_favail
        );
    }
    out
}

/// What the current directory offers: whether files in it can be opened past the page cache.
fn directory() -> String {
    let opened = |flags: OFlags| -> rustix::io::Result<OwnedFd> {
        open(".", flags | OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
    };
    // A file system without nameless files, or a directory that cannot be written, tells nothing about O_DIRECT.
    if opened(OFlags::empty()).is_err() {
        return "direct unknown\n".into();
    }
    format!("direct {}\n", yes(opened(OFlags::DIRECT).is_ok()))
}
