//! What the receiver asks of the source. Names and further sources for which the session's request has no room
//! follow as messages.

use std::sync::Arc;

use farhaul_volume::Filter;

use super::super::messages::CopyMessage;
use super::super::receipt::ReceiptExchange;
use super::super::receiver::CopyReceiver;
use super::entry_notes::EntryNotes;

/// The most bytes of names in one message, well below the limit of a message.
const NAMES_BYTES: usize = 32 << 10;

/// The request to the source, and what is noted of its entries.
pub(crate) struct SourceRequest<'a> {
    pub(crate) filter: Filter,
    /// The names to request from the sender, if there is a list of names.
    pub(crate) names: Option<&'a [Vec<u8>]>,
    /// Further sources for which the request had no room.
    pub(crate) more_paths: Option<&'a [Vec<u8>]>,
    pub(crate) notes: EntryNotes,
    /// Set if there is to be a receipt.
    pub(crate) receipt: Option<Arc<ReceiptExchange>>,
}

impl CopyReceiver {
    /// Sends the sender its further sources, and the names that are wanted.
    pub(super) fn ask_for(&self, paths: Option<&[Vec<u8>]>, names: Option<&[Vec<u8>]>) {
        for (paths, is_last) in paths.into_iter().flat_map(in_parts) {
            self.shared.send(&[CopyMessage::Paths { paths, is_last }]);
        }
        for (names, is_last) in names.into_iter().flat_map(in_parts) {
            self.shared.send(&[CopyMessage::Names { names, is_last }]);
        }
    }
}

/// Splits a list into parts that each fit a message, and marks the last one.
fn in_parts(list: &[Vec<u8>]) -> Vec<(Vec<Vec<u8>>, bool)> {
    let mut parts = Vec::new();
    let mut rest = list;
    loop {
        let mut bytes = 0;
        let fits = |name: &&Vec<u8>| {
            bytes += name.len() + 10;
            bytes <= NAMES_BYTES
        };
        let count = rest.iter().take_while(fits).count();
        let (some, more) = rest.split_at(count);
        let is_last = more.is_empty() || some.is_empty();
        parts.push((some.to_vec(), is_last));
        if is_last {
            return parts;
        }
        rest = more;
    }
}
