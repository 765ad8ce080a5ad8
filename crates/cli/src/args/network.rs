//! The options on how data travel, which all verbs have that move some.

use clap::Args as Group;
use farhaul::options::{Cipher, NetworkOptions, Policy};

use super::TRANSFER;
use crate::{test_hooks, values};

/// Options of the network that a copy and a look at files have in common.
#[derive(Group, Debug, Default)]
pub struct NetworkArgs {
    /// Highest rate in bits a second, such as 800M or 2G
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = TRANSFER)]
    pub rate: Option<u64>,
    /// How the rate is set: fair takes one share of the path, high about two, low only what others leave;
    /// fixed sends at --rate whatever happens
    #[arg(long, value_name = "POLICY", default_value = "fair", help_heading = TRANSFER,
          value_parser = values::choice::<Policy>(&["fixed", "high", "fair", "low"]))]
    pub policy: Policy,
    /// Cipher of the data; none sends file contents unencrypted, which a daemon must allow
    #[arg(long, value_name = "CIPHER", default_value = "aes-128-gcm", help_heading = TRANSFER,
          value_parser = values::choice::<Cipher>(&["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "none"]))]
    pub cipher: Cipher,
    /// Largest packet in bytes [default: found by probing]
    #[arg(long, value_name = "BYTES", help_heading = TRANSFER)]
    pub mtu: Option<u16>,
    /// UDP ports that the far end may use over SSH [default: 33001-33100]
    #[arg(long, value_name = "FIRST-LAST", value_parser = values::port_range, help_heading = TRANSFER)]
    pub udp_ports: Option<(u16, u16)>,
    /// Memory for data in transit on each end [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = TRANSFER)]
    pub memory: Option<u64>,
    /// If UDP does not get through, fail instead of using TCP or SSH
    #[arg(long, help_heading = TRANSFER)]
    pub udp_only: bool,
}

impl NetworkArgs {
    /// The options of the crate `farhaul`. Options that were not given keep its default, and it judges the
    /// values.
    pub fn options(&self) -> NetworkOptions {
        let default = NetworkOptions::default();
        NetworkOptions {
            cipher: self.cipher,
            policy: self.policy,
            rate_bps: self.rate,
            mtu: self.mtu,
            memory_bytes: self.memory.unwrap_or(default.memory_bytes),
            udp_only: self.udp_only,
            udp_ports: self.udp_ports.unwrap_or(default.udp_ports),
            testing: test_hooks::of_sessions(),
            ..default
        }
    }
}
