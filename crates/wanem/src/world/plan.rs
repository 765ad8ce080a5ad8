//! The plan of a lab, and the addresses in it.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::hosts::LabSide;
use crate::{Error, LinkSettings};

/// The most hosts on one side; their addresses count up from `FIRST`, so there must be room.
const HOSTS_MAX: usize = 64;
const LINKS_MAX: usize = 16;
const FIRST: [u8; 2] = [1, 101];
const ROUTER: u8 = 254;

/// The plan of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabPlan {
    /// The lab's name, for processes that want to change it.
    pub name: Option<String>,
    /// The settings of each link, as in `rtt=100ms,loss=1%`.
    pub links: Vec<String>,
    /// The number of hosts on each side, 1 to 64; all hosts of a side share the links.
    pub hosts: usize,
    /// MTU of the hosts' interfaces, in bytes.
    pub mtu: u32,
    /// The seed that chooses which packets are lost.
    pub seed: u64,
    /// The congestion control of the hosts' TCP; `None` for the system's.
    pub tcp: Option<String>,
}

impl Default for LabPlan {
    fn default() -> LabPlan {
        LabPlan { name: None, links: vec![String::new()], hosts: 1, mtu: 1500, seed: 1, tcp: None }
    }
}

impl LabPlan {
    /// Checks the plan, which only this function does; returns the settings of each link.
    pub fn checked(&self) -> Result<Vec<LinkSettings>, Error> {
        let bounds = [
            ("--hosts", self.hosts as u64, 1, HOSTS_MAX as u64),
            ("the number of links", self.links.len() as u64, 1, LINKS_MAX as u64),
            ("--mtu", u64::from(self.mtu), 1280, 65_535),
        ];
        for (what, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(Error::Usage(format!("{what} is {value}; it can be {least} to {most}")));
            }
        }
        let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if self.name.as_ref().is_some_and(|name| name.is_empty() || name.len() > 40 || !is_plain(name)) {
            return Err(Error::Usage(
                "a lab's name has only letters, digits and '-', and at most 40 characters".into(),
            ));
        }
        let mut links = Vec::new();
        for text in &self.links {
            let mut settings = LinkSettings::default();
            settings.set_all(text)?;
            links.push(settings.judged()?);
        }
        Ok(links)
    }

    pub(crate) fn router_v4(link: usize) -> [u8; 4] {
        [10, 88, link as u8, ROUTER]
    }

    pub(crate) fn router_v6(link: usize) -> [u8; 16] {
        v6(link, ROUTER).octets()
    }

    pub(crate) fn first_address(side: LabSide) -> u8 {
        FIRST[side as usize]
    }
}

/// The address of a host on a link, both counted from 0.
pub fn address_v4(side: LabSide, host: usize, link: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, link as u8, FIRST[side as usize] + host as u8)
}

/// The IPv6 address of a host on a link, both counted from 0.
pub fn address_v6(side: LabSide, host: usize, link: usize) -> Ipv6Addr {
    v6(link, FIRST[side as usize] + host as u8)
}

fn v6(link: usize, last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd88, 0, 0, link as u16, 0, 0, 0, u16::from(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_judged_before_anything_is_made() {
        assert_eq!(LabPlan::default().checked().unwrap(), [LinkSettings::default()]);
        let wrong = [
            LabPlan { hosts: 0, ..LabPlan::default() },
            LabPlan { hosts: 65, ..LabPlan::default() },
            LabPlan { links: vec![], ..LabPlan::default() },
            LabPlan { links: vec!["loss=2".into()], ..LabPlan::default() },
            LabPlan { mtu: 1000, ..LabPlan::default() },
            LabPlan { name: Some("a/b".into()), ..LabPlan::default() },
        ];
        for plan in wrong {
            assert!(matches!(plan.checked(), Err(Error::Usage(_))), "{plan:?}");
        }
    }

    #[test]
    fn addresses_of_all_hosts_differ() {
        assert_eq!(address_v4(LabSide::A, 0, 0).to_string(), "10.88.0.1");
        assert_eq!(address_v6(LabSide::B, 1, 2).to_string(), "fd88:0:0:2::66");
        assert!(usize::from(FIRST[1] - FIRST[0]) >= HOSTS_MAX && usize::from(ROUTER - FIRST[1]) >= HOSTS_MAX);
    }
}
