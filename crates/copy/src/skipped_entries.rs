//! Source entries of kinds that were not asked for: reported to the user at the client, and listed in the
//! report.

use farhaul_session::events::Event;
use farhaul_session::handle::Handle;

use super::bounded_list::{BoundedList, ListedPart};
use super::report::SkippedEntry;

pub(crate) struct SkippedEntries {
    listing: BoundedList<SkippedEntry>,
}

impl SkippedEntries {
    pub(crate) fn new(is_client: bool) -> SkippedEntries {
        SkippedEntries { listing: BoundedList::for_user(is_client) }
    }

    pub(crate) fn add(&self, path: &[u8], reason: &str, handle: &Handle) {
        let entry = |path, reason| SkippedEntry { path, reason };
        let event = |path, reason| Event::EntrySkipped { path, reason };
        self.listing.add_and_tell((path, reason), entry, handle, event, Event::MoreSkipped);
    }

    pub(crate) fn take(&self) -> ListedPart<SkippedEntry> {
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
        let here = SkippedEntries::new(true);
        for number in 0..40_000 {
            here.add(format!("d/{number:0>100}").as_bytes(), "a device", &handle);
        }
        let list = here.take();
        assert_eq!(list.count, 40_000);
        assert!((10_000..40_000).contains(&list.listed.len()), "{}", list.listed.len());
        assert_eq!(events.take().len() as u64, TOLD_MAX + 1);
        let far = SkippedEntries::new(false);
        far.add(b"x", "a device", &handle);
        assert_eq!((far.take().listed.len(), events.take().len()), (0, 0));
    }
}
