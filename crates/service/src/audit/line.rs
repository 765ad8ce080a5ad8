//! One line of the audit log.
//!
//! Always true: a line has at most [`LINE_MAX`] bytes and is JSON; it has no character that a terminal could
//! act on. Texts that are too long are cut; all others can be read back from it as they were.

use std::fmt::Write as _;

use farhaul::errors::Code;
use farhaul::sisters::is_unprintable;
use serde::Serialize;
use serde::ser::SerializeMap as _;

/// The most bytes of one text.
const TEXT_MAX: usize = 1024;

/// The most details of one line; further ones are left out.
const DETAILS_MAX: usize = 16;

/// The most bytes of a line. Each byte of a text can become six (`\u001b`), each detail has two texts and
/// there are five others; the rest is for the names of fields and the digest.
pub(super) const LINE_MAX: usize = 6 * TEXT_MAX * (2 * DETAILS_MAX + 5) + 1024;

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was done.
    Ok,
    /// The caller was not allowed to do it.
    Refused,
    /// It failed.
    Failed,
}

/// The content of a line: who did what.
#[derive(Debug, Clone, Copy)]
pub struct AuditEntry<'a> {
    /// The caller: a local user, a token's name or a key's fingerprint.
    pub caller: &'a str,
    /// The address that the request came from, if it came over a network.
    pub address: Option<&'a str>,
    /// `job.cancel` and the like.
    pub action: &'a str,
    /// The thing that it was done to.
    pub target: &'a str,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// Why it failed or was refused.
    pub code: Option<Code>,
    /// Further details, by name. Never a secret.
    pub details: &'a [(&'a str, &'a str)],
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    caller: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    action: &'a str,
    target: &'a str,
    outcome: AuditOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Details::is_empty")]
    details: Details<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<&'a str>,
}

struct Details<'a>(&'a [(&'a str, &'a str)]);

impl Details<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Details<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, text) in self.0.iter().take(DETAILS_MAX) {
            map.serialize_entry(cut(name), cut(text))?;
        }
        map.end()
    }
}

/// The beginning of a text, in whole characters.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

/// The text of a line, without its line end.
pub(super) fn written(now_ms: i64, entry: &AuditEntry<'_>, previous: Option<&str>) -> String {
    let time = jiff::Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let line = Line {
        time: format!("{time:.3}"),
        caller: cut(entry.caller),
        address: entry.address.map(cut),
        action: cut(entry.action),
        target: cut(entry.target),
        outcome: entry.outcome,
        code: entry.code.map(Code::name),
        details: Details(entry.details),
        previous,
    };
    // Texts, and a map of texts, can always be written as JSON.
    let json = serde_json::to_string(&line).unwrap_or_default();
    let json = escaped(&json);
    debug_assert!(json.len() <= LINE_MAX);
    json
}

/// Writes unprintable characters as `\uXXXX`. In JSON they can stand only within a string, where this is
/// allowed.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if is_unprintable(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    out
}
