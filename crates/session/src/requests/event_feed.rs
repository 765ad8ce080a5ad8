//! Carries events to their readers: each reader has a bounded queue.
//!
//! Always true: a reader's queue is bounded. If it is full, the transfer waits for the reader, but not for
//! ever, as a terminal may be stopped; then events are left out and counted, and the reader learns how many
//! it has missed.
#![deny(missing_docs)]

use std::collections::VecDeque;
use std::io;
use std::mem::discriminant;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use farhaul_handover::Held as _;
use farhaul_words::{Event, EventLevel, Retention, TimedEvent};
use rustix::event::{EventfdFlags, eventfd};

/// The most bytes of events that wait in a queue.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Further room for events that must not be left out.
const ALWAYS_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Reads the events of one transfer. Whoever has begun to read must go on: a transfer with many events waits
/// for its reader.
#[derive(Debug)]
pub struct EventReader {
    queue: Arc<Queue>,
}

impl EventReader {
    /// The next event; `None` if none comes in time or the transfer is over.
    pub fn next(&self, wait: Duration) -> Option<TimedEvent> {
        let end = Instant::now() + wait;
        let mut waiting = self.queue.waiting();
        loop {
            waiting.is_read = true;
            if let Some(event) = waiting.take() {
                self.queue.show(&waiting);
                drop(waiting);
                self.queue.taken.notify_all();
                return Some(event);
            }
            let left = end.saturating_duration_since(Instant::now());
            if waiting.is_over || left.is_zero() {
                return None;
            }
            (waiting, _) = self.queue.come.wait_timeout(waiting, left).in_any_case();
        }
    }

    /// All events that have come since the last call.
    pub fn take(&self) -> Vec<TimedEvent> {
        std::iter::from_fn(|| self.next(Duration::ZERO)).collect()
    }

    /// Returns a descriptor that is readable while an event waits, and from the end of the transfer on, for a
    /// program that polls it in a loop of its own. Nobody may read or write it: [`EventReader::take`] makes it
    /// silent again. The reader keeps it open.
    pub fn as_fd(&self) -> io::Result<BorrowedFd<'_>> {
        let waiting = self.queue.waiting();
        if self.queue.bell.get().is_none() {
            let bell = Bell::new()?;
            // Only one thread makes it, as it has the lock.
            let _ = self.queue.bell.set(bell);
            self.queue.show(&waiting);
        }
        let bell = self.queue.bell.get().ok_or(io::ErrorKind::NotFound)?;
        Ok(bell.fd.as_fd())
    }

    /// Returns whether the transfer is over and all events were taken.
    pub fn is_over(&self) -> bool {
        let waiting = self.queue.waiting();
        waiting.is_over && waiting.events.is_empty() && waiting.left_out == 0
    }
}

/// Dropping a reader drops its queue, and nobody waits for it any more.
impl Drop for EventReader {
    fn drop(&mut self) {
        self.queue.waiting().is_over = true;
        self.queue.taken.notify_all();
    }
}

/// The queue of one reader.
#[derive(Debug)]
struct Queue {
    /// The reader gets events of this level and of all less detailed ones.
    level: EventLevel,
    bytes_max: usize,
    waiting: Mutex<QueuedEvents>,
    come: Condvar,
    taken: Condvar,
    /// Shows a reader that polls whether an event waits.
    bell: OnceLock<Bell>,
}

/// A descriptor that is readable or not. Whoever changes it has the queue's lock.
#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    is_readable: AtomicBool,
}

impl Bell {
    fn new() -> io::Result<Bell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { fd, is_readable: AtomicBool::new(false) })
    }

    fn set(&self, is_readable: bool) {
        if self.is_readable.swap(is_readable, Ordering::Relaxed) == is_readable {
            return;
        }
        // Neither can fail: the counter is 0 or 1, and only this function changes it.
        let _ = match is_readable {
            true => rustix::io::write(&self.fd, &1u64.to_ne_bytes()),
            false => rustix::io::read(&self.fd, &mut [0; 8]),
        };
    }
}

#[derive(Debug, Default)]
struct QueuedEvents {
    events: VecDeque<TimedEvent>,
    bytes: usize,
    is_read: bool,
    /// The number of events for which there was no room.
    left_out: u64,
    is_over: bool,
}

impl QueuedEvents {
    fn take(&mut self) -> Option<TimedEvent> {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.event.weight();
            return Some(event);
        }
        let count = std::mem::take(&mut self.left_out);
        (count > 0).then_some(TimedEvent { seconds: 0.0, event: Event::LeftOut { count } })
    }

    fn put(&mut self, event: TimedEvent) {
        self.bytes += event.event.weight();
        self.events.push_back(event);
    }

    /// Returns whether a reader gets something without waiting: an event, or the end.
    fn is_ready(&self) -> bool {
        !self.events.is_empty() || self.left_out > 0 || self.is_over
    }

    fn put_newest(&mut self, event: TimedEvent) {
        let kind = discriminant(&event.event);
        match self.events.iter_mut().rev().take(NEWEST_AMONG).find(|old| discriminant(&old.event) == kind) {
            Some(old) => {
                self.bytes = self.bytes - old.event.weight() + event.event.weight();
                *old = event;
            }
            None => self.put(event),
        }
    }
}

/// How many of the newest events are searched for an older one of the same kind, which the new one replaces.
const NEWEST_AMONG: usize = 64;

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, QueuedEvents> {
        self.waiting.lock().in_any_case()
    }

    /// Shows by the descriptor whether a reader gets something.
    fn show(&self, waiting: &QueuedEvents) {
        if let Some(bell) = self.bell.get() {
            bell.set(waiting.is_ready());
        }
    }

    fn put(&self, event: TimedEvent, is_over: &dyn Fn() -> bool) {
        let (begin, weight) = (Instant::now(), event.event.weight());
        let mut waiting = self.waiting();
        match event.event.retention() {
            _ if waiting.is_over => return,
            Retention::Newest => waiting.put_newest(event),
            Retention::Always if waiting.bytes + weight <= self.bytes_max + ALWAYS_BYTES => {
                waiting.put(event)
            }
            Retention::Each | Retention::Always => {
                while waiting.bytes + weight > self.bytes_max && !waiting.is_over {
                    // Once some were left out, the next ones do not wait either.
                    let is_late = is_over() || begin.elapsed() >= PATIENCE;
                    if !waiting.is_read || waiting.left_out > 0 || is_late {
                        waiting.left_out += 1;
                        self.show(&waiting);
                        return;
                    }
                    (waiting, _) = self.taken.wait_timeout(waiting, LOOK_EVERY).in_any_case();
                }
                waiting.put(event);
            }
        }
        self.show(&waiting);
        drop(waiting);
        self.come.notify_one();
    }
}

/// All readers of one transfer.
pub(crate) struct EventFeed {
    start: Instant,
    readers: Mutex<Vec<(EventLevel, Weak<Queue>)>>,
    /// The number of readers that want details.
    detailed: AtomicUsize,
    has_readers: AtomicBool,
    is_over: AtomicBool,
    /// Gets each event at once, where it happens.
    observer: OnceLock<EventObserver>,
}

/// Gets an event where it happens; it must return at once and wait for nothing.
pub(crate) type EventObserver = Box<dyn Fn(&Event) + Send + Sync>;

impl EventFeed {
    pub(crate) fn new() -> EventFeed {
        EventFeed {
            start: Instant::now(),
            readers: Mutex::default(),
            detailed: AtomicUsize::new(0),
            has_readers: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            observer: OnceLock::new(),
        }
    }

    /// Sets the observer; only the first call counts.
    pub(crate) fn set_observer(&self, observer: EventObserver) {
        let _ = self.observer.set(observer);
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    pub(crate) fn read(&self, level: EventLevel) -> EventReader {
        self.read_within(level, WAITING_BYTES_MAX)
    }

    /// As [`EventFeed::read`], with a queue of at most `bytes_max` bytes.
    pub(crate) fn read_within(&self, level: EventLevel, bytes_max: usize) -> EventReader {
        let waiting =
            QueuedEvents { is_over: self.is_over.load(Ordering::Acquire), ..QueuedEvents::default() };
        let queue = Arc::new(Queue {
            level,
            bytes_max,
            waiting: Mutex::new(waiting),
            come: Condvar::default(),
            taken: Condvar::default(),
            bell: OnceLock::new(),
        });
        let mut readers = self.readers.lock().in_any_case();
        readers.push((level, Arc::downgrade(&queue)));
        self.count(&mut readers);
        EventReader { queue }
    }

    /// Counts the readers again, and forgets those that are gone.
    fn count(&self, readers: &mut Vec<(EventLevel, Weak<Queue>)>) {
        readers.retain(|(_, queue)| queue.strong_count() > 0);
        let detailed = readers.iter().filter(|(level, _)| *level >= EventLevel::Detail).count();
        self.detailed.store(detailed, Ordering::Release);
        self.has_readers.store(!readers.is_empty(), Ordering::Release);
    }

    /// Returns whether any reader wants details.
    pub(crate) fn wants_details(&self) -> bool {
        self.detailed.load(Ordering::Acquire) > 0
    }

    pub(crate) fn put(&self, event: Event, is_over: &dyn Fn() -> bool) {
        if let Some(hear) = self.observer.get() {
            hear(&event);
        }
        if !self.has_readers.load(Ordering::Acquire) {
            return;
        }
        let readers: Vec<Arc<Queue>> = {
            let mut readers = self.readers.lock().in_any_case();
            self.count(&mut readers);
            readers.iter().filter_map(|(_, queue)| queue.upgrade()).collect()
        };
        let seconds = self.start.elapsed().as_secs_f64();
        for queue in readers.iter().filter(|queue| queue.level >= event.level()) {
            queue.put(TimedEvent { seconds, event: event.clone() }, is_over);
        }
    }

    /// Marks the transfer as over.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        for (_, queue) in self.readers.lock().in_any_case().iter() {
            if let Some(queue) = queue.upgrade() {
                let mut waiting = queue.waiting();
                waiting.is_over = true;
                queue.show(&waiting);
                drop(waiting);
                queue.come.notify_all();
                queue.taken.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(byte: char, len: usize) -> Event {
        Event::warning(byte.to_string().repeat(len))
    }

    #[test]
    fn events_that_nobody_takes_are_counted_and_not_kept() {
        let feed = EventFeed::new();
        let events = feed.read(EventLevel::Notice);
        let line = warning('x', 1 << 20);
        let count = 2 * WAITING_BYTES_MAX / line.weight();
        (0..count).for_each(|_| feed.put(line.clone(), &|| false));
        assert!(events.queue.waiting().bytes <= WAITING_BYTES_MAX);
        // The end is kept even if the queue is full.
        feed.put(Event::Ended { ok: true, error: None, code: None, exit_code: 0 }, &|| false);
        feed.end();
        let taken = events.take();
        let (last, shown) = taken.split_last().unwrap();
        assert_eq!(last.event, Event::LeftOut { count: (count - shown.len()) as u64 });
        assert!(events.is_over() && events.take().is_empty() && feed.read(EventLevel::Trace).is_over());
    }

    #[test]
    fn who_has_much_to_tell_waits_for_who_reads() {
        let feed = EventFeed::new();
        let events = feed.read(EventLevel::Detail);
        assert!(events.take().is_empty(), "somebody reads");
        let (line, count) = (warning('y', 1 << 20), (3 * WAITING_BYTES_MAX) >> 20);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|_| feed.put(line.clone(), &|| false)));
            for _ in 0..count {
                assert_eq!(events.next(Duration::from_secs(60)).map(|event| event.event), Some(line.clone()));
            }
        });
    }

    #[test]
    fn the_descriptor_is_readable_while_something_waits_and_after_the_end() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let is_readable = |events: &EventReader| {
            let fd = events.as_fd().unwrap();
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() == 1
        };
        let feed = EventFeed::new();
        let (early, late) = (feed.read(EventLevel::Trace), feed.read(EventLevel::Trace));
        assert!(!is_readable(&early));
        for _ in 0..3 {
            feed.put(Event::Resumed, &|| false);
            feed.put(warning('x', 1), &|| false);
        }
        // A descriptor that is made after the events shows them, too.
        assert!(is_readable(&early) && is_readable(&late));
        assert!(early.next(Duration::ZERO).is_some() && is_readable(&early), "more waits");
        assert!(!early.take().is_empty() && !is_readable(&early) && is_readable(&late));
        feed.put(Event::Resumed, &|| false);
        assert!(is_readable(&early));
        early.take();
        feed.end();
        assert!(is_readable(&early) && early.is_over() && is_readable(&early), "the end is shown");
        assert!(is_readable(&feed.read(EventLevel::Trace)), "a reader that comes after the end");
    }

    #[test]
    fn each_reader_gets_what_it_wants_to_know() {
        let feed = EventFeed::new();
        let (people, program) = (feed.read(EventLevel::Notice), feed.read(EventLevel::Trace));
        assert!(feed.wants_details());
        feed.put(Event::Resumed, &|| false);
        for limit in ["network", "rate"] {
            feed.put(Event::StageVerdict { limit: limit.into(), text: String::new() }, &|| false);
        }
        feed.put(warning('z', 1), &|| false);
        assert_eq!(people.take().len(), 1);
        let taken: Vec<Event> = program.take().into_iter().map(|event| event.event).collect();
        assert!(
            matches!(&taken[..], [Event::Resumed, Event::StageVerdict { limit, .. }, Event::Warning { .. }] if limit == "rate")
        );
        drop(program);
        feed.put(Event::Resumed, &|| false);
        assert!(!feed.wants_details());
    }
}
