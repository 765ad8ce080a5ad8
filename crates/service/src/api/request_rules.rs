//! Rules for all requests: the names by which the node may be called, and how much callers may ask. Both
//! can change while requests are served.

use std::net::IpAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use farhaul_handover::Held as _;

use super::limits::RequestLimits;
use crate::config::Config;

/// The rules, shared by all requests.
#[derive(Debug)]
pub(crate) struct RequestRules {
    /// Names that the configuration lists.
    hosts: RwLock<Vec<String>>,
    /// `localhost`, and the addresses that the node listens at.
    own: RwLock<Vec<String>>,
    pub(crate) limits: RequestLimits,
    body_max: AtomicUsize,
}

impl RequestRules {
    pub(crate) fn new(config: &Config) -> RequestRules {
        let rules = RequestRules {
            hosts: RwLock::default(),
            own: RwLock::new(vec!["localhost".into()]),
            limits: RequestLimits::default(),
            body_max: AtomicUsize::new(0),
        };
        rules.change(config);
        rules
    }

    /// Takes over the values of a new configuration.
    pub(crate) fn change(&self, config: &Config) {
        let api = &config.api;
        *self.hosts.write().in_any_case() = api.hosts.iter().map(|name| name.as_str().to_string()).collect();
        self.body_max.store(usize::try_from(api.max_body.0).unwrap_or(usize::MAX), Relaxed);
        self.limits.set_rate(api.requests_burst.get().into(), api.requests_per_second.get().into());
    }

    /// Adds an address that the node listens at.
    pub(crate) fn add_own(&self, address: IpAddr) {
        let name = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        self.own.write().in_any_case().push(name);
    }

    /// True if a `Host` header, with a port or without, names this node.
    pub(crate) fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let has = |names: &RwLock<Vec<String>>| {
            names.read().in_any_case().iter().any(|ours| ours.eq_ignore_ascii_case(name))
        };
        has(&self.own) || has(&self.hosts)
    }

    /// The most bytes that the body of a request may have.
    pub(crate) fn body_max(&self) -> usize {
        self.body_max.load(Relaxed)
    }
}
