//! A way in for `fuzz/`: where the bytes of the control stream come in, something may stand in a peer's place, or
//! listen. It does so for the sessions of the thread that has set it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_blocks::Block;

use super::codec::Malformed;
use super::messages::RequestFrames;
use super::request::FIRST;
use super::shared::{CompleteBlock, CreditGuard, FlowPlace, FlowShared, SessionShared};

/// What stands where the bytes of the control stream come in.
pub enum Tap {
    /// Appends what comes in place of the peer's bytes and returns how much that is. The last argument says how
    /// long the session would wait for bytes.
    Feed(FuzzFeed),
    /// Is told what has come.
    Listen(FuzzListener),
}

pub type FuzzFeed = Box<dyn FnMut(&SessionShared, &mut Vec<u8>, Duration) -> usize>;
pub type FuzzListener = Box<dyn FnMut(&[u8])>;

thread_local! {
    static TAP: RefCell<Option<Tap>> = const { RefCell::new(None) };
}

/// One message of a service, as it stands on the control stream behind its length: what was understood can be said
/// again.
pub fn message_comes_back<M: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<M, Malformed>,
    encode: impl Fn(&M, &mut Vec<u8>),
) -> bool {
    let Ok(message) = decode(bytes) else { return false };
    let mut frames = RequestFrames::default();
    encode(&message, frames.buffer());
    assert_eq!(frames.take(), Ok(true), "it is no whole message");
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

/// Whether a session of this thread is fed, also by whoever feeds it just now.
pub fn is_fed() -> bool {
    TAP.with(|slot| slot.try_borrow().map_or(true, |tap| matches!(&*tap, Some(Tap::Feed(_)))))
}

/// What comes in place of the peer's bytes, if this thread's session is fed.
pub(super) fn feed(shared: &SessionShared, out: &mut Vec<u8>, wait: Duration) -> Option<usize> {
    TAP.with(|slot| match &mut *slot.borrow_mut() {
        Some(Tap::Feed(feed)) => Some(feed(shared, out, wait)),
        Some(Tap::Listen(_)) | None => None,
    })
}

/// Tells what has come, if somebody listens to this thread's session.
pub(super) fn listen(bytes: &[u8]) {
    TAP.with(|slot| {
        if let Some(Tap::Listen(listen)) = &mut *slot.borrow_mut() {
            listen(bytes);
        }
    });
}

/// A flow by which nothing comes but what it is given.
pub struct FedFlow(Arc<FlowShared>);

impl FedFlow {
    /// None when the system has no descriptor for it.
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

    /// A block with `len` bytes of the first request's service has come.
    pub fn bring(&self, shared: &SessionShared, block: Block, len: usize) {
        let Some(request) = shared.requests.get(FIRST) else { return };
        request.arrived.put([CompleteBlock {
            block,
            len,
            request: FIRST,
            _credit: CreditGuard(self.0.clone()),
        }]);
    }

    /// Blocks that have been let go of.
    pub fn released(&self) -> u64 {
        self.0.released.load(Ordering::Acquire)
    }
}
