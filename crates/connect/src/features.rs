//! Features: the abilities of an end beyond those that every end of its protocol version has. Each end names
//! its features in the hello. A feature that the other end lacks is not used; if the user has asked for it,
//! the session is refused, and the message names it.

use farhaul_session::error::Code;
use serde::{Deserialize, Deserializer, Serialize};

use super::hello::Refusal;

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
