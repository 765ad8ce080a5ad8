//! The queueing disciplines of an interface, by rtnetlink.

use std::fs;

use super::Unseen;
use super::netlink::{dump, message};
use super::wire::{Attributes, text, u32_at};

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const TCMSG: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_FQ_FLOW_MAX_RATE: u16 = 7;
const ROOT: u32 = u32::MAX;

/// Returns `root KIND` and a line `child KIND` for each discipline below it; behind fq stands its `maxrate` in
/// bytes a second if it has one.
pub(super) fn of(interface: &str) -> Result<String, Unseen> {
    let index =
        fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")).map_err(|_| Unseen::Absent)?;
    let index: u32 = index.trim().parse().map_err(|_| Unseen::Absent)?;
    dump(None, RTM_GETQDISC, &[0; TCMSG]).map(|messages| lines(&messages, index)).map_err(|_| Unseen::Absent)
}

/// Returns the lines for one interface.
fn lines(mut bytes: &[u8], index: u32) -> String {
    let mut out = String::new();
    while let Some((kind, body)) = message(&mut bytes) {
        if kind != RTM_NEWQDISC || u32_at(body, 4) != Some(index) {
            continue;
        }
        let Some(attributes) = body.get(TCMSG..) else { continue };
        let Some(name) =
            Attributes(attributes).find(|&(kind, _)| kind == TCA_KIND).map(|(_, name)| text(name))
        else {
            continue;
        };
        let place = if u32_at(body, 12) == Some(ROOT) { "root" } else { "child" };
        out.push_str(&format!("{place} {name}"));
        let options =
            Attributes(attributes).find(|&(kind, _)| kind == TCA_OPTIONS).map(|(_, options)| options);
        let rate = options
            .filter(|_| name == "fq")
            .and_then(|options| Attributes(options).find(|&(kind, _)| kind == TCA_FQ_FLOW_MAX_RATE))
            .and_then(|(_, rate)| u32_at(rate, 0))
            .filter(|&rate| rate != u32::MAX);
        if let Some(rate) = rate {
            out.push_str(&format!(" maxrate {rate}"));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::netlink::HEADER;
    use super::*;

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = ((content.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn discipline(index: u32, parent: u32, attributes: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend([0; 4]);
        body.extend(parent.to_ne_bytes());
        body.extend([0; 4]);
        body.extend(attributes);
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(RTM_NEWQDISC.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn the_disciplines_of_one_interface_are_listed_with_the_rate_of_fq() {
        let options = attribute(TCA_FQ_FLOW_MAX_RATE, &250_000_000u32.to_ne_bytes());
        let fq = [attribute(TCA_KIND, b"fq\0"), attribute(TCA_OPTIONS, &options)].concat();
        let bytes = [
            discipline(2, ROOT, &attribute(TCA_KIND, b"mq\0")),
            discipline(2, 0x10001, &fq),
            discipline(3, ROOT, &attribute(TCA_KIND, b"pfifo_fast\0")),
        ]
        .concat();
        assert_eq!(lines(&bytes, 2), "root mq\nchild fq maxrate 250000000\n");
        assert_eq!(lines(&bytes, 3), "root pfifo_fast\n");
    }

    #[test]
    fn bytes_that_are_cut_off_anywhere_are_read_without_a_panic() {
        let bytes = discipline(2, ROOT, &attribute(TCA_KIND, b"mq\0"));
        for end in 0..bytes.len() {
            let _ = lines(&bytes[..end], 2);
        }
    }
}
