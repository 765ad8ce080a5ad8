//! Writes lines to stderr and data to stdout.
//!
//! Always true: a reader that went away is an error and no panic; text that came from elsewhere cannot steer the terminal.

use std::io::{self, Write};

use farhaul::{Code, Error, FailedEntry, NotSetEntry, is_unprintable};
use serde::Serialize;

use crate::descriptors;

/// As many failed entries are listed; the report has more.
const FAILURES_SHOWN: usize = 20;

/// One line for the user.
pub fn line(text: &str) {
    // When stderr is gone there is nobody left to tell.
    let _ = writeln!(io::stderr().lock(), "{}", harmless(text));
}

pub fn warning(text: &str) {
    line(&format!("warning: {text}"));
}

/// What, where and, on a second line, what to do; `hint` is for errors that bring none of their own.
pub fn error(error: &Error, hint: Option<&str>) {
    line(&format!("error: {error}"));
    if let Some(hint) = error.own_hint().or(hint).or(error.hint()) {
        line(&format!("hint: {hint}"));
    }
}

/// What docs/reference/errors.md has more on.
pub fn code(error: &Error) {
    match error.misbehaviour() {
        Some(how) => line(&format!("code: {} ({how})", error.code())),
        None => line(&format!("code: {}", error.code())),
    }
}

/// The entries that did not arrive; `count` may be more than are listed.
pub fn failures(failed: &[FailedEntry], count: u64) {
    for text in failure_lines(failed, count) {
        line(&text);
    }
}

/// The entries whose content is there without all of their metadata; `count` may be more than are listed.
pub fn not_set(entries: &[NotSetEntry], count: u64) {
    let shown = &entries[..entries.len().min(FAILURES_SHOWN)];
    for entry in shown {
        line(&format!("not set: {}: {}", entry.path, entry.reason));
    }
    let rest = count.max(entries.len() as u64) - shown.len() as u64;
    if rest > 0 {
        line(&format!("not set: and {rest} more"));
    }
}

fn failure_lines(failed: &[FailedEntry], count: u64) -> Vec<String> {
    let shown = &failed[..failed.len().min(FAILURES_SHOWN)];
    let mut lines: Vec<String> =
        shown.iter().map(|entry| format!("failed: {}: {}", entry.path, entry.reason)).collect();
    let rest = count.max(failed.len() as u64) - shown.len() as u64;
    if rest > 0 {
        lines.push(format!("failed: and {rest} more"));
    }
    lines
}

/// One JSON value and a line end on stdout.
pub fn json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|error| lost(&error.into()))?;
    data(format!("{}\n", harmless_json(&text)).as_bytes())
}

/// Bytes on stdout. What does not get there was asked for and is missing, whoever is to blame.
pub fn data(bytes: &[u8]) -> Result<(), Error> {
    written(io::stdout().lock().write_all(bytes))
}

/// Whether what was written to stdout, as `outcome` says, is out.
pub fn written(outcome: io::Result<()>) -> Result<(), Error> {
    descriptors::output()?;
    outcome.and_then(|()| io::stdout().flush()).map_err(|error| lost(&error))
}

fn lost(error: &io::Error) -> Error {
    let text = error.to_string();
    let why = text.split(" (os error").next().unwrap_or_default().to_lowercase();
    Error::new(Code::OutputLost, format!("cannot write to standard output: {why}"))
}

/// The same JSON, of which a terminal shows all that there is: JSON itself leaves most of what is not printable as it is.
pub fn harmless_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            // Outside of strings JSON has nothing of the kind.
            let units =
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            out.push_str(&units);
        } else {
            out.push(c);
        }
    }
    out
}

/// Escapes what a terminal would act on.
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use farhaul::FailedAction;

    use super::*;

    fn entries(count: usize) -> Vec<FailedEntry> {
        (0..count)
            .map(|n| FailedEntry {
                path: format!("f{n}"),
                code: Code::PermissionDenied,
                reason: "no permission".into(),
                action: FailedAction::Copy,
            })
            .collect()
    }

    #[test]
    fn the_list_of_failures_is_bounded() {
        assert!(failure_lines(&[], 0).is_empty());
        assert_eq!(failure_lines(&entries(1), 1), ["failed: f0: no permission"]);
        assert_eq!(failure_lines(&entries(20), 20).len(), 20);
        let lines = failure_lines(&entries(30), 1000);
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[20], "failed: and 980 more");
        assert_eq!(failure_lines(&entries(1), 0).len(), 1);
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\r\n\u{9b}"), "a\\u{1b}[2Jb\\r\\n\\u{9b}");
        assert_eq!(harmless("abc\u{202e}gpj.exe"), "abc\\u{202e}gpj.exe");
        assert_eq!(harmless("Grüße 日本"), "Grüße 日本");
        assert_eq!(harmless("a\u{200f}\u{61c}\u{2028}\u{200b}"), "a\\u{200f}\\u{61c}\\u{2028}\\u{200b}");
        let value = "é\u{202e}\u{9b}\u{e0041}\n";
        let text = harmless_json(&serde_json::to_string(value).unwrap());
        assert_eq!(text, r#""é\u202e\u009b\udb40\udc41\n""#);
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }
}
