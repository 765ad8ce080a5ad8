//! Entries whose content has arrived, but whose mode, times or attributes could not be set.
//!
//! Always true: each end counts such an entry once, and the entry counts as arrived.

use farhaul_session::events::Event;
use farhaul_session::handle::Handle;

use super::bounded_list::{BoundedList, ListedPart};
use super::entry_events::shown_path;
use super::report::NotSetEntry;

#[derive(Debug)]
pub(crate) struct NotSetEntries {
    listing: BoundedList<NotSetEntry>,
}

impl NotSetEntries {
    pub(crate) fn new(is_client: bool) -> NotSetEntries {
        NotSetEntries { listing: BoundedList::for_user(is_client) }
    }

    pub(crate) fn add(&self, path: &[u8], reason: &str, handle: &Handle) {
        let path = shown_path(path);
        self.listing.add(path, reason, |path, reason| NotSetEntry { path, reason });
        handle.tell_detail(|| Event::MetadataNotSet {
            path: farhaul_text::escape(path),
            reason: reason.to_string(),
        });
    }

    pub(crate) fn take(&self) -> ListedPart<NotSetEntry> {
        self.listing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_a_name_and_a_far_end_only_counts() {
        let handle = Handle::new();
        let here = NotSetEntries::new(true);
        here.add(b"", "cannot set its time", &handle);
        here.add(b"d/f", "cannot set its mode", &handle);
        let list = here.take();
        let paths: Vec<_> = list.listed.iter().map(|entry| &entry.path[..]).collect();
        assert_eq!((paths, list.count), (vec![".", "d/f"], 2));
        let far = NotSetEntries::new(false);
        far.add(b"x", "cannot set its time", &handle);
        let list = far.take();
        assert_eq!((list.listed.len(), list.count), (0, 1));
    }
}
