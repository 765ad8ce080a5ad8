//! Labels: names and values that users give to their jobs.

use std::collections::BTreeMap;

use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

/// The most labels of one job.
pub const LABELS_MAX: usize = 32;
const NAME_MAX: usize = 63;
const VALUE_MAX: usize = 255;

/// Names and their values. A name consists of letters, digits, `-`, `_`, `.` and `/`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Labels(pub BTreeMap<String, String>);

impl Labels {
    /// Reads `name=value`, as on the command line.
    pub fn parse_one(text: &str) -> Result<(String, String), Error> {
        let bad = || {
            let text = farhaul_text::printable(text.as_bytes(), 80);
            Error::new(Code::BadOption, format!("'{text}' is not a label: write name=value"))
        };
        let (name, value) = text.split_once('=').ok_or_else(bad)?;
        Ok((name.to_string(), value.to_string()))
    }

    /// Reads labels as the options of a command line give them; a name may be given once.
    pub fn parse(texts: &[String]) -> Result<Labels, Error> {
        let mut labels = BTreeMap::new();
        for text in texts {
            let (name, value) = Labels::parse_one(text)?;
            if labels.insert(name.clone(), value).is_some() {
                return Err(Error::new(Code::BadOption, format!("label {name} is given twice")));
            }
        }
        Ok(Labels(labels))
    }

    /// Judges the labels. No other function does.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |what: String| Err(Error::new(Code::BadOption, what));
        if self.0.len() > LABELS_MAX {
            return bad(format!("a job can have at most {LABELS_MAX} labels"));
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        for (name, value) in &self.0 {
            if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_of_name) {
                return bad(format!(
                    "label '{}': a name must have 1 to {NAME_MAX} letters, digits, - _ . or /",
                    farhaul_text::printable(name.as_bytes(), 80)
                ));
            }
            if value.len() > VALUE_MAX || value.chars().any(char::is_control) {
                return bad(format!(
                    "label {name}: a value must have at most {VALUE_MAX} bytes, all printable"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_plain() {
        let check = |name: &str, value: &str| Labels([(name.into(), value.into())].into()).check().is_ok();
        assert!(check("run", "7") && check("org.example/beam-line_2", "") && check("a", "ü = ok"));
        assert!(!check("", "x") && !check("a b", "x") && !check("ä", "x") && !check("a", "x\ny"));
        assert!(!check(&"a".repeat(64), "x") && !check("a", &"x".repeat(256)));
        let many = (0..33).map(|n| (format!("l{n}"), String::new())).collect();
        assert!(Labels(many).check().is_err());
        assert_eq!(Labels::parse_one("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(Labels::parse_one("a").is_err());
        let parse =
            |texts: &[&str]| Labels::parse(&texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&["a=1", "b=1"]).unwrap().0.len(), 2);
        assert!(parse(&["a=1", "a=2"]).is_err());
    }
}
