//! The answer to a packet that is too long for the path: ICMP "fragmentation needed" (RFC 1191), ICMPv6
//! "packet too big" (RFC 4443).

use super::checksum::{add, fold, pseudo, write_ipv4};
use super::{FrameLayout, HEADERS_MAX, VNET_LEN};

/// The most bytes of the offending packet that are sent back: enough for the ports and sequence number behind
/// any headers.
const QUOTE_MAX: usize = 512;
const PROTOCOL_ICMPV6: u8 = 58;

/// Makes the frame that tells the sender of `frame` that only `mtu` bytes fit. It comes from the addresses in
/// `router`. `None` if the packet may be fragmented, which this link does not do, or is itself ICMPv6.
pub(crate) fn too_big(frame: &[u8], layout: &FrameLayout, mtu: u32, router: &Router) -> Option<Vec<u8>> {
    // The quoted packet is the first wire packet, as a router would have seen it.
    let mut headers = [0; HEADERS_MAX];
    let run = layout.run(0, 1, false);
    let headers_len = layout.write_headers(frame, run, &mut headers);
    let payload = &frame[layout.payload(0, 1)];
    let mut quote = headers[VNET_LEN..headers_len].to_vec();
    quote.extend_from_slice(&payload[..payload.len().min(QUOTE_MAX.saturating_sub(quote.len()))]);
    let packet =
        if quote[0] >> 4 == 4 { answer_v4(&quote, mtu, router)? } else { answer_v6(&quote, mtu, router)? };
    let mut made = vec![0; VNET_LEN];
    made.extend_from_slice(&packet);
    Some(made)
}

/// The addresses of the router that a link pretends to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Router {
    pub v4: [u8; 4],
    pub v6: [u8; 16],
}

fn answer_v4(quote: &[u8], mtu: u32, router: &Router) -> Option<Vec<u8>> {
    let dont_fragment = quote[6] & 0x40 != 0;
    if !dont_fragment {
        return None;
    }
    let len = 20 + 8 + quote.len();
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = 1;
    packet[12..16].copy_from_slice(&router.v4);
    packet[16..20].copy_from_slice(&quote[12..16]);
    write_ipv4(&mut packet[..20]);
    packet[20..22].copy_from_slice(&[3, 4]);
    packet[26..28].copy_from_slice(&(mtu as u16).to_be_bytes());
    packet.extend_from_slice(quote);
    let sum = !fold(add(0, &packet[20..]));
    packet[22..24].copy_from_slice(&sum.to_be_bytes());
    Some(packet)
}

fn answer_v6(quote: &[u8], mtu: u32, router: &Router) -> Option<Vec<u8>> {
    if quote[6] == PROTOCOL_ICMPV6 {
        return None;
    }
    let len = 8 + quote.len();
    let mut packet = vec![0; 48];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6] = PROTOCOL_ICMPV6;
    packet[7] = 64;
    packet[8..24].copy_from_slice(&router.v6);
    packet[24..40].copy_from_slice(&quote[8..24]);
    packet[40] = 2;
    // No IPv6 link may have an MTU below 1280 (RFC 8200 section 5); a smaller value would be ignored.
    packet[44..48].copy_from_slice(&mtu.max(1280).to_be_bytes());
    packet.extend_from_slice(quote);
    let sum = !fold(add(pseudo(&packet, PROTOCOL_ICMPV6, len), &packet[40..]));
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    Some(packet)
}
