//! One line of the audit log.
//!
//! Always true: it is one line of at most [`LINE_MAX`] bytes, ASCII for all that a terminal could act on, and
//! JSON that gives back the texts, cut where they are too long.

use std::fmt::Write as _;

use farhaul::{Code, is_unprintable};
use serde::Serialize;
use serde::ser::SerializeMap as _;

/// Bytes of one text.
const TEXT_MAX: usize = 1024;

/// Details of one line; further ones are left out.
const DETAILS_MAX: usize = 16;

/// Each byte of a text can become six (`\u001b`), each detail has two texts, and there are four others; then
/// names and digest.
pub(super) const LINE_MAX: usize = 6 * TEXT_MAX * (2 * DETAILS_MAX + 5) + 1024;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was done.
    Ok,
    /// Who asked may not.
    Refused,
    /// It could not be done.
    Failed,
}

/// Who did what.
#[derive(Debug, Clone, Copy)]
pub struct AuditEntry<'a> {
    /// Who asked: a local user, a token's name, a key's fingerprint.
    pub caller: &'a str,
    /// From where, for who came by a network.
    pub address: Option<&'a str>,
    /// `job.cancel` and the like.
    pub action: &'a str,
    /// What it was done to.
    pub target: &'a str,
    /// What came of it.
    pub outcome: AuditOutcome,
    /// Why not.
    pub code: Option<Code>,
    /// More, by names. Never a secret.
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

/// The beginning of a text, whole characters.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

/// Without a line end.
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
    // Texts and a map with texts for keys can always be written as JSON.
    let json = serde_json::to_string(&line).unwrap_or_default();
    let json = escaped(&json);
    debug_assert!(json.len() <= LINE_MAX);
    json
}

/// What is unprintable stands in a text of JSON only, where it may be written by its number.
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
