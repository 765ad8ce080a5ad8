//! Blocks of a program's own from one process to another, over the engine that `farhaul cp` uses.
//!
//! A stream carries blocks one way. The sending program [claims](Sender::claim) a block, fills it where it lies and
//! [puts](Sender::put) it with some metadata; the cipher reads it from there. The receiving program takes what has
//! [arrived](Receiver::next) and reads it where the transport has put it. Short [messages](Sender::send_message) go both ways, and
//! [`Sender::wait`] returns when the receiver has let go of all that was put.
//!
//! | who begins | who answers |
//! | --- | --- |
//! | [`connect_to_send`] or [`connect_to_receive`] with [`Target::Daemon`] | a program with a [`Listener`] |
//! | the same with [`Target::Ssh`] | the program that ssh starts, with [`accept_stdio`] |
//! | [`pair`] | the same process |
//!
//! ```
//! use farhaul_engine::stream::{StreamOptions, pair};
//!
//! let (sender, receiver) = pair(StreamOptions::new("numbers"))?;
//! let reading = std::thread::spawn(move || {
//!     let mut sum = 0;
//!     while let Some(block) = receiver.next()? {
//!         assert_eq!(block.metadata(), b"three bytes");
//!         sum += block.iter().map(|&byte| u64::from(byte)).sum::<u64>();
//!     }
//!     receiver.finish()?;
//!     Ok::<_, farhaul_engine::Error>(sum)
//! });
//! let mut block = sender.claim()?;
//! block.set_len(3);
//! block.copy_from_slice(&[1, 2, 3]);
//! sender.put(block, b"three bytes")?;
//! sender.finish()?;
//! assert_eq!(reading.join().unwrap()?, 6);
//! # Ok::<_, farhaul_engine::Error>(())
//! ```
//!
//! # Blocks and memory
//!
//! All blocks lie in one mapping of [`TransferOptions::memory_bytes`] at each end, each of [`BLOCK_LEN_MAX`] bytes. A put block
//! is free again when the far end's transport has it. [`Sender::claim`] waits while none is free, so a program that keeps
//! claimed blocks, or a receiver that keeps arrived ones, slows the stream down to what it lets go of.
//!
//! # Order
//!
//! A lost packet delays its own block only: by default blocks are handed out as they complete, and
//! [`Arrived::number`] says how many were put before. With [`StreamOptions::in_order`] they come in the order in
//! which they were put, over one flow.
//!
//! # Trust
//!
//! As for `cp`: ssh's, or Ed25519 keys on both sides. Every packet is sealed; digests over each block guard against
//! faulty memory and are on with [`Verify::Digest`].
#![deny(missing_docs)]

/// What both ends can do.
macro_rules! common_calls {
    ($end:ident) => {
        impl $end {
            /// Sends a message of at most [`MESSAGE_LEN_MAX`](super::MESSAGE_LEN_MAX) bytes to the other program. Messages
            /// come in their order, but not in step with blocks.
            pub fn send_message(&self, message: &[u8]) -> Result<(), Error> {
                self.session.send_message(message)
            }

            /// The next message of the other program; none if none comes in time. 16 MiB may wait: a program that leaves more
            /// unread ends the stream.
            pub fn message(&self, wait: Duration) -> Result<Option<Vec<u8>>, Error> {
                self.session.message(wait)
            }

            /// Changes the sender's policy, ceiling and floor, whichever end asks for it, within a twentieth of a second and
            /// the way there.
            pub fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
                self.session.set_rate(rate)
            }

            /// Takes one of [`TransferOptions::paths`](crate::TransferOptions::paths) out of the running stream, by its
            /// place there, or in again. What is under way on it is finished there. The last one cannot be taken out.
            pub fn use_path(&self, path: usize, is_used: bool) -> Result<(), Error> {
                self.session.use_path(path, is_used)
            }

            /// Begins one more path between these addresses, at the end that has connected; returns its number for
            /// [`use_path`](Self::use_path). It carries blocks when it has answered, and none before;
            /// [`TransferOptions::further_paths`](crate::TransferOptions::further_paths) says how many there can be.
            pub fn add_path(&self, addresses: PathAddresses) -> Result<usize, Error> {
                self.session.add_path(addresses)
            }

            /// Counters to look at meanwhile: bytes that the other end has, round trip, loss.
            pub fn progress(&self) -> &Progress {
                &self.session.progress
            }

            /// The stream's name.
            pub fn name(&self) -> &str {
                &self.session.name
            }

            /// The other end's host or address, for people.
            pub fn peer(&self) -> &str {
                &self.session.peer
            }

            /// Fingerprint of the other end's key; none over ssh and within a process.
            pub fn peer_key(&self) -> Option<&str> {
                self.session.peer_key.as_deref()
            }
        }

        impl std::fmt::Debug for $end {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = formatter.debug_struct(stringify!($end));
                shown.field("name", &self.name()).field("peer", &self.peer()).finish_non_exhaustive()
            }
        }
    };
}
use common_calls;

mod accept;
mod label;
pub(crate) mod messages;
mod receiver;
mod sender;
mod session;

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use farhaul_volume::CHUNK;

use crate::connect;
use crate::connect::hello::{Direction, Request, StreamTerms};
use crate::connect::{DaemonTarget, Established, HelloParams, SshTarget};
use crate::error::Error;
use crate::options::{TransferOptions, Verify};

pub use accept::{Accepted, ListenOptions, Listener, accept_stdio};
pub use label::METADATA_MAX;
pub use receiver::{Arrived, Receiver};
pub use sender::Sender;

/// Bytes of content that a block holds at most.
pub const BLOCK_LEN_MAX: usize = CHUNK as usize;
/// Longest message, in bytes.
pub const MESSAGE_LEN_MAX: usize = 60 << 10;
/// Longest name of a stream, in bytes.
const NAME_MAX: usize = 255;

/// How a stream is set up. The end that connects says it.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// What the stream is about: the far end sees it before anything else. 1 to 255 bytes.
    pub name: String,
    /// Hand blocks out in the order in which they were put. Then `flows` and `paths` beyond the first are not used.
    pub in_order: bool,
    /// Rate, policy, cipher, flows, paths, memory and ports; what is about files is not looked at.
    pub transfer: TransferOptions,
}

impl StreamOptions {
    /// The usual ones: any order, one flow, AES-128-GCM, no digests.
    pub fn new(name: impl Into<String>) -> StreamOptions {
        let transfer = TransferOptions { verify: Verify::Transit, ..TransferOptions::default() };
        StreamOptions { name: name.into(), in_order: false, transfer }
    }

    fn request(self, direction: Direction) -> Result<Request, Error> {
        if self.name.is_empty() || self.name.len() > NAME_MAX {
            return Err(Error::Usage("a stream's name has 1 to 255 bytes".into()));
        }
        let mut options = self.transfer;
        if self.in_order {
            options.network.flows = 1;
            options.network.paths.truncate(1);
            (options.network.auto_paths, options.network.further_paths) = (false, 0);
        }
        Ok(Request {
            direction,
            paths: vec![self.name.into_bytes()],
            target_is_directory: false,
            single_file: false,
            stream: Some(StreamTerms { in_order: self.in_order }),
            target_is_name: false,
            options: options.checked()?,
        })
    }
}

/// The program at the other end.
#[derive(Debug, Clone)]
pub enum Target {
    /// One that ssh starts on its host: [`SshTarget::remote_program`], with the argument `endpoint`. It calls [`accept_stdio`].
    Ssh(SshTarget),
    /// One that has a [`Listener`] there.
    Daemon(DaemonTarget),
}

/// Begins a stream on which this end sends.
pub fn connect_to_send(target: &Target, options: StreamOptions) -> Result<Sender, Error> {
    Ok(Sender::new(session::begin(connect(target, options, Direction::Push)?)?))
}

/// Begins a stream on which this end receives.
pub fn connect_to_receive(target: &Target, options: StreamOptions) -> Result<Receiver, Error> {
    Ok(Receiver::new(session::begin(connect(target, options, Direction::Pull)?)?))
}

/// Both ends in this process.
pub fn pair(options: StreamOptions) -> Result<(Sender, Receiver), Error> {
    let (near, far) = crate::copy::job::local_pair(options.request(Direction::Push)?)?;
    Ok((Sender::new(session::begin(near)?), Receiver::new(session::begin(far)?)))
}

fn connect(target: &Target, options: StreamOptions, direction: Direction) -> Result<Established, Error> {
    let params = HelloParams { request: options.request(direction)?, udp: true, early: false };
    match target {
        Target::Ssh(target) => connect::ssh_connect(target, params),
        Target::Daemon(target) => connect::daemon_connect(target, params),
    }
}

/// A claimed block: memory of the stream's, to be filled in place. It covers [`BLOCK_LEN_MAX`] bytes, whatever is in them, until
/// [`Block::set_len`]. Dropped, it is free again.
#[derive(Debug)]
pub struct Block {
    block: farhaul_blocks::Block,
    claimed: Instant,
}

impl Block {
    fn new(mut block: farhaul_blocks::Block) -> Block {
        block.set_len(BLOCK_LEN_MAX);
        Block { block, claimed: Instant::now() }
    }

    /// Says how many bytes are sent.
    ///
    /// # Panics
    /// Beyond [`BLOCK_LEN_MAX`].
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= BLOCK_LEN_MAX, "a block holds {BLOCK_LEN_MAX} bytes, not {len}");
        self.block.set_len(len);
    }

    /// The memory, for calls that fill it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.block
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.block
    }
}

/// The name of the stream that a request is about.
fn name_of(request: &Request) -> String {
    String::from_utf8_lossy(request.paths.first().map_or(&[][..], Vec::as_slice)).into_owned()
}

/// Which end this is, by the request and who made it.
fn is_sender(established: &Established) -> bool {
    established.session.is_initiator == (established.request.direction == Direction::Push)
}

#[cfg(test)]
mod tests;
