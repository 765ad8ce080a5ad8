//! Receipts: what each end of a copy has signed, kept by the client. docs/guide/receipts.md has the document and the bytes that are signed.
//!
//! How to read it: `statement.rs` is what an end says, and how that is signed; `exchange.rs` is how the two ends of a session come to
//! their statements; `check.rs` is for whoever has the document later, without a network; `file.rs` writes it.
//!
//! Always true: an end signs the root that it has computed itself; a signature is good for one role only; a document that is read is
//! refused if it says anything that its version does not know, so that everything in it is signed or compared.
#![deny(missing_docs)]

mod check;
mod exchange;
mod file;
mod statement;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_session::error::{Code, Error};
use farhaul_text::printable;
use serde::{Deserialize, Serialize};

pub use check::{CheckedReceipt, manifest_root};
pub(crate) use exchange::{ReceiptExchange, new_transfer};
pub(crate) use file::{is_writable, write};
pub use statement::{Statement, StatementSide};

/// Version of the document and of what is signed.
pub const RECEIPT_SCHEMA: u32 = 1;
/// A document of more bytes is none: two statements of the longest paths take a tenth of it.
const DOCUMENT_MAX: usize = 1 << 20;

/// Whether a copy is to have a receipt. It has the receiver sync everything, whatever
/// [`Durability`](crate::Durability) says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiptOptions {
    /// A file that takes it, in the place of whatever is there. None: it is in the report alone.
    pub file: Option<std::path::PathBuf>,
    /// Without it the copy has failed; where there can be none, it does not begin. Else the report says why there is none.
    pub is_required: bool,
}

/// What the two ends of one copy have signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// [`RECEIPT_SCHEMA`].
    pub receipt: u32,
    /// By the end that has the files now.
    pub received: SignedStatement,
    /// By the end that had them.
    pub sent: SignedStatement,
}

/// A statement and who stands for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedStatement {
    /// Ed25519, in base64, by the key of the statement's own end.
    pub signature: String,
    /// What is signed.
    pub statement: Statement,
}

impl SignedStatement {
    fn signature(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.signature).ok()
    }
}

impl Receipt {
    /// Reads a document of any origin; says nothing yet of its signatures.
    pub fn parse(text: &[u8]) -> Result<Receipt, Error> {
        #[derive(Deserialize)]
        struct Version {
            receipt: u32,
        }
        let bad = |what: String| Error::new(Code::BadReceipt, format!("this is no receipt: {what}"));
        if text.len() > DOCUMENT_MAX {
            return Err(bad("it is longer than any".into()));
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

    /// The document.
    pub fn to_json(&self) -> Vec<u8> {
        // All that it consists of has a form in JSON.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}
