//! Changes that nobody waits for, in order, until the disk has taken them.

use std::collections::VecDeque;

use rusqlite::Connection;

use super::{BATCH, DeferredCall, WriteDurability, in_transaction, is_fault_of_change};

/// The changes that are still to be made.
#[derive(Default)]
pub(super) struct DeferredChanges(VecDeque<DeferredCall>);

impl DeferredChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, change: DeferredCall) {
        self.0.push_back(change);
    }

    /// Makes the changes in batches. On an error of the disk the remaining changes stay, in their order.
    pub(super) fn make(&mut self, connection: &mut Connection) -> rusqlite::Result<()> {
        while !self.0.is_empty() {
            let count = self.0.len().min(BATCH);
            let batch = self.0.iter_mut().take(count);
            in_transaction(connection, WriteDurability::System, |transaction| {
                for change in batch {
                    transaction.execute_batch("SAVEPOINT one")?;
                    match change(transaction) {
                        Ok(()) => transaction.execute_batch("RELEASE one")?,
                        // This change would fail each time, and hold up all others.
                        Err(error) if is_fault_of_change(&error) => {
                            tracing::error!(%error, "a change was not made; this is a fault of farhaul itself: please report it");
                            transaction.execute_batch("ROLLBACK TO one; RELEASE one")?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            })?;
            self.0.drain(..count);
        }
        Ok(())
    }
}
