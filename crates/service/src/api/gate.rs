//! What holds for all requests: the names by which the node may be called, and how much may be asked. It can change while all
//! goes on.

use std::net::IpAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use farhaul_handover::Held as _;

use super::limits::RequestLimits;
use crate::config::Config;

/// Shared by all requests.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Names of the configuration.
    hosts: RwLock<Vec<String>>,
    /// Names that the node has by itself.
    own: RwLock<Vec<String>>,
    pub(crate) limits: RequestLimits,
    body_max: AtomicUsize,
}

impl Gate {
    pub(crate) fn new(config: &Config) -> Gate {
        let gate = Gate {
            hosts: RwLock::default(),
            own: RwLock::new(vec!["localhost".into()]),
            limits: RequestLimits::default(),
            body_max: AtomicUsize::new(0),
        };
        gate.change(config);
        gate
    }

    /// From now on as this configuration says.
    pub(crate) fn change(&self, config: &Config) {
        let api = &config.api;
        *self.hosts.write().in_any_case() = api.hosts.iter().map(|name| name.as_str().to_string()).collect();
        self.body_max.store(usize::try_from(api.max_body.0).unwrap_or(usize::MAX), Relaxed);
        self.limits.set_rate(api.requests_burst.get().into(), api.requests_per_second.get().into());
    }

    /// The node listens at this address.
    pub(crate) fn add_own(&self, address: IpAddr) {
        let name = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        self.own.write().in_any_case().push(name);
    }

    /// Whether a `Host`, with a port or without, names this node.
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

    /// Bytes of a request's body.
    pub(crate) fn body_max(&self) -> usize {
        self.body_max.load(Relaxed)
    }
}
