//! What callers make this node keep, in bytes: of transfers in memory, and of jobs that are not over in the
//! store.
//!
//! How to read it: each owner of jobs has an account, which lies in that of the node. The memory of jobs lies
//! in the same budget as that of the daemon's clients: there is one process.
//!
//! Always true: what is charged is given back when the job leaves; the service's own user, and the watched
//! folders of the configuration, have no limit but the node's.

use std::collections::HashMap;
use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::budget::threads_of_this_process;
use farhaul_session::{Budget, Charge, MemoryLimits, ResourceLimits, overflow_bytes_max};
use farhaul_words::{Code, Error};

use super::Node;

/// The most that jobs which are not over may make the store keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most jobs, in all.
    pub jobs: usize,
    /// The most jobs of one token.
    pub jobs_each: usize,
    /// The most bytes of their documents, in all.
    pub bytes: u64,
    /// The same for one token.
    pub bytes_each: u64,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits { jobs: 100_000, jobs_each: 100_000, bytes: 1 << 30, bytes_each: 256 << 20 }
    }
}

/// The accounts of a node.
#[derive(Debug)]
pub(crate) struct NodeAccounts {
    /// All transfers of this process, those of the daemon's clients included.
    memory: Budget,
    /// The documents of jobs that are not over.
    stored: Budget,
    each: Mutex<HashMap<String, OwnerAccount>>,
}

#[derive(Debug)]
struct OwnerAccount {
    memory: Budget,
    stored: Budget,
}

/// True if an owner has a limit of its own: a token.
pub(super) fn is_limited(owner: &str) -> bool {
    owner.starts_with("token:")
}

fn memory_limits(bytes: u64) -> ResourceLimits {
    ResourceLimits { overflow_bytes: overflow_bytes_max(bytes), ..ResourceLimits::memory(bytes) }
}

impl NodeAccounts {
    /// The accounts of a node whose transfers may have this much memory.
    pub(crate) fn new(memory: MemoryLimits) -> NodeAccounts {
        let limits = ResourceLimits { threads: threads_of_this_process(), ..memory_limits(memory.process) };
        NodeAccounts {
            memory: Budget::of_process().within("this node", limits),
            stored: Budget::new("this node", ResourceLimits::default()),
            each: Mutex::default(),
        }
    }

    /// The budget of all transfers of this process.
    pub(crate) fn memory(&self) -> &Budget {
        &self.memory
    }

    /// The budget of the transfers of this owner's jobs.
    pub(crate) fn memory_of(&self, owner: &str, limits: MemoryLimits) -> Budget {
        let most = if is_limited(owner) { limits.key } else { u64::MAX };
        self.with(owner, |account| {
            account.memory.set_limits(memory_limits(most));
            account.memory.clone()
        })
    }

    /// Charges the document of a job that was accepted.
    pub(crate) fn keep(&self, owner: &str, bytes: u64, limits: QueueLimits) -> Result<Charge, Error> {
        let each = if is_limited(owner) { limits.bytes_each } else { u64::MAX };
        self.stored.set_limits(ResourceLimits::memory(limits.bytes));
        self.with(owner, |account| {
            account.stored.set_limits(ResourceLimits::memory(each));
            account.stored.charge(bytes).map_err(|_| {
                let used = account.stored.used();
                let (whose, used, most, key) = match used.saturating_add(bytes) > each {
                    true => (owner, used, each, "queued_size_per_principal"),
                    false => ("this node", self.stored.used(), limits.bytes, "queued_size_max"),
                };
                let what = format!(
                    "the jobs of {whose} that are not over take {} MiB of documents, and may take {} MiB: \
                     there is no room for {} KiB more",
                    used >> 20,
                    most >> 20,
                    bytes.div_ceil(1024)
                );
                Error::new(Code::TooMany, what)
                    .with_hint(format!("wait until some are over, or set {key} of [jobs]"))
            })
        })
    }

    /// Charges the document of a job that is there already, whatever the limits are.
    pub(crate) fn keep_anyway(&self, owner: &str, bytes: u64) -> Charge {
        self.stored.set_limits(ResourceLimits::default());
        self.with(owner, |account| {
            account.stored.set_limits(ResourceLimits::default());
            account.stored.charge(bytes).unwrap_or_default()
        })
    }

    fn with<T>(&self, owner: &str, act: impl FnOnce(&OwnerAccount) -> T) -> T {
        let mut each = self.each.lock().in_any_case();
        each.retain(|other, account| {
            other == owner || !account.memory.is_idle() || !account.stored.is_idle()
        });
        let account = each.entry(owner.into()).or_insert_with(|| OwnerAccount {
            memory: self.memory.within(owner, ResourceLimits::default()),
            stored: self.stored.within(owner, ResourceLimits::default()),
        });
        act(account)
    }
}

impl Node {
    /// The budget of the transfers of this owner's jobs.
    pub(super) fn memory_of(&self, owner: &str) -> Budget {
        self.accounts.memory_of(owner, self.settings().memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueLimits = QueueLimits { jobs: 10, jobs_each: 5, bytes: 100 << 20, bytes_each: 60 << 20 };

    #[test]
    fn documents_are_counted_for_each_token_and_in_all() {
        let accounts = NodeAccounts::new(MemoryLimits::default());
        let keep = |owner: &str, mib: u64| accounts.keep(owner, mib << 20, QUEUE);
        let first = keep("token:a", 60).unwrap();
        let refused = keep("token:a", 1).unwrap_err();
        assert_eq!(refused.code(), Code::TooMany);
        assert_eq!(
            refused.to_string(),
            "the jobs of token:a that are not over take 60 MiB of documents, and may take 60 MiB: \
             there is no room for 1024 KiB more"
        );
        let other = keep("token:b", 40).unwrap();
        let refused = keep("local", 1).unwrap_err();
        assert!(refused.to_string().starts_with("the jobs of this node"), "{refused}");
        drop(first);
        // The service's own user has no limit but the node's.
        let own = keep("local", 60).unwrap();
        assert!(keep("token:a", 1).is_err());
        drop((other, own));
        // What an earlier process has accepted is kept, also above the limit.
        let kept = accounts.keep_anyway("token:c", 200 << 20);
        assert!(keep("token:c", 1).is_err() && keep("token:d", 1).is_err());
        drop(kept);
        assert!(keep("token:d", 60).is_ok());
        assert_eq!(accounts.each.lock().unwrap().len(), 1, "no account of owners without jobs");
    }

    #[test]
    fn the_memory_of_jobs_lies_in_that_of_the_node() {
        let limits = MemoryLimits { process: 100, key: 60 };
        let accounts = NodeAccounts::new(limits);
        let (token, local) = (accounts.memory_of("token:a", limits), accounts.memory_of("local", limits));
        assert_eq!((token.memory_max(), local.memory_max()), (60, 100));
        let clients = accounts.memory().within("this daemon", ResourceLimits::memory(100));
        let charge = clients.charge(70).unwrap();
        assert!(token.charge(31).is_err() && local.charge(30).is_ok());
        drop(charge);
        assert!(token.charge(60).is_ok());
    }
}
