//! Takes connections of HTTP: listeners with and without TLS, a place for each connection, and how long each may
//! keep us waiting.
//!
//! How to read it: `listen.rs` accepts connections and hands their requests to a router; `connection/` says how many
//! there are, whose they are, and how slow they may be.
//!
//! Does not know: what is asked for and who may ask. A router says whose a connection is ([`Connection::show`]).
#![forbid(unsafe_code)]

mod connection;
mod listen;
mod private_directory;
mod socket;

pub use connection::{BodyTooSlow, Connection, Network, NoPlace, PlaceCounts, ProcessPurpose};
pub use listen::{HttpVersions, ListenAddresses, Listeners, ReloadableTls, RequestOrigin, Server, TcpOrigin};
pub use private_directory::private_directory;
pub use socket::PrivateSocket;
