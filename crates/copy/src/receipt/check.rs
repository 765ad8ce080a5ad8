//! Checks a receipt by the keys of its ends, without a network.

use std::path::Path;

use farhaul_connect::PublicKey;
use farhaul_session::handle::Handle;
use farhaul_volume::Algorithm;
use farhaul_words::{Code, Error};

use super::{RECEIPT_SCHEMA, Receipt, SignedStatement, StatementSide};
use crate::manifest::shown_root;
use crate::verify::ExpectedList;

/// The ends of a receipt in which everything is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedReceipt {
    /// The sender's key, and whether the caller trusts it.
    pub sender: (PublicKey, bool),
    /// The receiver's key, and whether the caller trusts it.
    pub receiver: (PublicKey, bool),
}

impl Receipt {
    /// Checks both signatures, that both ends say the same, that each trusted key (at least one) belongs to
    /// one of the ends and, if a root is given, that it is theirs. Each fault has an error text of its own.
    pub fn check(&self, trusted: &[PublicKey], root: Option<&str>) -> Result<CheckedReceipt, Error> {
        if trusted.is_empty() {
            return Err(Error::new(
                Code::Misuse,
                "a receipt is checked with the key of at least one of its ends",
            ));
        }
        let sender = of_part(&self.sent, StatementSide::Sent)?;
        let receiver = of_part(&self.received, StatementSide::Received)?;
        let (ours, theirs) = (self.sent.statement.shared(), self.received.statement.shared());
        if let Some(((field, _), _)) = ours.iter().zip(&theirs).find(|(one, other)| one != other) {
            return Err(wrong(format!("its two ends do not say the same: '{field}' differs")));
        }
        if let Some(stranger) = trusted.iter().find(|key| **key != sender && **key != receiver) {
            let what = format!(
                "it is by other keys: the sender's is {}, the receiver's {}, and neither is {}",
                sender.fingerprint(),
                receiver.fingerprint(),
                stranger.fingerprint()
            );
            return Err(wrong(what));
        }
        let theirs = &self.received.statement.tree_root;
        if let Some(root) = root.filter(|root| root != theirs) {
            return Err(wrong(format!(
                "it is not for this manifest: its root is {theirs}, the manifest's {root}"
            )));
        }
        let is_trusted = |key: &PublicKey| trusted.contains(key);
        let (by_sender, by_receiver) = (is_trusted(&sender), is_trusted(&receiver));
        Ok(CheckedReceipt { sender: (sender, by_sender), receiver: (receiver, by_receiver) })
    }
}

fn wrong(what: String) -> Error {
    Error::new(Code::ReceiptWrong, format!("the receipt is not right: {what}"))
}

/// Checks the statement in the place of `part`, and returns the key that has signed it.
fn of_part(signed: &SignedStatement, part: StatementSide) -> Result<PublicKey, Error> {
    let SignedStatement { statement, .. } = signed;
    if statement.role != part {
        let what =
            format!("the {1}'s statement is in the place of the {0}'s", part.end(), statement.role.end());
        return Err(wrong(what));
    }
    if statement.schema != RECEIPT_SCHEMA {
        return Err(wrong(format!("the {}'s statement has another version than the receipt", part.end())));
    }
    if !is_hex(&statement.tree_root, 64) || !is_hex(&statement.transfer, 32) {
        return Err(wrong(format!("the {}'s statement has a value that none can have", part.end())));
    }
    let Some(key) = statement.own_key() else {
        return Err(wrong(format!("the {} names no key of its own", part.end())));
    };
    let is_good =
        signed.signature().is_some_and(|signature| key.has_signed(&statement.message(), &signature));
    match is_good {
        true => Ok(key),
        false => Err(wrong(format!(
            "the signature of the {} does not fit its statement: that was changed, or somebody else has signed it",
            part.end()
        ))),
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Computes the root of the digest tree from a manifest.
pub fn manifest_root(path: &Path) -> Result<String, Error> {
    let bad = |what: String| Error::new(Code::BadManifest, what);
    let mut list = ExpectedList::open(path, Algorithm::Sha256, &Handle::new()).map_err(bad)?;
    while list.next().map_err(bad)?.is_some() {}
    match list.root() {
        Some(root) => Ok(shown_root(&root)),
        None => Err(bad(format!("{} is not a manifest, or has no end", path.display()))),
    }
}
