//! The settings of webhooks: which ones are called for every job, and which addresses may be called.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use farhaul::{Code, Error};
use serde::{Deserialize, Serialize};

use super::super::HookMoment;
use super::super::config::chooses;
use super::address::{AllowedNetwork, OwnAddresses};
use super::delivery::{CertificateRoots, DeliveryConfig};
use super::signature::WebhookSecret;
use super::url::WebhookUrl;

/// Settings for all webhooks, those of the configuration and those that jobs name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSettings {
    /// Networks that webhooks may go to although they are not public.
    pub allow: Vec<AllowedNetwork>,
    /// A file with the PEM certificates to trust; without it, the system's certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<PathBuf>,
    /// The file whose first line is the secret that signs messages to the webhooks of jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
}

impl WebhookSettings {
    /// The configuration of a [`super::WebhookSender`], with the addresses of the service.
    pub fn config(&self, own: OwnAddresses) -> DeliveryConfig {
        let roots = self.authorities.clone().map_or(CertificateRoots::System, CertificateRoots::Bundle);
        DeliveryConfig { allow: self.allow.clone(), own, roots, ..DeliveryConfig::default() }
    }
}

/// A webhook for jobs with certain labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// When it is called: `post`, `fail`.
    #[serde(default = "ends")]
    pub on: BTreeSet<HookMoment>,
    /// Where messages go.
    pub url: WebhookUrl,
    /// The file whose first line is the secret that signs its messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// It is called only for jobs that have all these labels with these values; `*` stands for any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// It is called for dry runs, too.
    #[serde(default)]
    pub dry_run: bool,
}

fn ends() -> BTreeSet<HookMoment> {
    BTreeSet::from([HookMoment::Post, HookMoment::Fail])
}

impl Webhook {
    /// True if it is called at this moment for a job with these labels.
    pub fn is_for(&self, when: HookMoment, labels: &BTreeMap<String, String>, is_dry_run: bool) -> bool {
        self.on.contains(&when) && chooses(&self.labels, labels) && (self.dry_run || !is_dry_run)
    }

    /// Reads the secret, if there is one.
    pub fn secret(&self) -> Result<Option<WebhookSecret>, Error> {
        self.secret_file.as_deref().map(WebhookSecret::read).transpose()
    }

    /// Judges the webhook, and tries to read its secret. No other function judges it.
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
        webhooks: WebhookSettings,
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
            (1, CertificateRoots::Bundle("/etc/farhaul/authorities.pem".into()))
        );
        let labels = BTreeMap::from([("team".to_string(), "xray".to_string())]);
        assert!(
            webhook[0].is_for(HookMoment::Post, &BTreeMap::new(), false)
                && webhook[0].is_for(HookMoment::Fail, &labels, false)
        );
        assert!(
            !webhook[1].is_for(HookMoment::Post, &labels, false)
                && webhook[1].is_for(HookMoment::Fail, &labels, false)
        );
        assert!(
            !webhook[1].is_for(HookMoment::Fail, &BTreeMap::new(), false)
                && !webhook[0].is_for(HookMoment::Pre, &labels, false)
        );
        assert!(!webhook[0].is_for(HookMoment::Post, &labels, true), "nobody has asked for dry runs");
        let asks = Webhook { dry_run: true, ..webhook[0].clone() };
        assert!(asks.is_for(HookMoment::Post, &labels, true));
        // The secret's file does not exist.
        let error = webhook[0].clone().checked().unwrap_err().to_string();
        assert!(error.contains("/etc/farhaul/webhook.secret"), "{error}");
        assert!(webhook[1].clone().checked().is_ok());
        for on in [BTreeSet::new(), BTreeSet::from([HookMoment::File]), BTreeSet::from(HookMoment::ALL)] {
            assert!(Webhook { on, ..webhook[1].clone() }.checked().is_err());
        }
    }
}
