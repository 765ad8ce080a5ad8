//! The statement of one end, and the bytes of it that are signed.
//!
//! Always true: the fields stand in the order of their names, so serde writes the JSON with sorted keys that
//! docs/guide/receipts.md specifies. The bytes begin with the role, so that a signature for one role is not
//! valid for the other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_connect::{Identity, PublicKey};
use farhaul_words::Error;
use serde::{Deserialize, Serialize};

use super::SignedStatement;
use crate::options::Durability;
use crate::request::CopyDirection;

/// The end that makes a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatementSide {
    /// The sender: it has sent this.
    Sent,
    /// The receiver: it has this on its disk, synced.
    Received,
}

impl StatementSide {
    /// The beginning of the signed bytes.
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

    /// The end's name in messages for people.
    pub fn end(self) -> &'static str {
        match self {
            StatementSide::Sent => "sender",
            StatementSide::Received => "receiver",
        }
    }
}

/// One end's statement on a copy. Times are milliseconds since 1970 by that end's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The sum of the files' sizes, modulo 2^64.
    pub bytes: u64,
    /// Files of which the other end computed the digest, not this one, as they were not sent whole.
    pub digests_told: u64,
    /// The direction, seen from the client.
    pub direction: CopyDirection,
    /// When the arrived files were synced.
    pub durable: Durability,
    /// When this statement was signed.
    pub ended_ms: u64,
    /// Files, directories, links and others that are at the destination now.
    pub entries: u64,
    /// Entries of which something failed.
    pub failed: u64,
    /// The files among the entries.
    pub files: u64,
    /// The paths as the client asked the far end for them, escaped as in a report: its sources, or its
    /// destination. The list is cut if it is too long.
    pub paths: Vec<String>,
    /// The number of paths before the list was cut.
    pub paths_in_all: u64,
    /// The program that made the statement, with its version.
    pub program: String,
    /// The receiver's public key as a line without comment; null if that end has none.
    pub receiver_key: Option<String>,
    /// The end that made the statement.
    pub role: StatementSide,
    /// [`RECEIPT_SCHEMA`](super::RECEIPT_SCHEMA).
    pub schema: u32,
    /// The sender's public key, as `receiver_key`.
    pub sender_key: Option<String>,
    /// When the copy began.
    pub started_ms: u64,
    /// 16 random bytes from the client, in hexadecimal digits.
    pub transfer: String,
    /// The root of the digest tree of the entries: see docs/guide/verify.md.
    pub tree_root: String,
    /// Files with content that were there already and were not read: the root has their names, sizes and
    /// times, but not their content.
    pub unread: u64,
}

impl Statement {
    /// The bytes that are signed.
    pub fn message(&self) -> Vec<u8> {
        let mut message = self.role.context().as_bytes().to_vec();
        message.push(b'\n');
        // It has only numbers, texts and lists of them, and all of these can be written as JSON.
        message.extend(serde_json::to_vec(self).unwrap_or_default());
        message
    }

    /// The key of the end that made the statement.
    pub(super) fn own_key(&self) -> Option<PublicKey> {
        let line = match self.role {
            StatementSide::Sent => &self.sender_key,
            StatementSide::Received => &self.receiver_key,
        };
        let key = PublicKey::parse(line.as_deref()?)?;
        // Only the canonical form of a key is accepted.
        (Some(key.line()) == *line).then_some(key)
    }

    pub(super) fn signed(self, identity: &Identity) -> Result<SignedStatement, Error> {
        let signature = STANDARD.encode(identity.sign(&self.message())?);
        Ok(SignedStatement { signature, statement: self })
    }

    /// The fields in which the two statements of a copy must agree, each with its name.
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
