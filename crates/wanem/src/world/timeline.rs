//! A script of changes to the links of a lab: `[{"at": "10s", "loss": "5%"}, {"at": "20s", "cut": "3s"},
//! {"at": "30s", "link": 2, "rate": "1g"}]`.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::control::LabChange;
use super::hosts::Lab;
use crate::{Error, LinkSettings, settings};

/// Changes and their times, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    steps: Vec<(Duration, LabChange)>,
}

impl Timeline {
    /// Parses and checks a script.
    pub fn parse(text: &str) -> Result<Timeline, Error> {
        let wrong = |reason: String| Error::Usage(format!("the timeline cannot be used: {reason}"));
        let steps: Vec<serde_json::Map<String, Value>> =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut parsed = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            parsed.push(read_step(step).map_err(|error| wrong(format!("step {}: {error}", number + 1)))?);
        }
        parsed.sort_by_key(|(at, _)| *at);
        Ok(Timeline { steps: parsed })
    }

    /// Makes the changes at their times, counted from now, and returns after the last one. Calls `report`
    /// for a change that cannot be made.
    pub fn run(self, lab: &Lab, report: impl Fn(Error)) {
        let begin = Instant::now();
        for (at, change) in self.steps {
            std::thread::sleep((begin + at).saturating_duration_since(Instant::now()));
            if let Err(error) = change.apply(lab) {
                report(error);
            }
        }
    }
}

fn read_step(step: serde_json::Map<String, Value>) -> Result<(Duration, LabChange), Error> {
    let wrong = |what: &str| Error::Usage(what.into());
    let (mut at, mut change) = (None, LabChange::default());
    for (name, value) in step {
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(wrong("values are texts and numbers")),
        };
        match name.as_str() {
            "at" => at = Some(settings::time(&text).ok_or_else(|| wrong("'at' is a time such as 10s"))?),
            "link" => change.link = Some(text.parse().map_err(|_| wrong("'link' is a number"))?),
            "cut" => change.cut = Some(text),
            _ => change.changes.push((name, text)),
        }
    }
    change.check()?;
    Ok((Duration::from_nanos(at.ok_or_else(|| wrong("'at' is missing"))?), change))
}

impl LabChange {
    /// Checks the change without a lab.
    pub fn check(&self) -> Result<(), Error> {
        let mut settings = LinkSettings::default();
        self.changes.iter().try_for_each(|(name, value)| settings.set(name, value))?;
        self.cut_ns().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_parsed_and_sorted_by_time() {
        let text = r#"[{"at": "20s", "cut": "3s"}, {"at": "1.5s", "link": 2, "loss": "5%", "rate": "1g"}]"#;
        let timeline = Timeline::parse(text).unwrap();
        let first = LabChange {
            link: Some(2),
            changes: vec![("loss".into(), "5%".into()), ("rate".into(), "1g".into())],
            cut: None,
        };
        let second = LabChange { cut: Some("3s".into()), ..LabChange::default() };
        assert_eq!(timeline.steps, [(Duration::from_millis(1500), first), (Duration::from_secs(20), second)]);
    }

    #[test]
    fn a_wrong_step_is_refused() {
        for text in [
            "{}",
            r#"[{"loss": "5%"}]"#,
            r#"[{"at": "x"}]"#,
            r#"[{"at": "1s", "los": "5%"}]"#,
            r#"[{"at": "1s", "cut": "5"}]"#,
            r#"[{"at": "1s", "loss": true}]"#,
        ] {
            assert!(matches!(Timeline::parse(text), Err(Error::Usage(_))), "{text}");
        }
    }
}
