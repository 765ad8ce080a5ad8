//! Sends blocks of a program's own from one process to another, over the transport that `farhaul cp` uses.
//!
//! A stream carries blocks one way. The sending program [claims](StreamSender::claim) a block, fills it in
//! place and [puts](StreamSender::put) it with some metadata; the cipher reads it from there. The receiving
//! program takes blocks that have [arrived](StreamReceiver::next) and reads them where the transport has put
//! them. Short [messages](StreamSender::send_message) go both ways, and [`StreamSender::wait`] returns when
//! the receiver has dropped all blocks that were put.
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
//!     Ok::<_, farhaul_words::Error>(sum)
//! });
//! let mut block = sender.claim()?;
//! block.set_len(3);
//! block.copy_from_slice(&[1, 2, 3]);
//! sender.put(block, b"three bytes")?;
//! sender.finish()?;
//! assert_eq!(reading.join().unwrap()?, 6);
//! # Ok::<_, farhaul_words::Error>(())
//! ```
//!
//! # Blocks and memory
//!
//! All blocks lie in one mapping of [`NetworkOptions::memory_bytes`] at each end, each of [`BLOCK_LEN_MAX`]
//! bytes. A put block is free again when the far end's transport has it. [`StreamSender::claim`] waits while
//! none is free. So a program that keeps claimed blocks, or a receiver that keeps arrived ones, slows the
//! stream down to the rate at which it frees them.
//!
//! # Order
//!
//! A lost packet delays only its own block: by default blocks are handed out as they complete, and
//! [`ReceivedBlock::number`] says how many were put before. With [`StreamOptions::in_order`] they come in the
//! order in which they were put, over one flow.
//!
//! # Deadlines
//!
//! A block that is put [with a deadline](StreamSender::put_until) is given up whole if it can no longer arrive in time, and
//! holds up no other block. The receiver learns its number ([`NextBlock::GivenUp`]). The deadline counts at the sender;
//! half a round trip is taken for the way to the receiver. [`StreamOptions::deadlines`] allows it.
//!
//! # Trust
//!
//! As for `cp`: ssh authenticates both sides, or Ed25519 keys do. Every packet is sealed. A digest over each
//! block guards against faulty memory, if [`StreamOptions::digests`] is set.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

/// The calls that both ends have.
macro_rules! common_calls {
    ($end:ident) => {
        impl $end {
            /// Sends a message of at most [`MESSAGE_LEN_MAX`](super::MESSAGE_LEN_MAX) bytes to the other
            /// program. Messages arrive in their order, but not in step with blocks.
            pub fn send_message(&self, message: &[u8]) -> Result<(), Error> {
                self.session.send_message(message)
            }

            /// The next message of the other program; `None` if none comes in time. At most 16 MiB of
            /// messages may wait: a program that leaves more unread ends the stream.
            pub fn message(&self, wait: Duration) -> Result<Option<Vec<u8>>, Error> {
                self.session.message(wait)
            }

            /// Changes the sender's policy, ceiling and floor. Either end may do so; it takes effect within a
            /// twentieth of a second plus the delay of the path.
            pub fn set_rate(&self, rate: RateOptions) -> Result<(), Error> {
                self.session.set_rate(rate)
            }

            /// Takes one of [`NetworkOptions::paths`](crate::NetworkOptions::paths), by its index there, out
            /// of the running stream, or puts it back in. Blocks that are under way on it are finished there.
            /// The last path cannot be taken out.
            pub fn use_path(&self, path: usize, is_used: bool) -> Result<(), Error> {
                self.session.use_path(path, is_used)
            }

            /// Begins one more path between these addresses; only the end that has connected can. Returns its
            /// number for [`use_path`](Self::use_path). The path carries blocks once the far end has answered
            /// on it. [`NetworkOptions::further_paths`](crate::NetworkOptions::further_paths) says how many
            /// can be added.
            pub fn add_path(&self, addresses: PathAddresses) -> Result<usize, Error> {
                self.session.add_path(addresses)
            }

            /// Sets what a thread asks about ten times a second while it waits in a call of this stream. If the
            /// answer is no, the stream is cancelled and the call ends with `FH-INTERRUPTED`, within a fifth of a
            /// second. The first function that is set stays.
            pub fn on_wait(&self, goes_on: impl Fn() -> bool + Send + Sync + 'static) {
                self.session.on_wait(Box::new(goes_on));
            }

            /// Live counters of the stream: bytes that the other end has, round trip, loss.
            pub fn handle(&self) -> &Handle {
                &self.session.handle
            }

            /// The stream's name.
            pub fn name(&self) -> &str {
                &self.session.name
            }

            /// The other end's host or address, for display.
            pub fn peer(&self) -> &str {
                &self.session.peer
            }

            /// The fingerprint of the other end's key; `None` over ssh and within a process.
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
use farhaul_session::handle::Handle;
use farhaul_session::options::NetworkOptions;
use farhaul_session::panic_guard::contained;
use farhaul_volume::CHUNK;
use farhaul_words::Error;

use request::StreamRequest;

pub use label::METADATA_MAX;
pub use listener::{AcceptedStream, ListenOptions, StreamListener, accept_stdio};
pub use receiver::{NextBlock, ReceivedBlock, StreamReceiver};
pub use sender::StreamSender;

/// The most bytes of content that a block holds.
pub const BLOCK_LEN_MAX: usize = CHUNK as usize;
/// Longest message, in bytes.
pub const MESSAGE_LEN_MAX: usize = 60 << 10;

/// The options of a stream. The end that connects chooses them.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// The stream's name, 1 to 255 bytes. The far end sees it before anything else.
    pub name: String,
    /// Whether blocks are handed out in the order in which they were put. If so, the stream uses one flow and
    /// one path, whatever `flows` and `paths` say.
    pub in_order: bool,
    /// Whether each block has a digest, which guards against faulty memory.
    pub digests: bool,
    /// Whether blocks may have deadlines ([`StreamSender::put_until`]).
    pub deadlines: bool,
    /// Rate, policy, cipher, flows, paths, memory and ports.
    pub network: NetworkOptions,
}

impl StreamOptions {
    /// The usual options: any order, one flow, AES-128-GCM, no digests.
    pub fn new(name: impl Into<String>) -> StreamOptions {
        StreamOptions {
            name: name.into(),
            in_order: false,
            digests: false,
            deadlines: false,
            network: NetworkOptions::default(),
        }
    }

    fn opening(self, client_sends: bool) -> Result<SessionOpening, Error> {
        let StreamOptions { name, in_order, digests, deadlines, mut network } = self;
        if in_order {
            network.flows = 1;
            network.paths.truncate(1);
            (network.auto_paths, network.further_paths) = (false, 0);
        }
        StreamRequest { name, client_sends, in_order, digests, deadlines }.opening(network)
    }
}

/// The program at the other end.
#[derive(Debug, Clone)]
pub enum StreamTarget {
    /// A program that ssh starts on its host: [`SshTarget::remote_program`], with the argument `endpoint`. It
    /// calls [`accept_stdio`].
    Ssh(SshTarget),
    /// A program that has a [`StreamListener`].
    Daemon(DaemonTarget),
}

/// Begins a stream on which this end sends.
pub fn connect_to_send(target: &StreamTarget, options: StreamOptions) -> Result<StreamSender, Error> {
    contained(|| Ok(StreamSender::new(stream_end::begin(connect(target, options, true)?)?))).flatten()
}

/// Begins a stream on which this end receives.
pub fn connect_to_receive(target: &StreamTarget, options: StreamOptions) -> Result<StreamReceiver, Error> {
    contained(|| Ok(StreamReceiver::new(stream_end::begin(connect(target, options, false)?)?))).flatten()
}

/// Makes a stream with both ends in this process.
pub fn pair(options: StreamOptions) -> Result<(StreamSender, StreamReceiver), Error> {
    contained(|| {
        let (near, far) = connect::local_pair(&options.opening(true)?, &request::own_features())?;
        Ok((StreamSender::new(stream_end::begin(near)?), StreamReceiver::new(stream_end::begin(far)?)))
    })
    .flatten()
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

/// A claimed block: memory of the stream, to be filled in place. It covers [`BLOCK_LEN_MAX`] bytes of
/// arbitrary content until [`ClaimedBlock::set_len`]. Dropping it frees it.
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

    /// Sets how many bytes are sent.
    ///
    /// If `len` exceeds [`BLOCK_LEN_MAX`].
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= BLOCK_LEN_MAX, "a block holds {BLOCK_LEN_MAX} bytes, not {len}");
        self.block.set_len(len);
    }

    /// The block's memory, for calls that fill it.
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
