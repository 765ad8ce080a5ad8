//! Shows the files of a far location as files of this host, by the kernel's FUSE protocol. It is read-only.
//!
//! How to read it: [`mount`] (`mounting.rs`) asks the kernel for a connection, and `server.rs` answers what comes over it
//! (`wire.rs` has the bytes), each request on a thread of its own (`workers.rs`). A request has a ticket (`tickets.rs`),
//! by which it is answered once: by what was found, by a signal, or by the end of its time. `file_system.rs` has the
//! operations, over nodes (`nodes.rs`) and contents with their read-ahead (`content.rs`). `failure.rs` turns errors of the
//! far end into those that the kernel knows.
//!
//! Always true: a node is one version of a file, so that the kernel's page cache never has bytes of two. A read returns
//! bytes of the version that was opened, or an error. No request waits longer than its time, or after a signal.
//!
//! Why no library: of those for Rust, the one that is best kept (`fuser`) answers `FUSE_INTERRUPT` with ENOSYS. From then
//! on the kernel lets no signal end a wait, not even SIGKILL, and a far host that goes away makes processes that cannot
//! be killed. The read-only part of the protocol is smaller than what would have to be changed there.
#![forbid(unsafe_code)]

mod content;
mod failure;
mod file_system;
mod mounting;
mod nodes;
mod server;
mod tickets;
mod unmounting;
mod wire;
mod workers;

pub use mounting::{MountOptions, Mounted, mount};
pub use unmounting::{UnmountForce, unmount};
