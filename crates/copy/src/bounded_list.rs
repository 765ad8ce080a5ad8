//! A list for a report: entries are kept up to a bound and only counted beyond it.
//!
//! Always true: the count includes the entries that are not kept.

use std::sync::Mutex;

use farhaul_handover::Held as _;
use farhaul_session::handle::Handle;
use farhaul_words::Event;

/// The most bytes of one list in a report for a user.
const BYTES_MAX: usize = 4 << 20;
/// The most entries of one list that have an event of their own while the transfer runs.
pub(crate) const TOLD_MAX: u64 = 1000;
/// Bytes that an entry takes besides its text.
const ENTRY_BYTES: usize = 64;
/// The lengths to which a peer's paths and reasons are cut.
const PATH_SHOWN_MAX: usize = 4096;
const REASON_SHOWN_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct BoundedList<T> {
    list: Mutex<ListedPart<T>>,
    bytes_max: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct ListedPart<T> {
    pub(crate) listed: Vec<T>,
    pub(crate) count: u64,
    bytes: usize,
}

impl<T> Default for ListedPart<T> {
    fn default() -> Self {
        ListedPart { listed: Vec::new(), count: 0, bytes: 0 }
    }
}

impl<T> BoundedList<T> {
    /// Keeps entries of up to `bytes_max` bytes together; with 0 it only counts.
    pub(crate) fn new(bytes_max: usize) -> BoundedList<T> {
        BoundedList { list: Mutex::default(), bytes_max }
    }

    /// A list that keeps entries only at the client, whose user sees them; the far end only counts.
    pub(crate) fn for_user(is_client: bool) -> BoundedList<T> {
        BoundedList::new(if is_client { BYTES_MAX } else { 0 })
    }

    /// Counts one more entry, and keeps it while there is room. Returns the new count.
    pub(crate) fn add(&self, path: &[u8], reason: &str, entry: impl FnOnce(String, String) -> T) -> u64 {
        let mut list = self.list.lock().in_any_case();
        list.count += 1;
        if list.bytes < self.bytes_max {
            let (path, reason) = shown(path, reason);
            list.bytes += path.len() + reason.len() + ENTRY_BYTES;
            list.listed.push(entry(path, reason));
        }
        list.count
    }

    /// As [`BoundedList::add`], and tells the user: one event for each of the first [`TOLD_MAX`] entries,
    /// then a single event that there are more.
    pub(crate) fn add_and_tell(
        &self,
        (path, reason): (&[u8], &str),
        entry: impl FnOnce(String, String) -> T,
        handle: &Handle,
        event: impl FnOnce(String, String) -> Event,
        more: Event,
    ) {
        let count = self.add(path, reason, entry);
        if self.bytes_max == 0 || count > TOLD_MAX + 1 {
            return;
        }
        handle.tell(if count <= TOLD_MAX {
            let (path, reason) = shown(path, reason);
            event(path, reason)
        } else {
            more
        });
    }

    pub(crate) fn take(&self) -> ListedPart<T> {
        std::mem::take(&mut *self.list.lock().in_any_case())
    }
}

/// Escapes a peer's path and cuts it and the reason to the lengths that people are shown.
pub(crate) fn shown(path: &[u8], reason: &str) -> (String, String) {
    let path = farhaul_text::escape(&path[..path.len().min(PATH_SHOWN_MAX)]);
    (path, reason.chars().take(REASON_SHOWN_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let listing = BoundedList::new(1 << 20);
        for number in 1..=40_000 {
            assert_eq!(listing.add(format!("d/{number:0>100}").as_bytes(), "why", |path, _| path), number);
        }
        let list = listing.take();
        assert_eq!(list.count, 40_000);
        assert!((5000..40_000).contains(&list.listed.len()), "{}", list.listed.len());
        assert_eq!(listing.take().count, 0);
    }

    #[test]
    fn what_a_peer_says_is_cut() {
        let (path, reason) = shown(&[b'x'; 10_000], &"y".repeat(10_000));
        assert_eq!((path.len(), reason.len()), (PATH_SHOWN_MAX, REASON_SHOWN_MAX));
    }
}
