//! The faults of a configuration: for each one line with where it stands, which key it is, and what was
//! expected.
//!
//! Always true: a fault is one line, without characters that a terminal could act on.

use std::fmt::{self, Display, Formatter};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::is_unprintable;

use super::layer::ValueOrigin;

/// The most faults that are listed. A file with more is probably another kind of file.
pub(crate) const FAULTS_MAX: usize = 100;

/// How many characters of the user's text a fault repeats.
const QUOTED_MAX: usize = 80;

/// One fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    pub(crate) origin: ValueOrigin,
    /// Empty if the fault concerns a file as a whole.
    pub(crate) key: String,
    pub(crate) message: String,
}

impl ConfigFault {
    pub(crate) fn new(
        origin: &ValueOrigin,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> ConfigFault {
        ConfigFault { origin: origin.clone(), key: key.into(), message: message.into() }
    }

    /// The key that has the fault; empty if the fault concerns a file as a whole.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Display for ConfigFault {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        formatter.write_str(&plain(&format!("{}: {key}{}", self.origin, self.message)))
    }
}

/// The faults of a configuration, at most [`FAULTS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults(Vec<ConfigFault>);

impl ConfigFaults {
    /// An error if there are any faults.
    pub(crate) fn judge(mut faults: Vec<ConfigFault>) -> Result<(), ConfigFaults> {
        faults.sort_by(|one, other| (&one.origin, &one.key).cmp(&(&other.origin, &other.key)));
        faults.dedup();
        faults.truncate(FAULTS_MAX);
        if faults.is_empty() { Ok(()) } else { Err(ConfigFaults(faults)) }
    }

    /// The faults, sorted by origin and key; there is at least one.
    pub fn list(&self) -> &[ConfigFault] {
        &self.0
    }
}

/// The error names the first fault and says how many more there are.
impl From<ConfigFaults> for Error {
    fn from(ConfigFaults(faults): ConfigFaults) -> Error {
        let rest = match faults.len() {
            0 | 1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let first = match faults.first() {
            // A user who has typed an option knows the option, not the key.
            Some(ConfigFault { origin: ValueOrigin::Flag(flag), message, .. }) => {
                plain(&format!("{flag}: {message}"))
            }
            Some(fault) => fault.to_string(),
            None => String::new(),
        };
        // `farhaul config check` does not see the options of another command.
        let is_listed = faults.iter().any(|fault| !matches!(fault.origin, ValueOrigin::Flag(_)));
        let error = Error::new(Code::BadConfig, format!("{first}{rest}"));
        error.with_hint_if(is_listed.then_some("`farhaul config check` lists all that is wrong"))
    }
}

/// The text as one line of printable characters.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unprintable(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

/// A text of the user, cut if it is long.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}

/// The name that was probably meant.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the characters may be wrong; in words of three or more, at least one.
    let len = wrong.chars().count();
    let far = if len > 2 { (len / 3).max(1) } else { 0 };
    let by_distance = names.into_iter().map(|name| (distance(wrong, name), name));
    by_distance.filter(|(distance, _)| *distance <= far).min().map(|(_, name)| name)
}

/// How many characters are inserted, left out, replaced or exchanged with their neighbour (optimal string
/// alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().take(64).collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_near() {
        let names = ["listen", "max_rate", "memory", "memory_per_key"];
        for (wrong, meant) in [
            ("listne", Some("listen")),
            ("max_rte", Some("max_rate")),
            ("maxrate", Some("max_rate")),
            ("memroy", Some("memory")),
            ("memory_per_kye", Some("memory_per_key")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names), meant, "{wrong}");
        }
        assert_eq!((distance("ab", "ba"), distance("", "abc"), distance("kitten", "sitting")), (1, 3, 3));
    }

    #[test]
    fn a_fault_is_one_line() {
        let fault = ConfigFault::new(&ValueOrigin::Default, "a", "x\n\u{1b}[31m");
        assert_eq!(fault.to_string(), "default: a: x\\n\\u{1b}[31m");
    }
}
