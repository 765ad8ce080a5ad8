//! Control messages beside a datagram: on the way out, how to segment it (UDP_SEGMENT); on the way in, how it
//! was merged (UDP_GRO), its ECN bits and the socket's drop count.

use std::net::SocketAddr;

use libc::{c_int, cmsghdr};

const HEADER_LEN: usize = 16;

/// A UDP_SEGMENT control message with its padding.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct SendControl {
    header: cmsghdr,
    gso_size: u16,
    padding: [u8; 6],
}

impl SendControl {
    pub(super) const LEN: usize = 24;

    pub(super) fn segment(gso_size: u16) -> SendControl {
        let header =
            cmsghdr { cmsg_len: HEADER_LEN + 2, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
        SendControl { header, gso_size, padding: [0; 6] }
    }
}

const _: () = assert!(size_of::<SendControl>() == SendControl::LEN);

/// Room for four control messages of 24 bytes: UDP_GRO, IP_TOS or IPV6_TCLASS, SO_RXQ_OVFL, and one more.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct RecvControl([u8; 96]);

/// The metadata of one read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadInfo {
    pub len: usize,
    /// The length of each datagram in it; 0 if it is a single one.
    pub stride: usize,
    pub truncated: bool,
    pub ecn_ce: bool,
    pub from: Option<SocketAddr>,
    /// Reads that the socket has dropped since it was made, if the kernel has said so.
    pub overflows: Option<u32>,
}

impl ReadInfo {
    pub fn datagrams(&self) -> usize {
        if self.stride == 0 { 1 } else { self.len.div_ceil(self.stride) }
    }
}

/// Walks over the control messages that the kernel wrote: plain bytes, so no pointer is followed.
pub(super) fn read_control(control: &RecvControl, len: usize) -> ReadInfo {
    let mut received = ReadInfo::default();
    let mut rest = &control.0[..len.min(control.0.len())];
    while let Some((header, _)) = rest.split_at_checked(HEADER_LEN) {
        let size = usize::from_ne_bytes(header[..8].try_into().expect("8 of 16 bytes"));
        let level = c_int::from_ne_bytes(header[8..12].try_into().expect("4 of 16 bytes"));
        let kind = c_int::from_ne_bytes(header[12..].try_into().expect("4 of 16 bytes"));
        let Some(body) = rest.get(HEADER_LEN..size) else { break };
        let int = body.first_chunk::<4>().map(|bytes| c_int::from_ne_bytes(*bytes));
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                received.stride = int.and_then(|n| n.try_into().ok()).unwrap_or(0)
            }
            // One byte for IPv4, an int for IPv6; the other bits are zero on little- and big-endian machines
            // alike.
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let bits = int.unwrap_or_else(|| body.first().copied().unwrap_or(0).into());
                received.ecn_ce = bits & 3 == 3;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => received.overflows = int.map(|count| count as u32),
            _ => {}
        }
        rest = rest.get(size.next_multiple_of(8)..).unwrap_or(&[]);
    }
    received
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: c_int, kind: c_int, body: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_LEN + body.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn read(bytes: &[u8]) -> ReadInfo {
        let mut control = RecvControl([0; 96]);
        control.0[..bytes.len()].copy_from_slice(bytes);
        read_control(&control, bytes.len())
    }

    #[test]
    fn all_messages_of_a_read_are_understood() {
        let bytes = [
            message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes()),
            message(libc::IPPROTO_IP, libc::IP_TOS, &[3]),
            message(libc::SOL_UDP, libc::UDP_GRO, &1472_i32.to_ne_bytes()),
        ]
        .concat();
        let expected = ReadInfo { stride: 1472, ecn_ce: true, overflows: Some(7), ..ReadInfo::default() };
        assert_eq!(read(&bytes), expected);
        assert!(read(&message(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &3_i32.to_ne_bytes())).ecn_ce);
        assert!(!read(&message(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &2_i32.to_ne_bytes())).ecn_ce);
    }

    #[test]
    fn cut_off_messages_end_the_walk() {
        let bytes = message(libc::SOL_UDP, libc::UDP_GRO, &1472_i32.to_ne_bytes());
        for len in 0..HEADER_LEN + 4 {
            assert_eq!(read(&bytes[..len]), ReadInfo::default());
        }
        let mut endless = bytes.clone();
        endless[..8].copy_from_slice(&0_usize.to_ne_bytes());
        assert_eq!(read(&endless), ReadInfo::default());
    }
}
