//! Requests that are not answered yet. Each is answered once: with what was found, when its time is over, or when a
//! process that waits for it gets a signal. Whoever comes later with another answer is not heard.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use rustix::io::Errno;

use super::wire::answer_header;

/// Reads of a node fail at once for so long after one that has waited in vain.
const AT_ONCE_AFTER: Duration = Duration::from_millis(500);

/// A request that waits for its answer.
pub(crate) struct Ticket {
    unique: u64,
    node: u64,
    until: Instant,
    is_answered: AtomicBool,
    tickets: Arc<Tickets>,
}

/// All of them.
pub(crate) struct Tickets {
    device: Arc<OwnedFd>,
    waiting: Mutex<HashMap<u64, Arc<Ticket>>>,
    /// The nodes on which somebody has just waited in vain, and when.
    in_vain: Mutex<HashMap<u64, Instant>>,
}

impl Tickets {
    pub(crate) fn new(device: &Arc<OwnedFd>) -> Arc<Tickets> {
        Arc::new(Tickets { device: device.clone(), waiting: Mutex::default(), in_vain: Mutex::default() })
    }

    /// A ticket for a request that is answered with EIO if it has no answer by then.
    pub(crate) fn issue(self: &Arc<Tickets>, (unique, node): (u64, u64), until: Instant) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket {
            unique,
            node,
            until,
            is_answered: AtomicBool::new(false),
            tickets: self.clone(),
        });
        self.waiting.lock().in_any_case().insert(unique, ticket.clone());
        ticket
    }

    /// A process that waits for this request has got a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        let waiting = self.waiting.lock().in_any_case().get(&unique).cloned();
        if let Some(ticket) = waiting {
            ticket.fail(Errno::INTR);
        }
    }

    /// Answers what has waited too long.
    pub(crate) fn expire(&self, now: Instant) {
        let waiting = self.waiting.lock().in_any_case();
        let over: Vec<_> = waiting.values().filter(|ticket| ticket.until <= now).cloned().collect();
        drop(waiting);
        if over.is_empty() {
            return;
        }
        let mut in_vain = self.in_vain.lock().in_any_case();
        in_vain.retain(|_, when| now.saturating_duration_since(*when) < AT_ONCE_AFTER);
        in_vain.extend(over.iter().map(|ticket| (ticket.node, now)));
        drop(in_vain);
        over.iter().for_each(|ticket| ticket.fail(Errno::IO));
    }

    /// Whether somebody has just waited in vain for this node. When the kernel's read ahead has failed, it reads the same
    /// again by pages, and would wait once more.
    pub(crate) fn is_in_vain(&self, node: u64, now: Instant) -> bool {
        let in_vain = self.in_vain.lock().in_any_case();
        in_vain.get(&node).is_some_and(|when| now.saturating_duration_since(*when) < AT_ONCE_AFTER)
    }

    /// Writes an answer. The kernel may have forgotten the request, and the mount may be over.
    pub(crate) fn write(&self, unique: u64, error: i32, body: &[u8]) {
        let header = answer_header(unique, error, body.len());
        let _ = rustix::io::writev(&*self.device, &[IoSlice::new(&header), IoSlice::new(body)]);
    }
}

impl Ticket {
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered.load(SeqCst)
    }

    pub(crate) fn answer(&self, body: &[u8]) {
        self.write(0, body);
    }

    pub(crate) fn fail(&self, error: Errno) {
        self.write(error.raw_os_error(), &[]);
    }

    fn write(&self, error: i32, body: &[u8]) {
        if self.is_answered.swap(true, SeqCst) {
            return;
        }
        // The kernel gives the number to another request only after this one is answered.
        self.tickets.waiting.lock().in_any_case().remove(&self.unique);
        self.tickets.write(self.unique, error, body);
    }
}
