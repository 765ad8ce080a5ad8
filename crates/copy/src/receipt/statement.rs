//! What an end says, and the bytes of it that are signed.
//!
//! Always true: the fields stand in the order of their names, so that what serde writes is the JSON with sorted keys that
//! docs/guide/receipts.md publishes; the bytes begin with the role, so that a signature for one is none for the other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_connect::{Identity, PublicKey};
use farhaul_session::error::Error;
use serde::{Deserialize, Serialize};

use super::SignedStatement;
use crate::options::Durability;
use crate::request::CopyDirection;

/// Which end speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatementSide {
    /// It has sent this.
    Sent,
    /// This stands on its disk, synced.
    Received,
}

impl StatementSide {
    /// What is signed begins with it.
    pub fn context(self) -> &'static str {
        match self {
            StatementSide::Sent => "farhaul receipt v1 sent",
            StatementSide::Received => "farhaul receipt v1 received",
        }
    }

    pub(super) fn other(self) -> StatementSide {
        match self {
            StatementSide::Sent => StatementSide::Received,
            StatementSide::Received => StatementSide::Sent,
        }
    }

    /// For people.
    pub fn end(self) -> &'static str {
        match self {
            StatementSide::Sent => "sender",
            StatementSide::Received => "receiver",
        }
    }
}

/// What one end says of a copy. Times are milliseconds since 1970 by its own clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Sizes of the files together, modulo 2^64.
    pub bytes: u64,
    /// Files whose digest the other end has computed, and this one has not: of what was not sent whole.
    pub digests_told: u64,
    /// Seen from the client.
    pub direction: CopyDirection,
    /// When what has arrived was synced.
    pub durable: Durability,
    /// When this was signed.
    pub ended_ms: u64,
    /// Files, directories, links and others that are there now.
    pub entries: u64,
    /// Entries of which something failed.
    pub failed: u64,
    /// Of the entries.
    pub files: u64,
    /// As asked for at the far end, escaped as in a report: its sources, or its destination. As many as fit.
    pub paths: Vec<String>,
    /// How many there were.
    pub paths_in_all: u64,
    /// Who says it.
    pub program: String,
    /// The line of a public key, without its comment; null if that end has none.
    pub receiver_key: Option<String>,
    /// Which end says it.
    pub role: StatementSide,
    /// [`RECEIPT_SCHEMA`](super::RECEIPT_SCHEMA).
    pub schema: u32,
    /// As `receiver_key`.
    pub sender_key: Option<String>,
    /// When the copy began.
    pub started_ms: u64,
    /// 16 random bytes by the client, in hexadecimal digits.
    pub transfer: String,
    /// Of all that is there now: see docs/guide/verify.md.
    pub tree_root: String,
    /// Files that are not empty, were there already and were not read: their names, sizes and times are in the root, their contents are not.
    pub unread: u64,
}

impl Statement {
    /// The bytes that are signed.
    pub fn message(&self) -> Vec<u8> {
        let mut message = self.role.context().as_bytes().to_vec();
        message.push(b'\n');
        // Numbers, texts and lists of them, all of which have a form in JSON.
        message.extend(serde_json::to_vec(self).unwrap_or_default());
        message
    }

    /// The key of the end that says it.
    pub(super) fn own_key(&self) -> Option<PublicKey> {
        let line = match self.role {
            StatementSide::Sent => &self.sender_key,
            StatementSide::Received => &self.receiver_key,
        };
        let key = PublicKey::parse(line.as_deref()?)?;
        // A key is written in one way.
        (Some(key.line()) == *line).then_some(key)
    }

    pub(super) fn signed(self, identity: &Identity) -> Result<SignedStatement, Error> {
        let signature = STANDARD.encode(identity.sign(&self.message())?);
        Ok(SignedStatement { signature, statement: self })
    }

    /// In what two statements of one copy must be the same: each by its name.
    pub(super) fn shared(&self) -> [(&'static str, String); 12] {
        let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
        [
            ("bytes", text(&self.bytes)),
            ("direction", text(&self.direction)),
            ("durable", text(&self.durable)),
            ("entries", text(&self.entries)),
            ("files", text(&self.files)),
            ("paths", text(&(&self.paths, self.paths_in_all))),
            ("receiver_key", text(&self.receiver_key)),
            ("schema", text(&self.schema)),
            ("sender_key", text(&self.sender_key)),
            ("transfer", text(&self.transfer)),
            ("tree_root", text(&self.tree_root)),
            ("unread", text(&self.unread)),
        ]
    }
}
