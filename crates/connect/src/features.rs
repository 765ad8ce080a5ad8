//! Features: the abilities of an end beyond those that every end of its protocol version has. Each end names
//! its features in the hello. A feature that the other end lacks is not used; if the user has asked for it,
//! the session is refused, and the message names it.

use farhaul_words::{Code, Error};
use serde::{Deserialize, Deserializer, Serialize};

use super::hello::Refusal;

/// Feature of the services that have requests with paths: a request, or a grant, names directories that it does
/// not leave ([`PathPrefixes`](crate::PathPrefixes)).
pub const WITHIN: &str = "within";

/// The most names that a peer may list, and the most bytes of a name.
const NAMES_MAX: usize = 256;
const NAME_LEN_MAX: usize = 64;

/// Names of features. The default has none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Features(Vec<String>);

impl Features {
    pub fn of(names: &[&str]) -> Features {
        Features(names.iter().map(|name| name.to_string()).collect())
    }

    /// These features and more.
    pub fn and(mut self, names: &[&str]) -> Features {
        self.0.extend(names.iter().map(|name| name.to_string()));
        self
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|own| own == name)
    }

    /// The features that both ends have.
    pub fn common(&self, other: &Features) -> Features {
        Features(self.0.iter().filter(|name| other.has(name)).cloned().collect())
    }

    /// The error for a far end that lacks some of these, which the client needs. What keeps a job within
    /// directories is nothing that its user has asked for, so the far end's own words would not be understood.
    pub(crate) fn explained(&self, error: Error) -> Error {
        let lacks_it = error.code() == Code::FeatureMissing && error.to_string().contains("'within'");
        if !lacks_it || !self.has(WITHIN) {
            return error;
        }
        let what = "the far end is too old to keep this below the directories that may be used there";
        Error::new(Code::FeatureMissing, what)
            .with_hint("install a newer version there; this one would follow a link out of the directories")
    }

    /// Refuses a client that needs more than these.
    pub fn satisfy(&self, needs: &Features) -> Result<(), Refusal> {
        let missing: Vec<_> =
            needs.0.iter().filter(|name| !self.has(name)).map(|name| format!("'{name}'")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let text = format!(
            "the far end, farhaul {}, cannot do what was asked for: it lacks {}",
            env!("CARGO_PKG_VERSION"),
            missing.join(", ")
        );
        let hint = "leave out the options that ask for it, or install a newer version there";
        Err(Refusal::new(Code::FeatureMissing, text).with_hint(hint))
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Features, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        if names.len() > NAMES_MAX || names.iter().any(|name| name.len() > NAME_LEN_MAX) {
            return Err(serde::de::Error::custom("at most 256 features with names of 64 bytes are allowed"));
        }
        Ok(Features(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_and_missing_is_named() {
        let own = Features::of(&["delta", "acls"]);
        assert_eq!(own.satisfy(&Features::of(&["acls"])), Ok(()));
        let refusal = own.satisfy(&Features::of(&["acls", "colours", "smells"])).unwrap_err();
        assert!(refusal.is(Code::FeatureMissing));
        assert!(refusal.text.contains("lacks 'colours', 'smells'"), "{}", refusal.text);
    }

    #[test]
    fn who_cannot_be_kept_within_directories_is_told_so() {
        let error = || Features::default().satisfy(&Features::of(&[WITHIN])).unwrap_err().into_error();
        let needs = Features::of(&["acls", WITHIN]);
        let explained = needs.explained(error());
        assert!(explained.to_string().contains("too old") && explained.hint().is_some(), "{explained}");
        assert_eq!(explained.code(), Code::FeatureMissing);
        let other = Features::default().satisfy(&Features::of(&["acls"])).unwrap_err().into_error();
        assert!(needs.explained(other).to_string().contains("'acls'"));
        assert!(Features::of(&["acls"]).explained(error()).to_string().contains("'within'"));
    }

    #[test]
    fn what_one_end_lacks_is_left_out() {
        let (old, new) = (Features::of(&["delta"]), Features::of(&["colours", "delta"]));
        assert_eq!(old.common(&new), old);
        assert_eq!(new.common(&old), old);
        assert!(!new.common(&Features::default()).has("delta"));
    }

    #[test]
    fn a_list_from_a_peer_has_bounds() {
        let read = |names: Vec<String>| serde_json::from_value::<Features>(names.into());
        assert!(read(vec!["a".repeat(64); 256]).is_ok());
        assert!(read(vec!["a".into(); 257]).is_err());
        assert!(read(vec!["a".repeat(65)]).is_err());
    }
}
