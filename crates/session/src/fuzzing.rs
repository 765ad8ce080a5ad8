//! A way in for `fuzz/`: at the place where the bytes of the control stream come in, a tap can replace the
//! peer or listen. It applies to the sessions of the thread that has set it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_blocks::Block;

use super::codec::Malformed;
use super::messages::RequestFrames;
use super::request::FIRST;
use super::shared_state::{CompleteBlock, CreditGuard, FlowPlace, FlowShared, SessionShared};

/// A tap where the bytes of the control stream come in.
pub enum Tap {
    /// Appends bytes in place of the peer's, and returns how many. The last argument says how long the
    /// session would wait for bytes.
    Feed(FuzzFeed),
    /// Gets the bytes that have come.
    Listen(FuzzListener),
}

pub type FuzzFeed = Box<dyn FnMut(&SessionShared, &mut Vec<u8>, Duration) -> usize>;
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
        Some(Tap::Feed(feed)) => Some(feed(shared, out, wait)),
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
    pub fn bring(&self, shared: &SessionShared, block: Block, len: usize) {
        let Some(request) = shared.requests.get(FIRST) else { return };
        request.arrived.put([CompleteBlock {
            block,
            len,
            request: FIRST,
            _credit: CreditGuard(self.0.clone()),
        }]);
    }

    /// The number of blocks that have been dropped by their readers.
    pub fn released(&self) -> u64 {
        self.0.released.load(Ordering::Acquire)
    }
}
