//! What the threads of a session know of a request.
//!
//! Always true: it refers to no session, so that blocks that wait in a session may refer to it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_queue::SegQueue;
use farhaul_handover::Held as _;

use crate::requests::gate::Gate;
use crate::requests::handle::Handle;
use crate::requests::inlet::{ChannelBell, Inlet};
use farhaul_words::Error;

/// The request with which a session begins; the hello says what it is about.
pub const FIRST: u64 = 1;

/// A request, for the threads of its session.
pub(crate) struct RequestState {
    pub(crate) number: u64,
    pub(crate) handle: Handle,
    /// Complete blocks for the service, in the order of their completion.
    pub(crate) arrived: Inlet,
    pub(crate) counts: RequestCounts,
    /// The service's own numbers of blocks that were given up, as their deadlines have passed. It takes them.
    pub(crate) given_up: SegQueue<u64>,
    pub(crate) gate: Gate,
    is_over: AtomicBool,
    /// True if the user was last told that the request is paused.
    is_paused_told: AtomicBool,
    /// The error with which a thread of the service has ended it.
    failure: Mutex<Option<Error>>,
}

/// What a request has moved.
#[derive(Debug, Default)]
pub struct RequestCounts {
    /// Content bytes: put for the first time, acknowledged, written, and found in an old version of a changed
    /// file.
    pub(crate) content_put: AtomicU64,
    pub(crate) content_acked: AtomicU64,
    pub content_written: AtomicU64,
    pub content_matched: AtomicU64,
}

impl RequestState {
    /// `blocks` is the most blocks that may have come and not been taken.
    pub(crate) fn new(number: u64, handle: Handle, blocks: usize) -> RequestState {
        RequestState {
            number,
            handle,
            arrived: Inlet::new(blocks, ChannelBell::default()),
            counts: RequestCounts::default(),
            given_up: SegQueue::new(),
            gate: Gate::default(),
            is_over: AtomicBool::new(false),
            is_paused_told: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Marks the request as over; returns whether it was not before.
    pub(crate) fn set_over(&self) -> bool {
        !self.is_over.swap(true, Ordering::AcqRel)
    }

    /// Keeps the first error with which a thread of the service ends the request.
    pub(crate) fn set_failure(&self, error: Error) {
        self.failure.lock().in_any_case().get_or_insert(error);
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().in_any_case().take()
    }

    /// Returns whether either end has paused the request.
    pub(crate) fn is_paused(&self) -> bool {
        self.handle.is_held() || self.gate.is_shut_there()
    }

    /// Returns whether this end wants that nothing changes for the request.
    pub(crate) fn wants_pause(&self) -> bool {
        self.handle.is_held() || self.handle.is_cancelled()
    }

    /// Returns whether the user was last told that the request is paused.
    pub(crate) fn is_paused_told(&self) -> bool {
        self.is_paused_told.load(Ordering::Acquire)
    }

    pub(crate) fn set_paused_told(&self, is_paused: bool) {
        self.is_paused_told.store(is_paused, Ordering::Release);
    }
}
