//! Routes with several ways, by rtnetlink.

use std::io;

use super::netlink::{dump, message};
use super::wire::Attributes;

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTMSG: usize = 12;
const RTA_MULTIPATH: u16 = 9;
/// The header of one way of several.
const NEXT_HOP: usize = 8;
const FAMILIES: [(u8, &str); 2] = [(2, "ipv4"), (10, "ipv6")];

/// Returns `ipv4 WAYS` or `ipv6 WAYS` for each route that has several.
pub(super) fn several() -> io::Result<String> {
    dump(None, RTM_GETROUTE, &[0; RTMSG]).map(|messages| lines(&messages))
}

fn lines(mut bytes: &[u8]) -> String {
    let mut out = String::new();
    while let Some((kind, body)) = message(&mut bytes) {
        let family = FAMILIES.iter().find(|(family, _)| body.first() == Some(family));
        let (Some((_, name)), Some(attributes), RTM_NEWROUTE) = (family, body.get(RTMSG..), kind) else {
            continue;
        };
        if let Some((_, ways)) = Attributes(attributes).find(|&(kind, _)| kind == RTA_MULTIPATH) {
            let count = count(ways);
            if count > 1 {
                out.push_str(&format!("{name} {count}\n"));
            }
        }
    }
    out
}

fn count(mut ways: &[u8]) -> usize {
    let mut count = 0;
    while let Some(length) =
        ways.get(..2).and_then(|length| Some(u16::from_ne_bytes(length.try_into().ok()?)))
    {
        let length = usize::from(length);
        if length < NEXT_HOP || length > ways.len() {
            break;
        }
        count += 1;
        ways = ways.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::netlink::HEADER;
    use super::*;

    fn route(family: u8, ways: usize) -> Vec<u8> {
        let hops = [&8u16.to_ne_bytes()[..], &[0; 6]].concat().repeat(ways);
        let mut body = vec![family];
        body.resize(RTMSG, 0);
        body.extend(((hops.len() + 4) as u16).to_ne_bytes());
        body.extend(RTA_MULTIPATH.to_ne_bytes());
        body.extend(hops);
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(RTM_NEWROUTE.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn routes_with_several_ways_are_counted() {
        let bytes = [route(2, 2), route(2, 1), route(10, 4)].concat();
        assert_eq!(lines(&bytes), "ipv4 2\nipv6 4\n");
        for end in 0..bytes.len() {
            let _ = lines(&bytes[..end]);
        }
    }
}
