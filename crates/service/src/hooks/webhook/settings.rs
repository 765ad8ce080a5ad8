//! What the configuration says of webhooks: which go out for every job, and where they may go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use farhaul::{Code, Error};
use serde::{Deserialize, Serialize};

use super::super::When;
use super::super::config::chooses;
use super::address::{Network, OwnAddresses};
use super::deliver::{Config, Roots};
use super::signature::Secret;
use super::url::Url;

/// How webhooks are delivered: those of the configuration, and those that jobs name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Webhooks {
    /// Networks that they may go to, though these are not public.
    pub allow: Vec<Network>,
    /// A file of PEM certificates; without it, those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<PathBuf>,
    /// What messages to the addresses that jobs name are signed with: the first line of this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
}

impl Webhooks {
    /// For a [`super::Sender`], with what the service knows of itself.
    pub fn config(&self, own: OwnAddresses) -> Config {
        let roots = self.authorities.clone().map_or(Roots::System, Roots::Bundle);
        Config { allow: self.allow.clone(), own, roots, ..Config::default() }
    }
}

/// A webhook for jobs with certain labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// When: `post`, `fail`.
    #[serde(default = "ends")]
    pub on: BTreeSet<When>,
    /// Where to.
    pub url: Url,
    /// What messages are signed with: the first line of this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Only for jobs that have each of these labels with this value; `*` is any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn ends() -> BTreeSet<When> {
    BTreeSet::from([When::Post, When::Fail])
}

impl Webhook {
    /// Whether it goes out then, for a job with these labels.
    pub fn is_for(&self, when: When, labels: &BTreeMap<String, String>) -> bool {
        self.on.contains(&when) && chooses(&self.labels, labels)
    }

    /// Reads the secret, if there is one.
    pub fn secret(&self) -> Result<Option<Secret>, Error> {
        self.secret_file.as_deref().map(Secret::read).transpose()
    }

    /// The one place that judges it; the secret is read, too.
    pub fn checked(self) -> Result<Webhook, Error> {
        let wrong = |what: &str| {
            Err(Error::new(Code::BadOption, format!("the webhook to {} {what}", self.url.origin())))
        };
        if self.on.is_empty() || !self.on.is_subset(&ends()) {
            return wrong("is for other events than post and fail");
        }
        self.secret()?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        webhooks: Webhooks,
        webhook: Vec<Webhook>,
    }

    #[test]
    fn webhooks_are_read_and_chosen() {
        let text = "[webhooks]\nallow = ['10.20.0.0/16']\nauthorities = '/etc/farhaul/authorities.pem'\n\
            [[webhook]]\nurl = 'https://hooks.example/in'\nsecret_file = '/etc/farhaul/webhook.secret'\n\
            [[webhook]]\nurl = 'http://10.20.0.7:8080/failed'\non = ['fail']\nlabels = { team = 'xray' }\n";
        let File { webhooks, webhook } = toml::from_str(text).unwrap();
        let config = webhooks.config(OwnAddresses::default());
        assert_eq!(
            (config.allow.len(), config.roots),
            (1, Roots::Bundle("/etc/farhaul/authorities.pem".into()))
        );
        let labels = BTreeMap::from([("team".to_string(), "xray".to_string())]);
        assert!(webhook[0].is_for(When::Post, &BTreeMap::new()) && webhook[0].is_for(When::Fail, &labels));
        assert!(!webhook[1].is_for(When::Post, &labels) && webhook[1].is_for(When::Fail, &labels));
        assert!(!webhook[1].is_for(When::Fail, &BTreeMap::new()) && !webhook[0].is_for(When::Pre, &labels));
        // The file is not there.
        let error = webhook[0].clone().checked().unwrap_err().to_string();
        assert!(error.contains("/etc/farhaul/webhook.secret"), "{error}");
        assert!(webhook[1].clone().checked().is_ok());
        for on in [BTreeSet::new(), BTreeSet::from([When::File]), BTreeSet::from(When::ALL)] {
            assert!(Webhook { on, ..webhook[1].clone() }.checked().is_err());
        }
    }
}
