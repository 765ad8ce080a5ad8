//! The configuration of the service: TOML in layers, from built-in defaults to the command line, as one typed
//! struct whose values know their origins.
//!
//! How to read it: [`keys`] says what a key is, [`sections`] has a row for each key, [`values`] has the types
//! of values. [`ConfigSources`] says where the layers are (`environment.rs`, `sources.rs`); each is a tree
//! (`layer.rs`); they are merged, read once by serde (`deserializer.rs`) and judged ([`Config::checked`],
//! `rules.rs`). `show.rs` shows a [`LoadedConfig`].
//!
//! Always true: all faults are reported at once, one line each; secrets are named by where they lie, and are
//! not read here.

pub mod keys;
pub mod sections;
pub mod values;

mod deserializer;
mod environment;
#[cfg(test)]
mod example;
mod fault;
mod forbidden_roots;
mod layer;
mod rules;
mod show;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use farhaul::Error;
use farhaul::errors::Code;
use serde::{Deserialize, Serialize};

pub use environment::Surroundings;
pub use fault::{ConfigFault, ConfigFaults};
pub(crate) use forbidden_roots::lies_in;
pub use forbidden_roots::{AccountPlaces, OwnFile};
pub use keys::Reload;
pub use layer::ValueOrigin;
pub use sections::{
    ApiSection, CapSection, HistorySection, HookEvent, HookSection, IdentitySection, JobsSection, LogLevel,
    LogSection, MetricsSection, PeerSection, ReceiverSection, ServeSection, WatchSection, WebhooksSection,
};
pub use show::Origins;
pub use sources::{ConfigSources, LoadedConfig};

use layer::shown_key;
use values::{HostPattern, TextValue as _};

/// Values by their keys.
type Leaves = BTreeMap<Vec<String>, toml::Value>;

/// The whole configuration. The default is that of this process's environment, without files.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The daemon that clients connect to.
    pub serve: ServeSection,
    /// The API.
    pub api: ApiSection,
    /// How many jobs run, and retries.
    pub jobs: JobsSection,
    /// How long records are kept.
    pub history: HistorySection,
    /// The log and the audit log.
    pub log: LogSection,
    /// Metrics for Prometheus.
    pub metrics: MetricsSection,
    /// HTTP calls to other programs.
    pub webhooks: WebhooksSection,
    /// Where such calls go for all jobs.
    pub webhook_receivers: BTreeMap<String, ReceiverSection>,
    /// How outgoing connections authenticate.
    pub identities: BTreeMap<String, IdentitySection>,
    /// Other hosts.
    pub peers: BTreeMap<String, PeerSection>,
    /// Caps on the rate.
    pub caps: BTreeMap<String, CapSection>,
    /// Programs that run when something has happened.
    pub hooks: BTreeMap<String, HookSection>,
    /// Directories whose files are sent.
    pub watch: BTreeMap<String, WatchSection>,
}

impl Config {
    /// Judges the values and how they go together. No other function does.
    pub fn checked(self) -> Result<Config, ConfigFaults> {
        let faults = rules::violations(&self).into_iter().map(|violation| {
            ConfigFault::new(&ValueOrigin::Default, shown_key(&violation.key), violation.message)
        });
        ConfigFaults::judge(faults.collect())?;
        Ok(self)
    }

    /// An error for root, unless the configuration allows it.
    pub fn allows_user(&self, user: u32) -> Result<(), Error> {
        if user != 0 || self.serve.allow_root {
            return Ok(());
        }
        Err(Error::new(
            Code::BadOption,
            "serving as root would give every client root's rights below the root",
        )
        .with_hint("run it as a user of its own, or give it `allow-root`"))
    }

    /// The first table of peers that fits a host, with its name.
    pub fn peer_of(&self, host: &str, port: Option<u16>) -> Option<(&str, &PeerSection)> {
        let fits = |name: &str, peer: &PeerSection| match &peer.host {
            Some(pattern) => pattern.fits(host, port),
            None => HostPattern::read(name).is_some_and(|pattern| pattern.fits(host, port)),
        };
        let found = self.peers.iter().find(|(name, peer)| fits(name, peer));
        found.map(|(name, peer)| (name.as_str(), peer))
    }

    /// The keys whose values differ in `new`, sorted by name, and whether a reload is enough for each.
    pub fn changes(&self, new: &Config) -> Vec<(String, Reload)> {
        let (old, new) = (self.leaves(), new.leaves());
        let mut names: Vec<&Vec<String>> = old.keys().chain(new.keys()).collect();
        names.sort();
        names.dedup();
        let changed = names.into_iter().filter(|key| old.get(*key) != new.get(*key));
        changed.filter_map(|key| Some((shown_key(key), keys::find(key)?.1.reload))).collect()
    }

    /// The value of each key that has one.
    fn leaves(&self) -> Leaves {
        let mut leaves = BTreeMap::new();
        // All values of a configuration can be written as TOML; a test tries all keys.
        let tree = toml::Table::try_from(self).unwrap_or_default();
        for section in keys::SCHEMA {
            let Some(toml::Value::Table(table)) = tree.get(section.name) else { continue };
            for (name, value) in table {
                match value {
                    toml::Value::Table(named) if section.is_named => {
                        let of_key = |key: &String| vec![section.name.to_string(), name.clone(), key.clone()];
                        leaves.extend(named.iter().map(|(key, value)| (of_key(key), value.clone())));
                    }
                    value => {
                        leaves.insert(vec![section.name.to_string(), name.clone()], value.clone());
                    }
                }
            }
        }
        leaves
    }
}
