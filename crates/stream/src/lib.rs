//! Blocks of a program's own from one process to another, over the engine that `farhaul cp` uses.
//!
//! A stream carries blocks one way. The sending program [claims](StreamSender::claim) a block, fills it where it lies and
//! [puts](StreamSender::put) it with some metadata; the cipher reads it from there. The receiving program takes what has
//! [arrived](StreamReceiver::next) and reads it where the transport has put it. Short [messages](StreamSender::send_message) go both ways, and
//! [`StreamSender::wait`] returns when the receiver has let go of all that was put.
//!
//! | who begins | who answers |
//! | --- | --- |
//! | [`connect_to_send`] or [`connect_to_receive`] with [`StreamTarget::Daemon`] | a program with a [`StreamListener`] |
//! | the same with [`StreamTarget::Ssh`] | the program that ssh starts, with [`accept_stdio`] |
//! | [`pair`] | the same process |
//!
//! ```
//! use farhaul_stream::{StreamOptions, pair};
//!
//! let (sender, receiver) = pair(StreamOptions::new("numbers"))?;
//! let reading = std::thread::spawn(move || {
//!     let mut sum = 0;
//!     while let Some(block) = receiver.next()? {
//!         assert_eq!(block.metadata(), b"three bytes");
//!         sum += block.iter().map(|&byte| u64::from(byte)).sum::<u64>();
//!     }
//!     receiver.finish()?;
//!     Ok::<_, farhaul_session::Error>(sum)
//! });
//! let mut block = sender.claim()?;
//! block.set_len(3);
//! block.copy_from_slice(&[1, 2, 3]);
//! sender.put(block, b"three bytes")?;
//! sender.finish()?;
//! assert_eq!(reading.join().unwrap()?, 6);
//! # Ok::<_, farhaul_session::Error>(())
//! ```
//!
//! # Blocks and memory
//!
//! All blocks lie in one mapping of [`NetworkOptions::memory_bytes`] at each end, each of [`BLOCK_LEN_MAX`]
//! bytes. A put block is free again when the far end's transport has it. [`StreamSender::claim`] waits while
//! none is free, so a program that keeps claimed blocks, or a receiver that keeps arrived ones, slows the
//! stream down to what it lets go of.
//!
//! # Order
//!
//! A lost packet delays its own block only: by default blocks are handed out as they complete, and
//! [`ReceivedBlock::number`] says how many were put before. With [`StreamOptions::in_order`] they come in the
//! order in which they were put, over one flow.
//!
//! # Trust
//!
//! As for `cp`: ssh's, or Ed25519 keys on both sides. Every packet is sealed; digests over each block guard against
//! faulty memory and are on with [`StreamOptions::digests`].
#![deny(missing_docs)]
#![forbid(unsafe_code)]

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

            /// Takes one of [`NetworkOptions::paths`](crate::NetworkOptions::paths) out of the running stream, by its
            /// place there, or in again. What is under way on it is finished there. The last one cannot be taken out.
            pub fn use_path(&self, path: usize, is_used: bool) -> Result<(), Error> {
                self.session.use_path(path, is_used)
            }

            /// Begins one more path between these addresses, at the end that has connected; returns its number for
            /// [`use_path`](Self::use_path). It carries blocks when it has answered, and none before;
            /// [`NetworkOptions::further_paths`](crate::NetworkOptions::further_paths) says how many there can be.
            pub fn add_path(&self, addresses: PathAddresses) -> Result<usize, Error> {
                self.session.add_path(addresses)
            }

            /// Counters to look at meanwhile: bytes that the other end has, round trip, loss.
            pub fn handle(&self) -> &Handle {
                &self.session.handle
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

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod label;
mod listener;
pub(crate) mod messages;
mod receiver;
mod request;
mod sender;
mod stream_end;

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use farhaul_connect as connect;
use farhaul_connect::hello::SessionOpening;
use farhaul_connect::{DaemonTarget, EstablishedSession, HelloParams, SshTarget};
use farhaul_session::error::Error;
use farhaul_session::handle::Handle;
use farhaul_session::options::NetworkOptions;
use farhaul_volume::CHUNK;

use request::StreamRequest;

pub use label::METADATA_MAX;
pub use listener::{AcceptedStream, ListenOptions, StreamListener, accept_stdio};
pub use receiver::{ReceivedBlock, StreamReceiver};
pub use sender::StreamSender;

/// Bytes of content that a block holds at most.
pub const BLOCK_LEN_MAX: usize = CHUNK as usize;
/// Longest message, in bytes.
pub const MESSAGE_LEN_MAX: usize = 60 << 10;

/// How a stream is set up. The end that connects says it.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// What the stream is about: the far end sees it before anything else. 1 to 255 bytes.
    pub name: String,
    /// Hand blocks out in the order in which they were put. Then `flows` and `paths` beyond the first are not used.
    pub in_order: bool,
    /// Each block has a digest, against faulty memory.
    pub digests: bool,
    /// Rate, policy, cipher, flows, paths, memory and ports.
    pub network: NetworkOptions,
}

impl StreamOptions {
    /// The usual ones: any order, one flow, AES-128-GCM, no digests.
    pub fn new(name: impl Into<String>) -> StreamOptions {
        StreamOptions {
            name: name.into(),
            in_order: false,
            digests: false,
            network: NetworkOptions::default(),
        }
    }

    fn opening(self, client_sends: bool) -> Result<SessionOpening, Error> {
        let StreamOptions { name, in_order, digests, mut network } = self;
        if in_order {
            network.flows = 1;
            network.paths.truncate(1);
            (network.auto_paths, network.further_paths) = (false, 0);
        }
        StreamRequest { name, client_sends, in_order, digests }.opening(network)
    }
}

/// The program at the other end.
#[derive(Debug, Clone)]
pub enum StreamTarget {
    /// One that ssh starts on its host: [`SshTarget::remote_program`], with the argument `endpoint`. It calls [`accept_stdio`].
    Ssh(SshTarget),
    /// One that has a [`StreamListener`] there.
    Daemon(DaemonTarget),
}

/// Begins a stream on which this end sends.
pub fn connect_to_send(target: &StreamTarget, options: StreamOptions) -> Result<StreamSender, Error> {
    Ok(StreamSender::new(stream_end::begin(connect(target, options, true)?)?))
}

/// Begins a stream on which this end receives.
pub fn connect_to_receive(target: &StreamTarget, options: StreamOptions) -> Result<StreamReceiver, Error> {
    Ok(StreamReceiver::new(stream_end::begin(connect(target, options, false)?)?))
}

/// Both ends in this process.
pub fn pair(options: StreamOptions) -> Result<(StreamSender, StreamReceiver), Error> {
    let (near, far) = connect::local_pair(&options.opening(true)?, &request::own_features())?;
    Ok((StreamSender::new(stream_end::begin(near)?), StreamReceiver::new(stream_end::begin(far)?)))
}

fn connect(
    target: &StreamTarget,
    options: StreamOptions,
    client_sends: bool,
) -> Result<EstablishedSession, Error> {
    let opening = options.opening(client_sends)?;
    let params = HelloParams { opening, features: request::own_features(), udp: true, early: false };
    match target {
        StreamTarget::Ssh(target) => connect::ssh_connect(target, params, &Handle::new()),
        StreamTarget::Daemon(target) => connect::daemon_connect(target, params, &Handle::new()),
    }
}

/// A claimed block: memory of the stream's, to be filled in place. It covers [`BLOCK_LEN_MAX`] bytes, whatever is in them, until
/// [`ClaimedBlock::set_len`]. Dropped, it is free again.
#[derive(Debug)]
pub struct ClaimedBlock {
    block: farhaul_blocks::Block,
    claimed: Instant,
}

impl ClaimedBlock {
    fn new(mut block: farhaul_blocks::Block) -> ClaimedBlock {
        block.set_len(BLOCK_LEN_MAX);
        ClaimedBlock { block, claimed: Instant::now() }
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

impl Deref for ClaimedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block
    }
}

impl DerefMut for ClaimedBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.block
    }
}

#[cfg(test)]
mod tests;
