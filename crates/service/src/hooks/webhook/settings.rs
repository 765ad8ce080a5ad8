//! The settings of webhooks: which receivers hear of every job, which addresses may be called, and which secret
//! signs the messages to a URL.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use farhaul::Error;

use super::super::HookMoment;
use super::super::config::chooses;
use super::address::AddressRules;
use super::delivery::{CertificateRoots, DeliveryConfig};
use super::signature::WebhookSecret;
use super::url::WebhookUrl;
use crate::config::values::SecretPlace;

/// Settings for all webhooks, those of the configuration and those that jobs name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The addresses that webhooks may go to.
    pub addresses: AddressRules,
    /// A file with the PEM certificates to trust; without it, the system's certificates.
    pub authorities: Option<PathBuf>,
    /// The secret of the service, from which each URL has a secret of its own.
    pub secret: Option<SecretPlace>,
    /// The receivers that the configuration names.
    pub receivers: Vec<WebhookReceiver>,
}

impl WebhookSettings {
    /// The configuration of a [`super::WebhookSender`].
    pub fn config(&self) -> DeliveryConfig {
        let roots = self.authorities.clone().map_or(CertificateRoots::System, CertificateRoots::Bundle);
        DeliveryConfig { addresses: self.addresses.clone(), roots, ..DeliveryConfig::default() }
    }

    /// Reads the secret that signs messages to a URL, if there is one: that of the receiver with this URL, or
    /// else the one that belongs to this URL alone. The service's own secret never signs a message, as whoever
    /// can check one message by it could sign messages for all other receivers.
    pub fn secret_for(&self, url: &WebhookUrl) -> Result<Option<WebhookSecret>, Error> {
        let is_there = |receiver: &&WebhookReceiver| receiver.url.audience() == url.audience();
        let own = self.receivers.iter().filter(is_there).find_map(|receiver| receiver.secret.as_ref());
        match (own, &self.secret) {
            (Some(own), _) => WebhookSecret::read(own).map(Some),
            (None, Some(place)) => Ok(Some(WebhookSecret::read(place)?.for_url(url))),
            (None, None) => Ok(None),
        }
    }
}

/// A receiver that the configuration names. It hears of jobs with certain labels, whoever submits them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookReceiver {
    /// When it is called: at any moment but `pre` and `file`. If never, the receiver only has a secret of its own.
    pub on: BTreeSet<HookMoment>,
    /// Where messages go.
    pub url: WebhookUrl,
    /// The secret that signs all messages to its URL.
    pub secret: Option<SecretPlace>,
    /// It is called only for jobs that have all these labels with these values; `*` stands for any value.
    pub labels: BTreeMap<String, String>,
    /// It is called for dry runs, too.
    pub dry_run: bool,
}

impl WebhookReceiver {
    /// True if it is called at this moment for a job with these labels.
    pub fn is_for(&self, when: HookMoment, labels: &BTreeMap<String, String>, is_dry_run: bool) -> bool {
        self.on.contains(&when) && chooses(&self.labels, labels) && (self.dry_run || !is_dry_run)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::values::TextValue as _;

    fn receiver(url: &str, on: &[HookMoment], secret: Option<SecretPlace>) -> WebhookReceiver {
        WebhookReceiver {
            on: on.iter().copied().collect(),
            url: url.parse().unwrap(),
            secret,
            labels: BTreeMap::new(),
            dry_run: false,
        }
    }

    #[test]
    fn receivers_hear_of_their_events_and_labels() {
        let (none, labels) = (BTreeMap::new(), BTreeMap::from([("team".to_string(), "xray".to_string())]));
        let of_all = receiver("https://a.example/", &[HookMoment::Post, HookMoment::Fail], None);
        assert!(of_all.is_for(HookMoment::Post, &none, false));
        assert!(of_all.is_for(HookMoment::Fail, &labels, false));
        let of_team = WebhookReceiver {
            labels: labels.clone(),
            ..receiver("https://a.example/", &[HookMoment::Fail], None)
        };
        assert!(of_team.is_for(HookMoment::Fail, &labels, false));
        assert!(!of_team.is_for(HookMoment::Post, &labels, false));
        assert!(!of_team.is_for(HookMoment::Fail, &none, false));
        assert!(!of_all.is_for(HookMoment::Post, &labels, true), "nobody has asked for dry runs");
        let asks = WebhookReceiver { dry_run: true, ..of_all };
        assert!(asks.is_for(HookMoment::Post, &labels, true));
    }

    #[test]
    fn each_url_has_a_secret_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let secret = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            SecretPlace::read(path.to_str().unwrap()).unwrap()
        };
        let node = secret("node", "0123456789abcdef\n");
        let lims = secret("lims", "lims lims lims lims\n");
        let settings = WebhookSettings {
            secret: Some(node.clone()),
            receivers: vec![
                receiver("https://lims.example/in", &[], Some(lims)),
                receiver("https://plain.example/in", &[HookMoment::Post], None),
            ],
            ..WebhookSettings::default()
        };
        let of = |url: &str| settings.secret_for(&url.parse().unwrap()).unwrap().unwrap();
        let own = WebhookSecret::new("lims lims lims lims").unwrap();
        // A job that names the URL of a receiver, however it is written, is signed as the receiver expects.
        for url in ["https://lims.example/in", "HTTPS://Lims.Example:443/in"] {
            assert_eq!(of(url), own, "{url}");
        }
        let derived = |url: &str| WebhookSecret::read(&node).unwrap().for_url(&url.parse().unwrap());
        for url in ["https://plain.example/in", "https://lims.example/in/", "http://lims.example/in"] {
            assert_eq!(of(url), derived(url), "{url}");
        }
        let unsigned = WebhookSettings::default().secret_for(&"https://a.example/".parse().unwrap()).unwrap();
        assert_eq!(unsigned, None);
    }
}
