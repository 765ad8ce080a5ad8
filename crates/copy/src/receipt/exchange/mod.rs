//! The exchange of statements between the two ends of a session. The receiver sends its own when everything
//! is there and synced; the sender compares the root with the one that it has computed, and answers with its
//! own statement; the receiver compares, and ends.
//!
//! Always true: the other end's statement is kept only if it fits what this end knows, and if it is signed by
//! the key that the connection has proved.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use farhaul_connect::SessionKeys;
use farhaul_connect::hello::HelloSecret;
use farhaul_text::{escape, is_unprintable, printable};
use farhaul_words::{Error, Misbehaviour};

use super::{RECEIPT_SCHEMA, Receipt, SignedStatement, Statement, StatementSide};
use crate::manifest::{ManifestTally, shown_root};
use crate::messages::CopyMessage;
use crate::options::Durability;
use crate::request::{CopyDirection, CopyRequest};

/// The most bytes of paths in a statement.
const PATHS_BYTES_MAX: usize = 16 << 10;
/// The most bytes of the other end's program name, and of its reason for having no statement.
const TEXT_MAX: usize = 200;

/// One end's part in a receipt.
#[derive(Debug)]
pub(crate) struct ReceiptExchange {
    keys: SessionKeys,
    part: StatementSide,
    transfer: String,
    direction: CopyDirection,
    durable: Durability,
    paths: Vec<String>,
    paths_in_all: u64,
    started_ms: u64,
    own: OnceLock<Result<SignedStatement, String>>,
    theirs: OnceLock<Result<SignedStatement, String>>,
}

/// Makes a random name for a transfer.
pub(crate) fn new_transfer() -> Result<String, Error> {
    let random = HelloSecret::random()?;
    Ok(random.0[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl ReceiptExchange {
    /// Returns `None` if no receipt is asked for.
    pub(crate) fn new(
        request: &CopyRequest,
        keys: Option<&SessionKeys>,
        part: StatementSide,
    ) -> Option<ReceiptExchange> {
        let integrity = &request.options.integrity;
        let (transfer, keys) = (integrity.receipt.clone()?, keys?.clone());
        let mut bytes = 0;
        let paths = request.paths.iter().map(|path| escape(path)).take_while(|path| {
            bytes += path.len();
            bytes <= PATHS_BYTES_MAX
        });
        Some(ReceiptExchange {
            keys,
            part,
            transfer,
            direction: request.direction,
            durable: integrity.durable,
            paths: paths.collect(),
            paths_in_all: request.paths.len() as u64 + request.more_paths,
            started_ms: now_ms(),
            own: OnceLock::new(),
            theirs: OnceLock::new(),
        })
    }

    fn statement(&self, tally: &ManifestTally, failed: u64) -> Statement {
        let (own, peer) = (Some(self.keys.own.public().line()), Some(self.keys.peer.line()));
        let (sender_key, receiver_key) = match self.part {
            StatementSide::Sent => (own, peer),
            StatementSide::Received => (peer, own),
        };
        Statement {
            bytes: tally.bytes,
            digests_told: tally.told,
            direction: self.direction,
            durable: self.durable,
            ended_ms: now_ms(),
            entries: tally.entries,
            failed,
            files: tally.files,
            paths: self.paths.clone(),
            paths_in_all: self.paths_in_all,
            program: concat!("farhaul ", env!("CARGO_PKG_VERSION")).to_string(),
            receiver_key,
            role: self.part,
            schema: RECEIPT_SCHEMA,
            sender_key,
            started_ms: self.started_ms,
            transfer: self.transfer.clone(),
            tree_root: shown_root(&tally.root()),
            unread: tally.unread,
        }
    }

    /// Signs this end's statement and makes the message with it. `tally` is `None` if this end could not
    /// compute the root.
    pub(crate) fn say(&self, tally: Option<&ManifestTally>, failed: u64) -> CopyMessage {
        let own = self.own.get_or_init(|| {
            let tally = tally.ok_or("the root of the entries could not be computed")?;
            self.statement(tally, failed).signed(&self.keys.own).map_err(|error| error.to_string())
        });
        match own {
            Ok(signed) => {
                let statement = serde_json::to_vec(signed).unwrap_or_default();
                CopyMessage::Receipt { statement, reason: String::new() }
            }
            Err(reason) => CopyMessage::Receipt { statement: Vec::new(), reason: reason.clone() },
        }
    }

    /// Whether this end has sent its statement, or its reason for having none.
    pub(crate) fn has_said(&self) -> bool {
        self.own.get().is_some()
    }

    /// Whether the other end's statement or reason has arrived.
    pub(crate) fn has_heard(&self) -> bool {
        self.theirs.get().is_some()
    }

    /// Takes the other end's statement or reason. Fails if it does not fit, or if its root is not that of
    /// `tally`.
    pub(crate) fn hear(
        &self,
        statement: &[u8],
        reason: &str,
        tally: Option<&ManifestTally>,
    ) -> Result<(), Error> {
        let unfit = |what: &str| Error::misbehaved(Misbehaviour::ReceiptUnfit, what.to_string());
        let theirs = if statement.is_empty() {
            let reason = if reason.is_empty() { "it does not say why" } else { reason };
            Err(printable(reason.as_bytes(), TEXT_MAX))
        } else {
            let signed =
                serde_json::from_slice(statement).map_err(|_| unfit("its receipt cannot be understood"))?;
            self.judge(&signed, tally)?;
            Ok(signed)
        };
        self.theirs.set(theirs).map_err(|_| unfit("it signs twice"))
    }

    fn judge(&self, signed: &SignedStatement, tally: Option<&ManifestTally>) -> Result<(), Error> {
        let unfit = |what: String| Err(Error::misbehaved(Misbehaviour::ReceiptUnfit, what));
        let SignedStatement { statement, .. } = signed;
        if statement.role != self.part.other() {
            return unfit("it signs for this end".into());
        }
        let is_text = statement.program.len() <= TEXT_MAX && !statement.program.contains(is_unprintable);
        if !is_text || statement.role == StatementSide::Received && statement.digests_told != 0 {
            return unfit("its receipt has a value that none can have".into());
        }
        let is_good = signed
            .signature()
            .is_some_and(|signature| self.keys.peer.has_signed(&statement.message(), &signature));
        if !is_good {
            return unfit("the signature of its receipt is wrong".into());
        }
        // Without a root of its own, this end has no statement either.
        let Some(tally) = tally else { return Ok(()) };
        let (own, theirs) = (self.statement(tally, 0).shared(), statement.shared());
        match own.iter().zip(&theirs).find(|(own, theirs)| own != theirs) {
            None => Ok(()),
            Some(((field @ ("bytes" | "entries" | "files" | "tree_root" | "unread"), own), (_, theirs))) => {
                let theirs = printable(theirs.as_bytes(), TEXT_MAX);
                let what =
                    format!("its receipt is for other contents: {field} is {theirs} there and {own} here");
                Err(Error::misbehaved(Misbehaviour::RootDiffers, what))
            }
            Some(((field, _), _)) => unfit(format!("its receipt is for another copy: {field} differs")),
        }
    }

    /// The receipt that both ends have signed, or why there is none.
    pub(crate) fn receipt(&self) -> Result<Receipt, String> {
        let of = |said: &OnceLock<Result<SignedStatement, String>>, who: &str| match said.get() {
            Some(Ok(signed)) => Ok(signed.clone()),
            Some(Err(reason)) => Err(format!("{who} has signed nothing: {reason}")),
            None => Err(format!("{who} has signed nothing: the copy has not come to its end")),
        };
        let (own, theirs) = (of(&self.own, "this end")?, of(&self.theirs, "the far end")?);
        let (sent, received) = match self.part {
            StatementSide::Sent => (own, theirs),
            StatementSide::Received => (theirs, own),
        };
        Ok(Receipt { receipt: RECEIPT_SCHEMA, received, sent })
    }
}

#[cfg(test)]
mod tests;
