//! Link back ends: the only place where a datagram meets the kernel.
//!
//! A [`Link`] moves batches of datagrams and says what it can do; it knows neither packets nor keys.
//! [`SendBatch`] and [`RecvBatch`] own the bytes. The back ends are [`UdpLink`] (UDP sockets with GSO and
//! GRO), [`StreamLink`] (the same datagrams over a pipe or a TCP connection), [`memory_pair`] (both ends in
//! one process, for tests) and [`FaultLink`] (loses datagrams on purpose, by a seed). The thread that owns a
//! link sleeps in [`wait()`], from which a [`Waker`] wakes it. [`interfaces()`] lists the addresses by which
//! this host can be reached, [`source_address`] the one from which it would send,
//! [`is_of_this_host`] whether an address is one of its own.
//!
//! Always true: no call blocks except [`wait()`]; a datagram that the network or the kernel refuses is
//! counted in [`LinkStats`] and is never an error; an error means that the link can no longer be used.
//!
//! Does not know: what is in a datagram, who the peer is, how fast to send.
#![deny(unsafe_code)]

mod batch;
mod fault;
mod interfaces;
mod link;
mod lookup;
mod memory;
mod own_address;
mod path_mtu;
mod scope;
mod socket;
mod stream;
#[expect(unsafe_code, reason = "the raw system calls, each with its reason")]
mod sys;
mod wait;

pub use batch::{DATAGRAM_LEN_MAX, Datagram, Datagrams, RecvBatch, SendBatch};
pub use fault::{Fault, FaultError, FaultLink};
pub use interfaces::{Interface, interfaces, source_address};
pub use link::{Capabilities, Link, LinkStats, SendStatus, TcpPath};
pub use lookup::is_name_server_away;
pub use memory::{MemoryLink, memory_pair};
pub use own_address::is_of_this_host;
pub use path_mtu::mtu_to;
pub use scope::{interface_of, is_link_local, on_interface, scoped, with_port, with_scope};
pub use socket::{SOCKET_BUFFER_BYTES, UdpLink, keep_datagrams_apart};
pub use stream::{NonblockingStream, StreamLink};
pub use sys::canonical;
pub use wait::{PollFd, Waker, sched_batch, timer_slack_min, wait};
