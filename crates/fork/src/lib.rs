//! Tells a process from a child that was forked from it, and keeps secrets out of such children.
//!
//! A child has a copy of its parent's memory, and none of the parent's threads. It must not use the parent's
//! sessions: packet numbers would be used twice, and a lock may be held by a thread that the child lacks.
//!
//! How to read it: an [`Origin`] remembers the process in which something was made. A [`PerProcess`] is a static
//! that a child makes anew. A [`SecretBox`] holds bytes that the kernel wipes in a child (`sys.rs`).
//!
//! Always true: nothing here takes a lock that another thread could hold during a fork.
#![deny(unsafe_code)]
#![deny(missing_docs)]

#[expect(unsafe_code, reason = "mappings that the kernel wipes, and values in them")]
mod sys;

pub use sys::{PerProcess, SecretBox};

/// The process in which something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin(u64);

impl Origin {
    /// This process.
    pub fn here() -> Origin {
        Origin(sys::generation())
    }

    /// Returns whether this is still the same process, and not a child of it.
    pub fn is_here(self) -> bool {
        self.0 == sys::generation()
    }

    /// The number of the process in its line of ancestors since the first use: a child's is higher than its
    /// parent's. (It is the process id on a kernel that wipes no memory, before Linux 4.14.)
    pub fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
