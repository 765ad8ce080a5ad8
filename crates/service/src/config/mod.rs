//! What the service is told: TOML in layers, from built-in defaults to the command line, as one typed struct
//! whose keys know their origins.
//!
//! How to read it: [`keys`] has what a key is and [`sections`] a row for each; [`values`] the types of what
//! stands there. [`ConfigSources`] says where the layers are (`environment.rs`, `sources.rs`); each is a tree
//! (`layer.rs`), they are merged, read by serde once (`deserializer.rs`) and judged ([`Config::checked`],
//! `rules.rs`). [`LoadedConfig`] is shown by `show.rs`.
//!
//! Always true: all that is wrong is told at once, a line each; a secret is named by where it lies and never
//! read here.

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

use farhaul::{Code, Error};
use serde::{Deserialize, Serialize};

pub use environment::Surroundings;
pub use fault::{ConfigFault, ConfigFaults};
pub use forbidden_roots::OwnFile;
pub(crate) use forbidden_roots::lies_in;
pub use keys::Reload;
pub use layer::ValueOrigin;
pub use sections::{
    ApiSection, CapSection, HistorySection, HookEvent, HookSection, IdentitySection, JobsSection, LogLevel,
    LogSection, MetricsSection, PeerSection, ServeSection, WatchSection, WebhooksSection,
};
pub use show::Origins;
pub use sources::{ConfigSources, LoadedConfig};

use layer::shown_key;
use values::{HostPattern, TextValue as _};

/// Values by keys.
type Leaves = BTreeMap<Vec<String>, toml::Value>;

/// All of it. The default is that of this process's environment, with no file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// What clients open.
    pub serve: ServeSection,
    /// The API.
    pub api: ApiSection,
    /// How many run, and retries.
    pub jobs: JobsSection,
    /// What is kept of what has been.
    pub history: HistorySection,
    /// The log and the audit file.
    pub log: LogSection,
    /// Figures for Prometheus.
    pub metrics: MetricsSection,
    /// Calls of other programs.
    pub webhooks: WebhooksSection,
    /// How outgoing connections authenticate.
    pub identities: BTreeMap<String, IdentitySection>,
    /// Other hosts.
    pub peers: BTreeMap<String, PeerSection>,
    /// Limits of rate.
    pub caps: BTreeMap<String, CapSection>,
    /// Programs that run when something has happened.
    pub hooks: BTreeMap<String, HookSection>,
    /// Directories whose files are sent.
    pub watch: BTreeMap<String, WatchSection>,
}

impl Config {
    /// The one place that judges it.
    pub fn checked(self) -> Result<Config, ConfigFaults> {
        let faults = rules::violations(&self).into_iter().map(|violation| {
            ConfigFault::new(&ValueOrigin::Default, shown_key(&violation.key), violation.message)
        });
        ConfigFaults::judge(faults.collect())?;
        Ok(self)
    }

    /// An error for root, unless that is allowed: one node serves as one user.
    pub fn allows_user(&self, user: u32) -> Result<(), Error> {
        if user != 0 || self.serve.allow_root {
            return Ok(());
        }
        Err(Error::new(
            Code::BadOption,
            "serving as root would give every client root's rights below the root",
        )
        .with_hint("run it as a user of its own, or say --allow-root"))
    }

    /// The first table of peers that a host fits, and its name.
    pub fn peer_of(&self, host: &str, port: Option<u16>) -> Option<(&str, &PeerSection)> {
        let fits = |name: &str, peer: &PeerSection| match &peer.host {
            Some(pattern) => pattern.fits(host, port),
            None => HostPattern::read(name).is_some_and(|pattern| pattern.fits(host, port)),
        };
        let found = self.peers.iter().find(|(name, peer)| fits(name, peer));
        found.map(|(name, peer)| (name.as_str(), peer))
    }

    /// The keys whose values are others in `new`, and whether a reload is enough for each. In the order of
    /// their names.
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
        // Nothing in a configuration cannot be written as TOML; a test goes over all keys.
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
