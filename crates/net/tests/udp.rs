//! The UDP back end on real sockets of this host.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use farhaul_net::{Link, PollFd, RecvBatch, SendBatch, SendStatus, UdpLink, wait};

/// Much longer than any arrival takes: reached only if the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A connected pair.
fn pair(one: &str, other: &str) -> (UdpLink, UdpLink) {
    let mut one = UdpLink::bind(addr(one)).expect("bind");
    let mut other = UdpLink::bind(addr(other)).expect("bind");
    one.set_remote(other.local_addr().unwrap()).expect("connect");
    other.set_remote(one.local_addr().unwrap()).expect("connect");
    (one, other)
}

fn batch(lens: &[usize]) -> SendBatch {
    let mut batch = SendBatch::new(1 << 20);
    for (index, &len) in lens.iter().enumerate() {
        let bytes = batch.datagram(len).expect("room");
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + index * 31) as u8);
    }
    batch
}

fn content(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + index * 31) as u8).collect()
}

fn wait_for(link: &impl Link) {
    let mut fds = Vec::new();
    link.poll_fds(false, &mut fds);
    wait(&mut fds, Some(PATIENCE)).expect("poll");
    assert!(fds.iter().any(PollFd::is_ready), "nothing arrived");
}

fn receive(link: &mut impl Link, count: usize) -> Vec<(Vec<u8>, Option<SocketAddr>)> {
    let mut batch = RecvBatch::new();
    let mut all = Vec::new();
    while all.len() < count {
        if link.recv(&mut batch).expect("recv") == 0 {
            wait_for(link);
        }
        all.extend(batch.datagrams().map(|one| (one.bytes.to_vec(), one.from.copied())));
    }
    all
}

fn assert_arrives(from: &mut UdpLink, to: &mut UdpLink, lens: &[usize]) {
    let mut out = batch(lens);
    assert_eq!(from.send(&mut out).expect("send"), SendStatus::All);
    assert!(!out.has_unsent());
    let seen = receive(to, lens.len());
    assert_eq!(seen.len(), lens.len());
    for (index, (bytes, _)) in seen.iter().enumerate() {
        assert!(*bytes == content(index, lens[index]), "datagram {index} of {}", lens[index]);
    }
}

#[test]
fn batches_arrive_whole_and_in_order_on_both_families() {
    for (one, other) in [("127.0.0.1:0", "127.0.0.2:0"), ("[::1]:0", "[::1]:0")] {
        let (mut one, mut other) = pair(one, other);
        let mut mixed = vec![1472; 200];
        mixed.extend([600, 1200, 1200, 1, 8972, 8972, 30_000, 64_000]);
        assert_arrives(&mut one, &mut other, &mixed);
        assert_arrives(&mut other, &mut one, &[1]);
        let (sent, received) = (one.stats(), other.stats());
        assert_eq!((sent.datagrams_sent, sent.bytes_sent), (208, mixed.iter().sum::<usize>() as u64));
        assert_eq!((received.datagrams_received, received.bytes_received), (208, sent.bytes_sent));
        assert!(sent.sends < 10, "GSO: {} calls", sent.sends);
        assert!(received.receives < 60, "GRO: {} calls", received.receives);
    }
}

#[test]
fn a_dual_stack_socket_speaks_both_and_shows_plain_addresses() {
    let mut dual = UdpLink::bind(addr("[::]:0")).unwrap();
    let port = dual.local_addr().unwrap().port();
    for (local, at) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]")] {
        let mut client = UdpLink::bind(addr(local)).unwrap();
        client.set_remote(addr(&format!("{at}:{port}"))).unwrap();
        assert_arrives(&mut client, &mut dual, &[1200, 1200, 7]);
        assert_eq!(client.send(&mut batch(&[9])).unwrap(), SendStatus::All);
        let from = receive(&mut dual, 1)[0].1;
        assert_eq!(from, client.local_addr(), "the sender, without ::ffff:");

        let mut answer = SendBatch::new(0);
        answer.to(from);
        answer.datagram(3).unwrap().copy_from_slice(b"yes");
        assert_eq!(dual.send(&mut answer).unwrap(), SendStatus::All);
        assert_eq!(receive(&mut client, 1)[0].0, b"yes");
    }
    let mut client = UdpLink::bind(addr("127.0.0.1:0")).unwrap();
    client.set_remote(addr(&format!("127.0.0.1:{port}"))).unwrap();
    dual.set_remote(client.local_addr().unwrap()).unwrap();
    assert_eq!(dual.remote(), client.local_addr());
    let at = dual.socket().local_addr().unwrap();
    assert_eq!(at, addr(&format!("127.0.0.1:{port}")), "the kernel takes it for a socket of IPv4 now");
    dual.set_ecn(true).unwrap();
    assert_arrives(&mut dual, &mut client, &[1472; 50]);
    assert!(dual.path_mtu_hint().unwrap() >= 1500);
}

#[test]
fn a_connected_twin_takes_its_peers_datagrams_from_the_listening_socket() {
    let made_here = |wildcard| UdpLink::bind_listening(addr(wildcard)).unwrap();
    let handed_over = |wildcard| {
        let socket = UdpSocket::bind(addr(wildcard)).unwrap();
        UdpLink::share_listening(&socket).unwrap();
        // Stands for a socket of another user, beside which a socket with SO_REUSEPORT alone may not bind.
        socket2::SockRef::from(&socket).set_reuse_port(false).unwrap();
        socket
    };
    for (wildcard, ip) in [("[::]:0", "127.0.0.1"), ("[::]:0", "[::1]"), ("0.0.0.0:0", "127.0.0.1")] {
        a_twin_stands_beside(made_here(wildcard), ip);
        a_twin_stands_beside(handed_over(wildcard), ip);
    }
}

fn a_twin_stands_beside(listening: UdpSocket, ip: &str) {
    let mut listening = UdpLink::from_socket(listening).unwrap();
    let at = addr(&format!("{ip}:{}", listening.local_addr().unwrap().port()));
    let mut clients: Vec<UdpLink> = (0..4)
        .map(|_| {
            let mut client = UdpLink::bind(SocketAddr::new(at.ip(), 0)).unwrap();
            client.set_remote(at).unwrap();
            client
        })
        .collect();
    let mut twins: Vec<UdpLink> = clients[..3]
        .iter()
        .map(|client| UdpLink::reuseport_connected(at, client.local_addr().unwrap()).unwrap())
        .collect();
    for (client, twin) in clients.iter_mut().zip(&mut twins) {
        assert_arrives(client, twin, &[1472; 100]);
        assert_arrives(twin, client, &[1472; 100]);
    }
    assert_arrives(&mut clients[3], &mut listening, &[1200; 10]);
    assert_eq!(listening.recv(&mut RecvBatch::new()).unwrap(), 0, "nothing else came here");
    drop(twins.remove(0));
    assert_arrives(&mut clients[0], &mut listening, &[1200; 10]);
}

#[test]
fn what_others_sent_before_the_connect_is_dropped() {
    let mut link = UdpLink::bind(addr("127.0.0.1:0")).unwrap();
    let mut peer = UdpLink::bind(addr("127.0.0.1:0")).unwrap();
    let mut stranger = UdpLink::bind(addr("127.0.0.2:0")).unwrap();
    for other in [&mut stranger, &mut peer] {
        other.set_remote(link.local_addr().unwrap()).unwrap();
        assert_eq!(other.send(&mut batch(&[100, 100, 100])).unwrap(), SendStatus::All);
    }
    link.set_remote(peer.local_addr().unwrap()).unwrap();
    let seen = receive(&mut link, 3);
    assert!(seen.iter().all(|(_, from)| *from == peer.local_addr()));
    assert_eq!(link.stats().strays, 3);
    assert_eq!(stranger.send(&mut batch(&[100])).unwrap(), SendStatus::All);
    assert_arrives(&mut peer, &mut link, &[50]);
    assert_eq!(link.stats().strays, 3, "the kernel keeps strangers out now");
}

#[test]
fn a_closed_port_is_counted_and_no_error() {
    let closed = UdpLink::bind(addr("127.0.0.1:0")).unwrap().local_addr().unwrap();
    let mut link = UdpLink::bind(addr("127.0.0.1:0")).unwrap();
    link.set_remote(closed).unwrap();
    assert_eq!(link.send(&mut batch(&[100])).unwrap(), SendStatus::All);
    wait_for(&link);
    assert_eq!(link.recv(&mut RecvBatch::new()).unwrap(), 0);
    assert_eq!(link.stats().refused, 1, "a receive counts it");
    for _ in 0..3 {
        assert_eq!(link.send(&mut batch(&[100; 5])).unwrap(), SendStatus::All);
    }
    let stats = link.stats();
    assert!(stats.refused > 1, "and so does a send: {stats:?}");
    assert_eq!(stats.datagrams_sent, 16, "an old error costs no datagram");
    let mut peer = UdpLink::bind(closed).unwrap();
    while link.recv(&mut RecvBatch::new()).unwrap() > 0 {}
    peer.set_remote(link.local_addr().unwrap()).unwrap();
    assert_arrives(&mut link, &mut peer, &[100; 3]);
}

#[test]
fn a_datagram_that_the_kernel_refuses_is_lost_and_the_rest_goes() {
    let (mut one, mut other) = pair("127.0.0.1:0", "127.0.0.1:0");
    let mut out = batch(&[1200, 1200]);
    out.to(Some(addr("[2001:db8::1]:9")));
    out.datagram(1200).unwrap();
    out.datagram(1200).unwrap();
    out.to(None);
    out.datagram(1200).unwrap().copy_from_slice(&content(2, 1200));
    assert_eq!(one.send(&mut out).unwrap(), SendStatus::All);
    let seen = receive(&mut other, 3);
    assert!(seen.iter().enumerate().all(|(index, (bytes, _))| *bytes == content(index, 1200)));
    assert_eq!((one.stats().send_errors, one.stats().datagrams_sent), (2, 3));
    assert!(one.capabilities().gso_segments_max > 1, "the refusal does not end GSO");
}

#[test]
fn a_socket_that_cannot_do_gso_is_found_out_and_loses_nothing() {
    let (mut one, mut other) = pair("127.0.0.1:0", "127.0.0.1:0");
    set_option(&one, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1); // The kernel only segments datagrams that it may checksum: EINVAL.
    assert_arrives(&mut one, &mut other, &[600]);
    assert!(one.capabilities().gso_segments_max > 1, "one datagram proves nothing");
    assert_arrives(&mut one, &mut other, &[1200; 100]);
    assert_eq!(one.capabilities().gso_segments_max, 1);
    let sends = one.stats().sends;
    assert_arrives(&mut one, &mut other, &[vec![1200; 70], vec![300]].concat());
    assert!(one.stats().sends >= sends + 4, "from now on each datagram goes by itself");
    assert_eq!(one.stats().send_errors, 0);
}

#[test]
fn a_range_gives_its_first_free_port() {
    let ip = Ipv4Addr::new(127, 0, 0, 3).into();
    let taken = UdpLink::bind((ip, 0).into()).unwrap();
    let first = taken.local_addr().unwrap().port();
    let last = first.saturating_add(20);
    let link = UdpLink::bind_in_range(ip, first..=last).unwrap();
    let found = link.local_addr().unwrap().port();
    assert!((first + 1..=last).contains(&found));
    let error = UdpLink::bind_in_range(ip, first..=first).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn congestion_marks_are_seen() {
    for ip in ["127.0.0.1", "[::1]"] {
        let (mut one, mut other) = pair(&format!("{ip}:0"), &format!("{ip}:0"));
        one.set_ecn(true).unwrap();
        let mut seen = RecvBatch::new();
        for (bits, expected) in [(2, false), (3, true)] {
            let (level, name) = match ip {
                "127.0.0.1" => (libc::IPPROTO_IP, libc::IP_TOS),
                _ => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            set_option(&one, level, name, bits);
            assert_eq!(one.send(&mut batch(&[1200, 1200])).unwrap(), SendStatus::All);
            let mut count = 0;
            while count < 2 {
                if other.recv(&mut seen).unwrap() == 0 {
                    wait_for(&other);
                }
                count += seen.len();
                assert!(seen.datagrams().all(|one| one.ecn_ce == expected));
            }
        }
    }
}

fn set_option(link: &UdpLink, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    // SAFETY: `value` is a live int of the length said; the descriptor is open.
    let result =
        unsafe { libc::setsockopt(link.socket().as_raw_fd(), level, name, (&raw const value).cast(), 4) };
    assert_eq!(result, 0);
}

#[test]
fn a_full_receiver_overflows_and_says_so() {
    let (mut one, mut other) = pair("127.0.0.1:0", "127.0.0.1:0");
    let granted = other.capabilities().recv_buffer_bytes;
    assert!(granted > 0);
    for _ in 0..granted / (200 * 1472) * 3 {
        assert_eq!(one.send(&mut batch(&[1472; 200])).unwrap(), SendStatus::All);
    }
    let mut seen = RecvBatch::new();
    while other.recv(&mut seen).unwrap() > 0 {}
    assert_eq!(one.send(&mut batch(&[1472])).unwrap(), SendStatus::All);
    receive(&mut other, 1);
    assert!(other.stats().receive_overflows > 0);
    assert!(other.stats().bytes_received >= granted as u64 / 2, "{granted} granted, {:?}", other.stats());
}
