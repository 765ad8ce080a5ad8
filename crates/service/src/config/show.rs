//! Shows a configuration to people and programs: effective values, and where they come from.
//!
//! Always true: a value is one line of printable TOML; of a secret only its place is shown.

use std::fmt::Write as _;

use serde_json::json;
use toml::Value;

use farhaul::sisters::is_unprintable;

use super::Leaves;
use super::fault::{ConfigFault, ConfigFaults};
use super::keys::{ConfigKey, SCHEMA, Section};
use super::layer::{ValueOrigin, shown_key};
use super::sources::LoadedConfig;

/// Tells whether origins are shown behind the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origins {
    /// With `# /etc/farhaul/farhaul.toml:14` behind each value.
    Shown,
    /// Only values.
    Hidden,
}

impl LoadedConfig {
    /// The effective values as TOML. A key without a value is a comment that says what holds instead.
    pub fn shown(&self, origins: Origins) -> String {
        let leaves = self.config.leaves();
        let mut out = String::new();
        self.each_table(|section, name| {
            if !out.is_empty() {
                out.push('\n');
            }
            let table: Vec<String> = std::iter::once(section.name).chain(name).map(str::to_string).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "[{}]", shown_key(&table));
            for key in section.keys {
                let (value, origin) = self.value_of(&leaves, &table, key);
                let line = match value {
                    Some(value) => format!("{} = {}", key.name, inline(value)),
                    None => format!("# {}: {}", key.name, key.unset),
                };
                let _ = match (origins, value) {
                    (Origins::Shown, Some(_)) => {
                        writeln!(out, "{line}  # {}", printable(&origin.to_string()))
                    }
                    _ => writeln!(out, "{line}"),
                };
            }
        });
        out
    }

    /// The same as JSON: `{"serve.max_rate": {"value": "8G", "origin": {"kind": "file", ...}}}`. A key
    /// without a value has `null`.
    pub fn shown_json(&self) -> serde_json::Value {
        let leaves = self.config.leaves();
        let mut values = serde_json::Map::new();
        self.each_table(|section, name| {
            let table: Vec<String> = std::iter::once(section.name).chain(name).map(str::to_string).collect();
            for key in section.keys {
                let (value, origin) = self.value_of(&leaves, &table, key);
                let mut path = table.clone();
                path.push(key.name.to_string());
                let value = value.map_or(serde_json::Value::Null, |value| json!(value));
                values.insert(shown_key(&path), json!({ "value": value, "origin": told(&origin) }));
            }
        });
        json!({ "schema": 1, "ok": true, "files": self.files, "values": values })
    }

    fn each_table(&self, mut table: impl FnMut(&'static Section, Option<&str>)) {
        let config = &self.config;
        for section in SCHEMA {
            let names: Vec<&String> = match section.name {
                "webhook_receivers" => config.webhook_receivers.keys().collect(),
                "identities" => config.identities.keys().collect(),
                "peers" => config.peers.keys().collect(),
                "caps" => config.caps.keys().collect(),
                "hooks" => config.hooks.keys().collect(),
                "watch" => config.watch.keys().collect(),
                _ => {
                    table(section, None);
                    continue;
                }
            };
            names.into_iter().for_each(|name| table(section, Some(name)));
        }
    }

    fn value_of<'a>(
        &self,
        leaves: &'a Leaves,
        table: &[String],
        key: &ConfigKey,
    ) -> (Option<&'a Value>, ValueOrigin) {
        let mut path = table.to_vec();
        path.push(key.name.to_string());
        (leaves.get(&path), self.origin(&path))
    }
}

impl ConfigFaults {
    /// The faults as JSON, like [`LoadedConfig::shown_json`].
    pub fn json(&self) -> serde_json::Value {
        let of_fault = |fault: &ConfigFault| json!({ "key": fault.key, "message": fault.message, "origin": told(&fault.origin) });
        json!({ "schema": 1, "ok": false, "faults": self.list().iter().map(of_fault).collect::<Vec<_>>() })
    }
}

fn told(origin: &ValueOrigin) -> serde_json::Value {
    match origin {
        ValueOrigin::File { path, line } => {
            json!({ "kind": "file", "file": path.to_string_lossy(), "line": line })
        }
        ValueOrigin::Environment(name) => json!({ "kind": "environment", "name": name }),
        ValueOrigin::Flag(name) => json!({ "kind": "flag", "name": name }),
        ValueOrigin::Default => json!({ "kind": "default" }),
    }
}

fn printable(text: &str) -> String {
    text.replace(is_unprintable, "?")
}

/// A value as one line of TOML.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) if table.is_empty() => "{}".into(),
        Value::Table(table) => {
            let pairs: Vec<String> =
                table.iter().map(|(key, value)| format!("{} = {}", toml_key(key), inline(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

fn toml_key(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_string() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ if is_unprintable(character) => {
                // Writing to a string cannot fail.
                let _ = match u32::from(character) {
                    code @ ..=0xffff => write!(out, "\\u{code:04X}"),
                    code => write!(out, "\\U{code:08X}"),
                };
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}
