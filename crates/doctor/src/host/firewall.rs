//! Which firewalls look at packets, by nfnetlink: where they look, what they do with a packet that no rule wants, and how
//! many rules there are. The rules themselves are not read.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;

use rustix::net::netlink;

use super::Unseen;
use super::netlink::{dump, message};
use super::wire::Attributes;

/// NFT_MSG_GETCHAIN and NFT_MSG_NEWCHAIN of the subsystem of nftables (linux/netfilter/nf_tables.h).
const GET_CHAIN: u16 = 10 << 8 | 4;
const NEW_CHAIN: u16 = 10 << 8 | 3;
/// A family, a version, and a resource.
const NFGENMSG: usize = 4;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const HOOK_NUMBER: u16 = 1;
/// The families of which packets of IP are: inet, ip, ip6.
const FAMILIES: [u8; 3] = [1, 2, 10];
const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];

/// Returns a line for each chain at a hook: `HOOK accept|drop RULES`, and `iptables TABLE` for each table of the older
/// kind.
pub(super) fn rules() -> Result<String, Unseen> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unseen::Denied);
    }
    let chains = match dump(Some(netlink::NETFILTER), GET_CHAIN, &[0; NFGENMSG]) {
        Ok(messages) => lines(&messages),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(Unseen::Denied),
        // A kernel without nftables.
        Err(_) => String::new(),
    };
    let mut out = chains;
    for names in ["/proc/self/net/ip_tables_names", "/proc/self/net/ip6_tables_names"] {
        for table in fs::read_to_string(names).unwrap_or_default().lines() {
            let _ = writeln!(out, "iptables {table}");
        }
    }
    Ok(out)
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn lines(mut bytes: &[u8]) -> String {
    let mut out = String::new();
    while let Some((kind, body)) = message(&mut bytes) {
        let of_ip = body.first().is_some_and(|family| FAMILIES.contains(family));
        let (true, Some(attributes)) = (kind == NEW_CHAIN && of_ip, body.get(NFGENMSG..)) else { continue };
        let of = |wanted: u16| {
            Attributes(attributes).find(|&(kind, _)| kind == wanted).map(|(_, content)| content)
        };
        // A chain without a hook is called by others.
        let Some(hook) = of(CHAIN_HOOK)
            .and_then(|hook| Attributes(hook).find(|&(kind, _)| kind == HOOK_NUMBER))
            .and_then(|(_, hook)| HOOKS.get(number(hook)? as usize))
        else {
            continue;
        };
        let policy = if of(CHAIN_POLICY).and_then(number) == Some(0) { "drop" } else { "accept" };
        let rules = of(CHAIN_USE).and_then(number).unwrap_or(0);
        let _ = writeln!(out, "{hook} {policy} {rules}");
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

    fn chain(family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = [&[family, 0, 0, 0][..], &attributes.concat()].concat();
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(NEW_CHAIN.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    fn at_hook(hook: u32, policy: u32, rules: u32) -> Vec<Vec<u8>> {
        vec![
            attribute(1, b"filter\0"),
            attribute(CHAIN_HOOK, &attribute(HOOK_NUMBER, &hook.to_be_bytes())),
            attribute(CHAIN_POLICY, &policy.to_be_bytes()),
            attribute(CHAIN_USE, &rules.to_be_bytes()),
        ]
    }

    #[test]
    fn chains_at_hooks_are_listed_with_what_they_do_by_default() {
        let bytes = [
            chain(1, &at_hook(1, 0, 12)),
            chain(2, &at_hook(2, 1, 0)),
            chain(1, &[attribute(1, b"filter\0"), attribute(CHAIN_USE, &3u32.to_be_bytes())]),
            chain(7, &at_hook(1, 0, 1)),
        ]
        .concat();
        assert_eq!(lines(&bytes), "input drop 12\nforward accept 0\n");
    }

    #[test]
    fn bytes_that_are_cut_off_anywhere_are_read_without_a_panic() {
        let bytes = chain(1, &at_hook(1, 0, 12));
        for end in 0..bytes.len() {
            let _ = lines(&bytes[..end]);
        }
    }
}
