//! What is there at the source and is not taken, being of a kind that was not asked for: told at the end where the user is, and
//! listed in the report.

use farhaul_session::events::Event;
use farhaul_session::handle::Handle;

use super::listing::{Listed, Listing, shown};
use super::report::NotTakenEntry;

/// Bytes that the report's list may take; a far end only counts.
const BYTES_MAX: usize = 4 << 20;
/// So many have a line of their own while the transfer runs.
const TOLD_MAX: u64 = 1000;

pub(crate) struct NotTaken {
    listing: Listing<NotTakenEntry>,
    is_client: bool,
}

impl NotTaken {
    pub(crate) fn new(is_client: bool) -> NotTaken {
        NotTaken { listing: Listing::new(if is_client { BYTES_MAX } else { 0 }), is_client }
    }

    pub(crate) fn add(&self, path: &[u8], reason: &str, handle: &Handle) {
        let count = self.listing.add(path, reason, |path, reason| NotTakenEntry { path, reason });
        if !self.is_client || count > TOLD_MAX + 1 {
            return;
        }
        handle.tell(match count {
            count if count <= TOLD_MAX => {
                let (path, reason) = shown(path, reason);
                Event::EntrySkipped { path, reason }
            }
            _ => Event::MoreSkipped,
        });
    }

    pub(crate) fn take(&self) -> Listed<NotTakenEntry> {
        self.listing.take()
    }
}

#[cfg(test)]
mod tests {
    use farhaul_session::events::Level;

    use super::*;

    #[test]
    fn lines_and_list_are_bounded_and_the_count_is_not() {
        let handle = Handle::new();
        let events = handle.events(Level::Notice);
        let here = NotTaken::new(true);
        for number in 0..40_000 {
            here.add(format!("d/{number:0>100}").as_bytes(), "a device", &handle);
        }
        let list = here.take();
        assert_eq!(list.count, 40_000);
        assert!((10_000..40_000).contains(&list.listed.len()), "{}", list.listed.len());
        assert_eq!(events.take().len() as u64, TOLD_MAX + 1);
        let far = NotTaken::new(false);
        far.add(b"x", "a device", &handle);
        assert_eq!((far.take().listed.len(), events.take().len()), (0, 0));
    }
}
