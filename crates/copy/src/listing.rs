//! What a report lists up to a bound and counts beyond it.
//!
//! Always true: the count is that of all that was added.

use std::sync::Mutex;

use farhaul_handover::Held as _;

/// What an entry takes besides its text.
const ENTRY_BYTES: usize = 64;
/// What a peer says is kept up to these lengths.
const PATH_SHOWN_MAX: usize = 4096;
const REASON_SHOWN_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Listing<T> {
    list: Mutex<Listed<T>>,
    bytes_max: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Listed<T> {
    pub(crate) listed: Vec<T>,
    pub(crate) count: u64,
    bytes: usize,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Listed { listed: Vec::new(), count: 0, bytes: 0 }
    }
}

impl<T> Listing<T> {
    /// Entries of `bytes_max` bytes are listed; none, if that is 0.
    pub(crate) fn new(bytes_max: usize) -> Listing<T> {
        Listing { list: Mutex::default(), bytes_max }
    }

    /// Counts one more and lists it while there is room; how many there are with it.
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

    pub(crate) fn take(&self) -> Listed<T> {
        std::mem::take(&mut *self.list.lock().in_any_case())
    }
}

/// A path and what is said of it, of a length and of characters that people can be shown.
pub(crate) fn shown(path: &[u8], reason: &str) -> (String, String) {
    let path = farhaul_text::escape(&path[..path.len().min(PATH_SHOWN_MAX)]);
    (path, reason.chars().take(REASON_SHOWN_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let listing = Listing::new(1 << 20);
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
