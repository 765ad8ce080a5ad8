//! Fault links, which judge each datagram by itself and by the seed; and the in-memory link that tests build
//! on.

use std::collections::BTreeSet;

use farhaul_net::{
    Fault, FaultError, FaultLink, Link, MemoryLink, RecvBatch, SendBatch, SendStatus, UdpLink, memory_pair,
    wait,
};
use proptest::prelude::*;

/// Sends datagrams numbered from `first` and returns the numbers that arrive.
fn pass(from: &mut dyn Link, to: &mut dyn Link, numbers: std::ops::Range<u64>, len: usize) -> BTreeSet<u64> {
    let (mut out, mut arrived) = (SendBatch::new(64_000), RecvBatch::new());
    let mut seen = BTreeSet::new();
    for number in numbers.clone() {
        let bytes = match out.datagram(len) {
            Some(bytes) => bytes,
            None => {
                flush(from, to, &mut out, &mut arrived, &mut seen);
                out.datagram(len).expect("an empty batch has room")
            }
        };
        bytes[..8].copy_from_slice(&number.to_be_bytes());
    }
    flush(from, to, &mut out, &mut arrived, &mut seen);
    seen
}

fn flush(
    from: &mut dyn Link,
    to: &mut dyn Link,
    out: &mut SendBatch,
    arrived: &mut RecvBatch,
    seen: &mut BTreeSet<u64>,
) {
    assert_eq!(from.send(out).unwrap(), SendStatus::All);
    out.clear();
    while to.recv(arrived).unwrap() > 0 {
        for datagram in arrived.datagrams() {
            assert!(seen.insert(u64::from_be_bytes(datagram.bytes[..8].try_into().unwrap())));
        }
    }
}

fn udp_pair() -> (UdpLink, UdpLink) {
    let mut one = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut other = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    one.set_remote(other.local_addr().unwrap()).unwrap();
    other.set_remote(one.local_addr().unwrap()).unwrap();
    (one, other)
}

fn through(fault: &str, udp: bool, count: u64) -> BTreeSet<u64> {
    let fault: Fault = fault.parse().unwrap();
    if udp {
        let (mut one, other) = udp_pair();
        let mut other = FaultLink::new(other, fault);
        let seen = pass(&mut one, &mut other, 0..count, 1200);
        let stats = other.stats();
        assert_eq!(stats.datagrams_received, seen.len() as u64);
        assert_eq!(stats.faults + stats.datagrams_received, count, "the network itself lost none");
        seen
    } else {
        let (mut one, other) = memory_pair().unwrap();
        pass(&mut one, &mut FaultLink::new(other, fault), 0..count, 1200)
    }
}

#[test]
fn what_comes_twice_or_late_is_whole_and_nothing_is_lost() {
    let fault: Fault = "duplicate=0.2,reorder=0.3,seed=4".parse().unwrap();
    let (mut one, other) = udp_pair();
    let mut other = FaultLink::new(other, fault);
    let (mut out, mut arrived) = (SendBatch::new(64_000), RecvBatch::new());
    let mut came = Vec::new();
    for round in 0..20_u8 {
        for number in 0..20 {
            out.datagram(1000).unwrap().fill(round * 10 + number % 10);
        }
        assert_eq!(one.send(&mut out).unwrap(), SendStatus::All);
        out.clear();
        while other.recv(&mut arrived).unwrap() > 0 {
            for datagram in arrived.datagrams() {
                assert!(
                    datagram.bytes.len() == 1000
                        && datagram.bytes.iter().all(|byte| *byte == datagram.bytes[0])
                );
                came.push(datagram.bytes[0]);
                datagram.bytes.fill(255);
            }
        }
    }
    assert!(came.len() > 400 + 40 && !came.is_sorted(), "{} came", came.len());
    let mut counts = std::collections::BTreeMap::new();
    came.iter().for_each(|byte| *counts.entry(*byte).or_insert(0) += 1);
    assert!(counts.values().all(|count| *count >= 2), "two of each were sent: {counts:?}");
    assert_eq!(other.stats().datagrams_received, 400);
}

#[test]
fn the_share_is_right_and_single_datagrams_of_a_merged_read_are_hit() {
    let count = 50_000;
    for loss in [0.01, 0.1, 0.3] {
        let seen = through(&format!("loss={loss},seed=42"), false, count);
        let lost = count - seen.len() as u64;
        let deviation = (count as f64 * loss * (1.0 - loss)).sqrt();
        assert!((lost as f64 - count as f64 * loss).abs() < 4.0 * deviation, "{lost} at {loss}");
        // Losses are independent: of the packets after a lost one, the same share is lost.
        let pairs = (1..count).filter(|n| !seen.contains(n) && !seen.contains(&(n - 1))).count() as f64;
        let expected = count as f64 * loss * loss;
        assert!(
            (pairs - expected).abs() < 5.0 * expected.sqrt() + 5.0,
            "{pairs} pairs at {loss}, not {expected}"
        );
    }
}

#[test]
fn the_same_seed_drops_the_same_over_any_link_and_any_batches() {
    let over_udp = through("loss=0.2,seed=7", true, 5_000);
    assert_eq!(over_udp, through("loss=0.2,seed=7", false, 5_000));
    assert_ne!(over_udp, through("loss=0.2,seed=8", false, 5_000));
    assert_ne!(over_udp, through("loss=0.2", false, 5_000));
    assert_eq!(through("", true, 1_000).len(), 1_000);
    assert!(through("loss=1", false, 1_000).is_empty());
}

#[test]
fn long_datagrams_vanish_in_a_black_hole() {
    let (mut one, other) = memory_pair().unwrap();
    let mut other = FaultLink::new(Box::new(other) as Box<dyn Link>, "max_len=1200".parse().unwrap());
    assert_eq!(pass(&mut one, &mut other, 0..100, 1200).len(), 100);
    assert_eq!(pass(&mut one, &mut other, 0..100, 1201).len(), 0);
    assert_eq!(other.stats().faults, 100);
    assert_eq!(other.stats().bytes_received, 100 * 1200);
}

#[test]
fn a_damaged_datagram_differs_in_one_bit() {
    let (mut one, other) = memory_pair().unwrap();
    let mut other = FaultLink::new(other, "damage=0.1,reorder=0.2,seed=3".parse().unwrap());
    let (mut out, mut arrived) = (SendBatch::new(64_000), RecvBatch::new());
    let mut bits = std::collections::BTreeMap::new();
    for _ in 0..100 {
        for _ in 0..20 {
            out.datagram(1000).unwrap().fill(0);
        }
        assert_eq!(one.send(&mut out).unwrap(), SendStatus::All);
        out.clear();
        while other.recv(&mut arrived).unwrap() > 0 {
            for datagram in arrived.datagrams() {
                *bits.entry(datagram.bytes.iter().map(|byte| byte.count_ones()).sum::<u32>()).or_insert(0) +=
                    1;
            }
        }
    }
    assert_eq!(bits.keys().copied().collect::<Vec<_>>(), [0, 1], "{bits:?}");
    assert!((150..250).contains(&bits[&1]) && bits[&0] + bits[&1] == 2000, "{bits:?}");
    let late = other.stats().faults - bits[&1];
    assert!((300..500).contains(&late), "{late} came late, damaged or not");
}

#[test]
fn a_cut_is_for_ever_on_its_side_only() {
    let (one, other) = memory_pair().unwrap();
    let mut one = FaultLink::new(one, "cut_send=2000".parse().unwrap());
    let mut other = FaultLink::new(other, "cut_after=130".parse().unwrap());
    assert_eq!(pass(&mut one, &mut other, 0..200, 1200), (0..130).collect());
    assert_eq!(pass(&mut one, &mut other, 200..300, 1200).len(), 0);
    assert_eq!(pass(&mut other, &mut one, 0..200, 1200).len(), 200, "the way back still works");
    assert!(one.stats().datagrams_sent < 2000);
    pass(&mut one, &mut other, 0..3000, 1200);
    let sent = one.stats().datagrams_sent;
    assert!((2000..2100).contains(&sent), "cut at the end of a batch, not {sent}");
    assert_eq!(one.stats().faults, 3300 - sent);
    assert_eq!(
        one.stats().datagrams_received,
        200,
        "the cut of what is sent does not affect what is received"
    );
}

#[test]
fn descriptions_are_read_or_refused() {
    let fault: Fault = " loss=0.1, seed=7,max_len=1200,cut_after=10000,cut_send=20000,".parse().unwrap();
    let expected = Fault {
        loss: 0.1,
        seed: 7,
        max_len: Some(1200),
        cut_after: Some(10_000),
        cut_send: Some(20_000),
        ..Fault::default()
    };
    assert_eq!(fault, expected);
    for text in
        ["loss=2", "loss=-0.1", "loss=NaN", "loss=", "loss", "seed=-1", "max_len=1e3", "cut_after=1=2"]
    {
        assert!(matches!(text.parse::<Fault>(), Err(FaultError::Value { .. })), "{text}");
    }
    assert_eq!("delay=3".parse::<Fault>(), Err(FaultError::Unknown("delay".into())));
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[a-z_=,.0-9 -]{0,40}|\\PC{0,40}|((loss|seed|max_len|cut_after|cut_send)=[0-9.e-]{0,6},?){0,4}") {
        if let Ok(fault) = text.parse::<Fault>() {
            prop_assert!((0.0..=1.0).contains(&fault.loss));
        }
    }

    #[test]
    fn what_is_written_is_read(loss in 0.0..=1.0_f64, seed: u64, max_len: usize, cut: u64) {
        let fault: Fault = format!("cut_send={cut},loss={loss},seed={seed},max_len={max_len}").parse().unwrap();
        prop_assert_eq!(fault, Fault { loss, seed, max_len: Some(max_len), cut_send: Some(cut), ..Fault::default() });
    }
}

fn memory() -> (MemoryLink, MemoryLink) {
    memory_pair().unwrap()
}

#[test]
fn memory_wakes_the_other_thread() {
    let (mut one, mut other) = memory();
    let thread = std::thread::spawn(move || {
        let (mut fds, mut arrived, mut count) = (Vec::new(), RecvBatch::new(), 0);
        while count < 5_000 {
            match other.recv(&mut arrived).unwrap() {
                0 => {
                    fds.clear();
                    other.poll_fds(false, &mut fds);
                    wait(&mut fds, None).unwrap();
                }
                arrived => count += arrived,
            }
        }
        count
    });
    let mut out = SendBatch::new(64_000);
    for _ in 0..100 {
        out.clear();
        (0..50).for_each(|_| out.datagram(500).unwrap().fill(3));
        assert_eq!(one.send(&mut out).unwrap(), SendStatus::All);
    }
    assert_eq!(thread.join().unwrap(), 5_000);
}

#[test]
fn memory_is_bounded_and_drops_like_a_socket() {
    let (mut one, mut other) = memory();
    let mut out = SendBatch::new(64_000);
    for _ in 0..200 {
        out.clear();
        while out.datagram(60_000).is_some() {}
        assert_eq!(one.send(&mut out).unwrap(), SendStatus::All);
    }
    let mut arrived = RecvBatch::new();
    let mut bytes = 0;
    while other.recv(&mut arrived).unwrap() > 0 {
        bytes += arrived.datagrams().map(|one| one.bytes.len()).sum::<usize>();
    }
    assert!(bytes <= other.capabilities().recv_buffer_bytes);
    assert_eq!(other.stats().receive_overflows, 200 - bytes as u64 / 60_000);
}
