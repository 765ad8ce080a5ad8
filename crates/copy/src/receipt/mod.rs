//! Receipts: both ends of a copy sign a statement, and the client keeps them. docs/guide/receipts.md has the
//! document and the bytes that are signed.
//!
//! `statement.rs` has a statement and how it is signed, `exchange/mod.rs` how the two ends of a session exchange
//! theirs, `check.rs` the checks for whoever has the document later, without a network; `file.rs` writes the
//! document.
//!
//! Always true: an end signs the root that it has computed itself. A signature is good for one role only. A
//! document with anything unknown to its version is refused, so everything in it is signed or compared.
#![deny(missing_docs)]

mod check;
mod exchange;
mod file;
mod statement;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_text::printable;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

pub use check::{CheckedReceipt, manifest_root};
pub(crate) use exchange::{ReceiptExchange, new_transfer};
pub(crate) use file::{is_writable, write};
pub use statement::{Statement, StatementSide};

/// Version of the document and of what is signed.
pub const RECEIPT_SCHEMA: u32 = 1;
/// The most bytes of a document: two statements of the longest paths take a tenth of that.
const DOCUMENT_MAX: usize = 1 << 20;

/// The receipt that a copy is to have. It makes the receiver sync everything, whatever
/// [`Durability`](crate::Durability) says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiptOptions {
    /// The file for the receipt; an existing one is replaced. `None`: it is in the report alone.
    pub file: Option<std::path::PathBuf>,
    /// The copy fails without a receipt, and does not begin if there can be none. Otherwise the report says
    /// why there is none.
    pub is_required: bool,
}

/// The statements that the two ends of one copy have signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// [`RECEIPT_SCHEMA`].
    pub receipt: u32,
    /// By the end that the files went to.
    pub received: SignedStatement,
    /// By the end that the files came from.
    pub sent: SignedStatement,
}

/// A statement with its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedStatement {
    /// The Ed25519 signature in base64, by the key of the end whose statement it is.
    pub signature: String,
    /// The signed statement.
    pub statement: Statement,
}

impl SignedStatement {
    fn signature(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.signature).ok()
    }
}

impl Receipt {
    /// Parses a document of any origin; it does not check the signatures.
    pub fn parse(text: &[u8]) -> Result<Receipt, Error> {
        #[derive(Deserialize)]
        struct Version {
            receipt: u32,
        }
        let bad = |what: String| Error::new(Code::BadReceipt, format!("this is no receipt: {what}"));
        if text.len() > DOCUMENT_MAX {
            return Err(bad("it is longer than any receipt".into()));
        }
        let why = |error: serde_json::Error| match error.is_eof() {
            true => bad("it ends too early".into()),
            false => bad(printable(error.to_string().as_bytes(), 200)),
        };
        let Version { receipt } = serde_json::from_slice(text).map_err(why)?;
        if receipt != RECEIPT_SCHEMA {
            let what = format!("a receipt of version {receipt}, which this farhaul cannot read");
            return Err(Error::new(Code::BadReceipt, what).with_hint("install a newer version"));
        }
        serde_json::from_slice(text).map_err(why)
    }

    /// The document as text.
    pub fn to_json(&self) -> Vec<u8> {
        // Every part of it can be written as JSON.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}
