//! Compares splitting with the naive way, which cuts a super-packet into its wire packets one by one.

use proptest::prelude::*;

use super::checksum::{add, fold, pseudo, write_ipv4};
use super::*;

/// A super-packet as Linux hands it over.
fn frame(kind: FrameKind, v6: bool, gso_size: usize, payload_len: usize, tcp_options: usize) -> Vec<u8> {
    let transport_at = if v6 { 40 } else { 20 };
    let transport_len = if kind == FrameKind::Tcp { 20 + tcp_options } else { 8 };
    let mut packet = vec![0; transport_at + transport_len];
    let len = packet.len() + payload_len;
    if v6 {
        packet[0] = 0x60;
        packet[1] = 0x20; // ECT(0)
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        packet[6] = if kind == FrameKind::Tcp { 6 } else { 17 };
        packet[7] = 64;
        packet[8..24].copy_from_slice(&[0xfd, 0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet[24..40].copy_from_slice(&[0xfd, 0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 101]);
    } else {
        packet[0] = 0x45;
        packet[1] = 0x02;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&0xfff0_u16.to_be_bytes());
        packet[6] = 0x40;
        packet[8] = 64;
        packet[9] = if kind == FrameKind::Tcp { 6 } else { 17 };
        packet[12..20].copy_from_slice(&[10, 88, 0, 1, 10, 88, 0, 101]);
        write_ipv4(&mut packet[..20]);
    }
    let transport = &mut packet[transport_at..];
    transport[0..4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    if kind == FrameKind::Tcp {
        transport[4..8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
        transport[12] = ((20 + tcp_options) as u8 / 4) << 4;
        transport[13] = 0x10 | 0x80 | 0x09;
    } else {
        transport[4..6].copy_from_slice(&((8 + payload_len) as u16).to_be_bytes());
    }
    packet.extend((0..payload_len).map(|index| (index * 7 + index / 251) as u8));
    let mut frame = vec![0; VNET_LEN];
    frame[0] = NEEDS_CSUM;
    frame[1] = match (kind, v6) {
        (FrameKind::Single, _) => GSO_NONE,
        (FrameKind::Tcp, false) => GSO_TCPV4,
        (FrameKind::Tcp, true) => GSO_TCPV6,
        (FrameKind::Udp, _) => GSO_UDP_L4,
    };
    frame[4..6].copy_from_slice(&(gso_size as u16).to_ne_bytes());
    frame[6..8].copy_from_slice(&(transport_at as u16).to_ne_bytes());
    let checksum_at: u16 = if kind == FrameKind::Tcp { 16 } else { 6 };
    frame[8..10].copy_from_slice(&checksum_at.to_ne_bytes());
    frame.extend_from_slice(&packet);
    frame
}

/// The frame of a run, as it is written to the device.
fn hand_over(frame: &[u8], layout: &FrameLayout, first: usize, count: usize) -> Vec<u8> {
    let mut headers = [0; HEADERS_MAX];
    let len = layout.write_headers(frame, layout.run(first, count, false), &mut headers);
    [&headers[..len], &frame[layout.payload(first, count)]].concat()
}

/// Cuts a frame into its wire packets (without vnet headers, with complete checksums), in the simplest way.
fn segment(frame: &[u8]) -> Vec<Vec<u8>> {
    let layout = FrameLayout::read(frame).expect("a sound frame");
    let packet = &frame[VNET_LEN..];
    let payloads: Vec<&[u8]> = packet[layout.payload_at..].chunks(layout.gso_size).collect();
    let mut made = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        let mut one = packet[..layout.payload_at].to_vec();
        one.extend_from_slice(payload);
        let len = one.len();
        let protocol = if layout.kind == FrameKind::Tcp { 6 } else { 17 };
        if one[0] >> 4 == 4 {
            one[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            let id = u16::from_be_bytes([one[4], one[5]]).wrapping_add(index as u16);
            one[4..6].copy_from_slice(&id.to_be_bytes());
            write_ipv4(&mut one[..20]);
        } else {
            one[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        }
        let at = layout.transport_at;
        let checksum_at = if protocol == 6 {
            let sequence = u32::from_be_bytes(one[at + 4..at + 8].try_into().unwrap());
            let sequence = sequence.wrapping_add((index * layout.gso_size) as u32);
            one[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            if index + 1 < payloads.len() {
                one[at + 13] &= !0x09;
            }
            if index > 0 {
                one[at + 13] &= !0x80;
            }
            at + 16
        } else {
            let udp_len = (len - at) as u16;
            one[at + 4..at + 6].copy_from_slice(&udp_len.to_be_bytes());
            at + 6
        };
        one[checksum_at..checksum_at + 2].fill(0);
        let sum = !fold(add(pseudo(&one, protocol, len - at), &one[at..]));
        one[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        made.push(one);
    }
    made
}

/// Completes the partial checksum of a frame with one packet.
fn complete(frame: &[u8]) -> Vec<u8> {
    let mut whole = frame.to_vec();
    corrupt(&mut whole);
    *whole.last_mut().unwrap() ^= 0x10;
    whole.split_off(VNET_LEN)
}

proptest! {
    /// However a super-packet is cut into runs, the runs carry the wire packets that naive segmentation
    /// gives, with correct checksums, each as a sound frame of its own.
    #[test]
    fn runs_carry_what_naive_segmentation_gives(
        tcp: bool,
        v6: bool,
        gso_size in 1_usize..1460,
        payload_len in 1_usize..20_000,
        options in 0_usize..4,
        cuts in prop::collection::vec(1_usize..12, 1..40),
    ) {
        let kind = if tcp { FrameKind::Tcp } else { FrameKind::Udp };
        let super_packet = frame(kind, v6, gso_size, payload_len, options * 4);
        let layout = FrameLayout::read(&super_packet).unwrap();
        let expected = segment(&super_packet);
        prop_assert_eq!(layout.count(), expected.len());
        let mut first = 0;
        for cut in cuts.iter().cycle() {
            if first == expected.len() {
                break;
            }
            let count = (*cut).min(expected.len() - first);
            let handed = hand_over(&super_packet, &layout, first, count);
            let packets = if count == 1 { vec![complete(&handed)] } else { segment(&handed) };
            prop_assert_eq!(&packets[..], &expected[first..first + count]);
            first += count;
        }
    }

    /// No input makes the reader panic.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(layout) = FrameLayout::read(&bytes) {
            let mut headers = [0; HEADERS_MAX];
            layout.write_headers(&bytes, layout.run(0, 1, true), &mut headers);
        }
        let _ = destination(&bytes);
    }
}

#[test]
fn a_train_has_the_wire_lengths() {
    let layout = FrameLayout::read(&frame(FrameKind::Tcp, false, 1448, 10_000, 12)).unwrap();
    let expected =
        PacketTrain { count: 7, packet_len: 1500, last_len: 52 + 10_000 - 6 * 1448, ecn: Ecn::Capable };
    assert_eq!(layout.train(), expected);
    let single = FrameLayout::read(&frame(FrameKind::Single, true, 0, 100, 0)).unwrap();
    assert_eq!((single.train().count, single.train().last_len), (1, 148));
}

#[test]
fn udp_survivors_join_into_one_frame_without_the_lost() {
    let super_packet = frame(FrameKind::Udp, false, 1000, 4500, 0);
    let layout = FrameLayout::read(&super_packet).unwrap();
    // The second and the fourth are lost; the last is shorter.
    let run = PacketRun { first: 0, count: 3, payload_len: 2500, has_last: true, marked: false };
    let mut headers = [0; HEADERS_MAX];
    let len = layout.write_headers(&super_packet, run, &mut headers);
    let parts = [0, 2, 4].map(|index| &super_packet[layout.payload(index, 1)]);
    let joined = [&headers[..len], parts[0], parts[1], parts[2]].concat();
    let (expected, got) = (segment(&super_packet), segment(&joined));
    assert_eq!(got.len(), 3);
    for (index, packet) in [0, 2, 4].into_iter().zip(&got) {
        assert_eq!(packet[28..], expected[index][28..], "{index}");
        assert_eq!(packet[24..28], expected[index][24..28], "UDP length and checksum of {index}");
    }
}

#[test]
fn marking_sets_congestion_experienced() {
    for v6 in [false, true] {
        let super_packet = frame(FrameKind::Tcp, v6, 1000, 3000, 0);
        let layout = FrameLayout::read(&super_packet).unwrap();
        let mut headers = [0; HEADERS_MAX];
        layout.write_headers(&super_packet, layout.run(1, 1, true), &mut headers);
        let bits = if v6 { (headers[VNET_LEN + 1] >> 4) & 3 } else { headers[VNET_LEN + 1] & 3 };
        assert_eq!(bits, 3);
    }
}

#[test]
fn a_corrupt_packet_fails_its_checksum() {
    let mut single = frame(FrameKind::Single, false, 0, 99, 0);
    let pseudo_sum = fold(pseudo(&single[VNET_LEN..], 17, 107));
    single[VNET_LEN + 26..VNET_LEN + 28].copy_from_slice(&pseudo_sum.to_be_bytes());
    corrupt(&mut single);
    let packet = &single[VNET_LEN..];
    assert_eq!(single[..VNET_LEN], [0; VNET_LEN]);
    assert_ne!(fold(add(pseudo(packet, 17, 107), &packet[20..])), 0xffff);
}

#[test]
fn the_answer_to_a_long_packet_quotes_it_with_sound_checksums() {
    let router = Router { v4: [10, 88, 0, 254], v6: [0xfd; 16] };
    for v6 in [false, true] {
        let super_packet = frame(FrameKind::Udp, v6, 1400, 5000, 0);
        let layout = FrameLayout::read(&super_packet).unwrap();
        let answer = too_big(&super_packet, &layout, 1300, &router).unwrap();
        let packet = &answer[VNET_LEN..];
        if v6 {
            assert_eq!(packet[40..42], [2, 0]);
            assert_eq!(packet[44..48], 1300_u32.to_be_bytes());
            assert_eq!(fold(add(pseudo(packet, 58, packet.len() - 40), &packet[40..])), 0xffff);
            assert_eq!(packet[48..][24..40], super_packet[VNET_LEN + 24..VNET_LEN + 40]);
        } else {
            assert_eq!(packet[20..22], [3, 4]);
            assert_eq!(packet[26..28], 1300_u16.to_be_bytes());
            assert_eq!(fold(add(0, &packet[20..])), 0xffff);
            assert_eq!(fold(add(0, &packet[..20])), 0xffff);
        }
    }
    let mut fragmentable = frame(FrameKind::Udp, false, 1400, 5000, 0);
    fragmentable[VNET_LEN + 6] = 0;
    let layout = FrameLayout::read(&fragmentable).unwrap();
    assert!(too_big(&fragmentable, &layout, 1300, &router).is_none());
}

#[test]
fn destinations_are_hosts_and_no_groups() {
    assert_eq!(destination(&frame(FrameKind::Udp, false, 10, 20, 0)), Some(101));
    assert_eq!(destination(&frame(FrameKind::Udp, true, 10, 20, 0)), Some(101));
    let mut multicast = frame(FrameKind::Single, true, 0, 20, 0);
    multicast[VNET_LEN + 24] = 0xff;
    assert_eq!(destination(&multicast), None);
    assert_eq!(destination(&[]), None);
}
