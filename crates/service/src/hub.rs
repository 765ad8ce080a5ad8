//! News for the API's event streams: a ring of the last events, from which each reader reads by itself.
//!
//! Always true: the writer never waits; a slow reader costs no more than a fast one; a reader that has missed
//! news is told so.

use farhaul_api::EventKind;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use tokio::sync::watch;

use crate::access::{Caller, JobPlaces};
use crate::node::JobNews;
use farhaul_api::JobId;

/// The most entries of the ring, and the most bytes of them.
const ENTRIES_MAX: usize = 8192;
const BYTES_MAX: usize = 8 << 20;

/// One event.
#[derive(Debug)]
pub(crate) struct News {
    /// Later events have higher ids.
    pub(crate) id: u64,
    pub(crate) body: NewsBody,
}

/// The content of an event; texts are JSON.
#[derive(Debug)]
pub(crate) enum NewsBody {
    /// A job is new or has changed.
    Job { job: JobId, places: Arc<JobPlaces>, news: JobNews },
    /// A new line in a job's log.
    Log { job: JobId, places: Arc<JobPlaces>, text: String },
    /// How far the running transfers are, once a second.
    Progress(Vec<(JobId, Arc<JobPlaces>, String)>),
    /// A watched folder has changed.
    Watch { places: Arc<JobPlaces>, text: String },
    /// A cap has changed.
    Cap { text: String },
}

impl NewsBody {
    fn bytes(&self) -> usize {
        match self {
            // The ring keeps locations alive, too.
            NewsBody::Job { news, places, .. } => news.bytes() + places.bytes() + 128,
            NewsBody::Log { text, places, .. } | NewsBody::Watch { text, places } => {
                text.len() + places.bytes() + 128
            }
            NewsBody::Cap { text } => text.len() + 128,
            NewsBody::Progress(all) => {
                all.iter().map(|(_, places, text)| text.len() + places.bytes() + 64).sum::<usize>() + 128
            }
        }
    }

    /// The kind of the event, and the part that the caller may see; `None` if that is nothing. With `only`,
    /// events of other jobs are left out.
    pub(crate) fn for_caller(&self, caller: &Caller, only: Option<JobId>) -> Option<(EventKind, String)> {
        let is_asked = |job: &JobId| only.is_none_or(|only| only == *job);
        match self {
            NewsBody::Job { job, places, news } => {
                let is_seen = is_asked(job) && caller.sees(places);
                is_seen.then(|| (EventKind::Job, news.text(caller, places)))
            }
            NewsBody::Log { job, places, text } => {
                // Log lines go only to readers that ask for this job, as there are too many of them.
                (only == Some(*job) && caller.sees(places)).then(|| (EventKind::Log, text.clone()))
            }
            NewsBody::Progress(all) => {
                let seen = all.iter().filter(|(job, places, _)| is_asked(job) && caller.sees(places));
                let texts: Vec<&str> = seen.map(|(_, _, text)| text.as_str()).collect();
                (!texts.is_empty()).then(|| (EventKind::Progress, format!("[{}]", texts.join(","))))
            }
            NewsBody::Watch { places, text } => {
                (only.is_none() && caller.sees(places)).then(|| (EventKind::Watch, text.clone()))
            }
            NewsBody::Cap { text } => only.is_none().then(|| (EventKind::Cap, text.clone())),
        }
    }
}

/// The result of a read.
#[derive(Debug)]
pub(crate) struct HubRead {
    /// The next event, if there is one yet.
    pub(crate) news: Option<Arc<News>>,
    /// True if events between the reader's last one and this one are lost.
    pub(crate) has_gap: bool,
}

/// The ring, and its readers.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Ring {
    news: VecDeque<Arc<News>>,
    bytes: usize,
    next: u64,
}

impl Hub {
    /// Ids begin at `first`, which must be higher than any id of an earlier process. The node time is.
    pub(crate) fn new(first: u64) -> Hub {
        let ring = Ring { news: VecDeque::new(), bytes: 0, next: first.max(1) };
        Hub { ring: Mutex::new(ring), newest: watch::Sender::new(first.max(1) - 1) }
    }

    /// Adds an event and wakes the readers.
    pub(crate) fn tell(&self, body: NewsBody) {
        let mut ring = self.ring.lock().in_any_case();
        let id = ring.next;
        ring.next += 1;
        ring.bytes += body.bytes();
        ring.news.push_back(Arc::new(News { id, body }));
        while ring.news.len() > ENTRIES_MAX || ring.bytes > BYTES_MAX && ring.news.len() > 1 {
            if let Some(gone) = ring.news.pop_front() {
                ring.bytes -= gone.body.bytes();
            }
        }
        drop(ring);
        self.newest.send_replace(id);
    }

    /// True if anybody reads. Without readers, nobody needs to make events that only readers need.
    pub(crate) fn has_readers(&self) -> bool {
        self.readers() > 0
    }

    /// How many readers there are.
    pub(crate) fn readers(&self) -> usize {
        self.newest.receiver_count()
    }

    /// A receiver for waiting: its value is the id of the newest event.
    pub(crate) fn reader(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The event after id `after`. A reader takes one at a time, so that a slow reader holds only one event
    /// that it has not sent.
    pub(crate) fn after(&self, after: u64) -> HubRead {
        let ring = self.ring.lock().in_any_case();
        let first = ring.next - ring.news.len() as u64;
        // An id that this ring never gave out is of another process.
        let next = after.saturating_add(1);
        let has_gap = next < first || after >= ring.next;
        let from = if has_gap { first } else { next };
        let at = usize::try_from(from - first).unwrap_or(usize::MAX);
        HubRead { news: ring.news.get(at).cloned(), has_gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul::copy::LocationSpec;
    use farhaul_api::CallerReach;

    fn other(text: &str) -> NewsBody {
        NewsBody::Cap { text: text.into() }
    }

    #[test]
    fn a_reader_goes_on_where_he_was_or_hears_that_something_is_gone() {
        let hub = Hub::new(100);
        (0..10).for_each(|_| hub.tell(other("{}")));
        let after = |after| {
            let HubRead { news, has_gap } = hub.after(after);
            (news.map(|news| news.id), has_gap)
        };
        assert_eq!(after(99), (Some(100), false));
        assert_eq!(after(105), (Some(106), false));
        assert_eq!(after(109), (None, false));
        // An id of an earlier process, and one that nobody has given out.
        assert_eq!([after(7), after(500), after(u64::MAX)], [(Some(100), true); 3]);
        (0..2 * ENTRIES_MAX).for_each(|_| hub.tell(other("{}")));
        assert!(hub.after(109).has_gap);
        assert!(hub.ring.lock().unwrap().news.len() <= ENTRIES_MAX);
        (0..20).for_each(|_| hub.tell(other(&"x".repeat(1 << 20))));
        assert!(hub.ring.lock().unwrap().bytes <= BYTES_MAX + (1 << 20));
    }

    #[test]
    fn a_reader_sees_what_it_may() {
        let job = JobId::new(1).unwrap();
        let at = |name: &str| Arc::new(JobPlaces(vec![LocationSpec::parse(name.as_ref()).unwrap()]));
        let local = Caller::local();
        let reach = CallerReach { local: vec!["/a".into()], ..CallerReach::default() };
        let narrow = Caller { scopes: vec![farhaul_api::Scope::Read], reach, ..Caller::local() };
        let body = NewsBody::Progress(vec![(job, at("/a/x"), "1".into()), (job, at("/b"), "2".into())]);
        assert_eq!(body.for_caller(&local, None), Some((EventKind::Progress, "[1,2]".into())));
        assert_eq!(body.for_caller(&narrow, None), Some((EventKind::Progress, "[1]".into())));
        let log = NewsBody::Log { job, places: at("/a"), text: "{}".into() };
        assert_eq!(log.for_caller(&local, None), None);
        assert_eq!(log.for_caller(&narrow, Some(job)), Some((EventKind::Log, "{}".into())));
        assert_eq!(other("{}").for_caller(&narrow, Some(job)), None);
    }
}
