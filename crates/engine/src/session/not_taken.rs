//! What is there at the source and is not taken, being of a kind that was not asked for: told at the end where the user is, listed in
//! the report up to a bound, counted beyond it.

use std::sync::Mutex;

use farhaul_store::escape;

use crate::progress::Progress;
use crate::report::NotTakenEntry;

/// Bytes that the report's list may take; a far end only counts.
const BYTES_MAX: usize = 4 << 20;
/// What an entry takes besides its text.
const ENTRY_BYTES: usize = 64;
/// So many have a line of their own while the transfer runs.
const TOLD_MAX: u64 = 1000;
/// What a peer says is kept up to these lengths.
const PATH_SHOWN_MAX: usize = 4096;
const REASON_SHOWN_MAX: usize = 1000;

pub(crate) struct NotTaken {
    list: Mutex<NotTakenList>,
    is_client: bool,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct NotTakenList {
    pub(crate) listed: Vec<NotTakenEntry>,
    pub(crate) count: u64,
    bytes: usize,
}

const LOCK: &str = "no thread panics while it holds the list";

impl NotTaken {
    pub(crate) fn new(is_client: bool) -> NotTaken {
        NotTaken { list: Mutex::default(), is_client }
    }

    pub(crate) fn add(&self, path: &[u8], reason: &str, progress: &Progress) {
        let mut list = self.list.lock().expect(LOCK);
        list.count += 1;
        if !self.is_client || list.bytes >= BYTES_MAX {
            return;
        }
        let path = escape(&path[..path.len().min(PATH_SHOWN_MAX)]);
        let reason: String = reason.chars().take(REASON_SHOWN_MAX).collect();
        match list.count {
            count if count <= TOLD_MAX => progress.notice(format!("skipped {path}: {reason}")),
            count if count == TOLD_MAX + 1 => progress.notice("skipped: and more like these".into()),
            _ => {}
        }
        list.bytes += path.len() + reason.len() + ENTRY_BYTES;
        list.listed.push(NotTakenEntry { path, reason });
    }

    pub(crate) fn take(&self) -> NotTakenList {
        std::mem::take(&mut self.list.lock().expect(LOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_list_are_bounded_and_the_count_is_not() {
        let progress = Progress::default();
        let here = NotTaken::new(true);
        for number in 0..40_000 {
            here.add(format!("d/{number:0>100}").as_bytes(), "a device", &progress);
        }
        let list = here.take();
        assert_eq!(list.count, 40_000);
        assert!((10_000..40_000).contains(&list.listed.len()), "{}", list.listed.len());
        assert_eq!(progress.take_notices().len() as u64, TOLD_MAX + 1);
        let far = NotTaken::new(false);
        far.add(b"x", "a device", &progress);
        assert_eq!((far.take().listed.len(), progress.take_notices().len()), (0, 0));
    }
}
