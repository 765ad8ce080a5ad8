//! A way in for `fuzz/`: at the place where the bytes of the control stream come in, a tap can replace the
//! peer or listen. It applies to the sessions of the thread that has set it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_blocks::Block;

use super::codec::Malformed;
use super::messages::{Complaint, RequestFrames};
use super::shared_state::SessionShared;
use crate::flows::flow_shared::{FlowPlace, FlowShared};
use crate::requests::handle::Handle;
use crate::requests::inlet::{CompleteBlock, CreditGuard};
use crate::requests::request_state::FIRST;

/// A tap where the bytes of the control stream come in.
pub enum Tap {
    /// Appends bytes in place of the peer's, and returns how many. The last argument says how long the
    /// session would wait for bytes.
    Feed(FuzzFeed),
    /// Gets the bytes that have come.
    Listen(FuzzListener),
}

pub type FuzzFeed = Box<dyn FnMut(&FedSession<'_>, &mut Vec<u8>, Duration) -> usize>;
pub type FuzzListener = Box<dyn FnMut(&[u8])>;

thread_local! {
    static TAP: RefCell<Option<Tap>> = const { RefCell::new(None) };
}

/// Checks one message of a service, without the length that stands before it on the control stream: encoding
/// what was decoded gives the same message.
pub fn message_comes_back<M: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<M, Malformed>,
    encode: impl Fn(&M, &mut Vec<u8>),
) -> bool {
    let Ok(message) = decode(bytes) else { return false };
    let mut frames = RequestFrames::default();
    encode(&message, frames.buffer());
    assert_eq!(frames.take(), Ok(true), "it is not a complete message");
    assert_eq!(decode(frames.last()), Ok(message), "it reads back as another message");
    true
}

/// Runs `session`, a session of this thread, with this tap.
pub fn tapped<T>(tap: Tap, session: impl FnOnce() -> T) -> T {
    TAP.with(|slot| *slot.borrow_mut() = Some(tap));
    let done = session();
    TAP.with(|slot| slot.borrow_mut().take());
    done
}

/// Returns whether a session of this thread is fed; true also while the feeding function itself runs.
pub fn is_fed() -> bool {
    TAP.with(|slot| slot.try_borrow().map_or(true, |tap| matches!(&*tap, Some(Tap::Feed(_)))))
}

/// Gets bytes in place of the peer's, if this thread's session is fed.
pub(super) fn feed(shared: &SessionShared, out: &mut Vec<u8>, wait: Duration) -> Option<usize> {
    TAP.with(|slot| match &mut *slot.borrow_mut() {
        Some(Tap::Feed(feed)) => Some(feed(&FedSession(shared), out, wait)),
        Some(Tap::Listen(_)) | None => None,
    })
}

/// Passes on the bytes that have come, if somebody listens to this thread's session.
pub(super) fn listen(bytes: &[u8]) {
    TAP.with(|slot| {
        if let Some(Tap::Listen(listen)) = &mut *slot.borrow_mut() {
            listen(bytes);
        }
    });
}

/// A session that is fed in place of its peer.
pub struct FedSession<'a>(&'a SessionShared);

impl FedSession<'_> {
    /// Memory for blocks is not made ready ahead.
    pub fn stay_cold(&self) {
        self.0.pool.stay_cold();
    }

    /// The handle of the request that the session was opened for.
    pub fn first_handle(&self) -> &Handle {
        self.0.first_handle()
    }

    /// Drops the blocks that wait for a flow.
    pub fn drop_filled(&self) {
        while self.0.take_filled().is_some() {}
    }

    /// A block to fill, if one is free.
    pub fn try_claim(&self) -> Option<Block> {
        self.0.pool.try_take()
    }

    /// The peer closes the session.
    pub fn close_by_peer(&self) {
        self.0.set_peer_closed(Complaint::default());
    }

    /// The bytes of messages that no flow has sent yet.
    pub fn unsent(&self) -> u64 {
        self.0.control.lock().unsent()
    }

    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

/// A flow that carries only what it is given.
pub struct FedFlow(Arc<FlowShared>);

impl FedFlow {
    /// Returns `None` if the system has no descriptor for it.
    pub fn new() -> Option<FedFlow> {
        let place = FlowPlace {
            index: 0,
            path: 0,
            is_stream: true,
            is_spare: false,
            active: false,
            congestion: None,
            begun_ms: 0,
        };
        FlowShared::new(place).ok().map(FedFlow)
    }

    /// Lets a block with `len` bytes arrive for the service of the first request.
    pub fn bring(&self, session: &FedSession<'_>, block: Block, len: usize) {
        let Some(request) = session.0.requests.get(FIRST) else { return };
        request.arrived.put([CompleteBlock {
            block,
            len,
            request: FIRST,
            _credit: CreditGuard::new(self.0.clone()),
        }]);
    }

    /// The number of blocks that have been dropped by their readers.
    pub fn released(&self) -> u64 {
        self.0.released.load(Ordering::Acquire)
    }
}
