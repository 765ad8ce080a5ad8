//! Source files that were listed but vanished before they were read: reported to the user at the client, and
//! listed in the report.
//!
//! A tree in use loses files all the time (temporary ones, rotated logs). The copy is fine then, and the same
//! command would not meet these files again, so they do not count as failures.

use std::sync::atomic::Ordering::Relaxed;

use farhaul_session::error::{Code, Failure};
use farhaul_session::events::Event;
use farhaul_session::handle::Handle;

use super::bounded_list::{BoundedList, ListedPart};
use super::report::VanishedEntry;

/// The reason why a vanished file is not sent.
pub(crate) fn failure() -> Failure {
    Failure::new(Code::SourceVanished, "it vanished before it was read")
}

pub(crate) fn is_vanished(failure: &Failure) -> bool {
    failure.code == Code::SourceVanished
}

pub(crate) struct VanishedEntries {
    listing: BoundedList<VanishedEntry>,
}

impl VanishedEntries {
    pub(crate) fn new(is_client: bool) -> VanishedEntries {
        VanishedEntries { listing: BoundedList::for_user(is_client) }
    }

    pub(crate) fn add(&self, path: &[u8], handle: &Handle) {
        handle.counts().vanished.fetch_add(1, Relaxed);
        let entry = |path, _| VanishedEntry { path };
        let event = |path, _| Event::EntryVanished { path };
        self.listing.add_and_tell((path, ""), entry, handle, event, Event::MoreVanished);
    }

    pub(crate) fn take(&self) -> ListedPart<VanishedEntry> {
        self.listing.take()
    }
}

#[cfg(test)]
mod tests {
    use farhaul_session::events::EventLevel;

    use super::*;
    use crate::bounded_list::TOLD_MAX;

    #[test]
    fn lines_and_list_are_bounded_and_the_count_is_not() {
        let handle = Handle::new();
        let events = handle.events(EventLevel::Notice);
        let here = VanishedEntries::new(true);
        for number in 0..40_000 {
            here.add(format!("d/{number:0>100}").as_bytes(), &handle);
        }
        let list = here.take();
        assert_eq!((list.count, handle.snapshot().vanished), (40_000, 40_000));
        assert!((10_000..40_000).contains(&list.listed.len()), "{}", list.listed.len());
        let told = events.take();
        assert_eq!(told.len() as u64, TOLD_MAX + 1);
        assert_eq!(told.last().map(|stamped| &stamped.event), Some(&Event::MoreVanished));
        let far = VanishedEntries::new(false);
        far.add(b"x", &handle);
        assert_eq!((far.take().listed.len(), events.take().len()), (0, 0));
    }
}
