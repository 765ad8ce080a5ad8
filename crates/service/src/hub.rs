//! What is told to those who watch: a ring of the last things that have happened, from which every reader reads by himself.
//!
//! Always true: whoever tells never waits; a reader costs nothing but his own reading, however slow he is; one that has missed
//! something hears that he has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use farhaul_handover::Held as _;
use tokio::sync::watch;

use crate::access::{Caller, JobPlaces};
use crate::job::JobId;

/// Things that the ring holds, and their bytes.
const ENTRIES_MAX: usize = 8192;
const BYTES_MAX: usize = 8 << 20;

/// One thing that has happened.
#[derive(Debug)]
pub(crate) struct News {
    /// Later ones have higher numbers.
    pub(crate) id: u64,
    pub(crate) body: NewsBody,
}

/// What has happened; texts are JSON.
#[derive(Debug)]
pub(crate) enum NewsBody {
    /// A job is another one than before, or new.
    Job { job: JobId, places: Arc<JobPlaces>, text: String },
    /// A line of a job's log.
    Log { job: JobId, places: Arc<JobPlaces>, text: String },
    /// How far those are that run, once a second.
    Progress(Vec<(JobId, Arc<JobPlaces>, String)>),
    /// Something about a watched folder.
    Watch { places: Arc<JobPlaces>, text: String },
    /// Something that is not about a job: a cap, a token, the service itself. Its kind and what it is.
    Other { kind: &'static str, text: String },
}

impl NewsBody {
    fn bytes(&self) -> usize {
        match self {
            NewsBody::Job { text, .. }
            | NewsBody::Log { text, .. }
            | NewsBody::Watch { text, .. }
            | NewsBody::Other { text, .. } => text.len() + 128,
            NewsBody::Progress(all) => all.iter().map(|(_, _, text)| text.len() + 64).sum::<usize>() + 128,
        }
    }

    /// The kind, and what of it the caller may see; nothing if that is none of it. With a job, only what is about that.
    pub(crate) fn for_caller(&self, caller: &Caller, only: Option<JobId>) -> Option<(&'static str, String)> {
        let is_asked = |job: &JobId| only.is_none_or(|only| only == *job);
        match self {
            NewsBody::Job { job, places, text } => {
                (is_asked(job) && caller.sees(places)).then(|| ("job", text.clone()))
            }
            NewsBody::Log { job, places, text } => {
                // Lines are for who asks for this job: others would drown in them.
                (only == Some(*job) && caller.sees(places)).then(|| ("log", text.clone()))
            }
            NewsBody::Progress(all) => {
                let seen = all.iter().filter(|(job, places, _)| is_asked(job) && caller.sees(places));
                let texts: Vec<&str> = seen.map(|(_, _, text)| text.as_str()).collect();
                (!texts.is_empty()).then(|| ("progress", format!("[{}]", texts.join(","))))
            }
            NewsBody::Watch { places, text } => {
                (only.is_none() && caller.sees(places)).then(|| ("watch", text.clone()))
            }
            NewsBody::Other { kind, text } => only.is_none().then(|| (*kind, text.clone())),
        }
    }
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) struct HubRead {
    /// Nothing if there is none yet.
    pub(crate) news: Option<Arc<News>>,
    /// Something between what the reader had and this is gone.
    pub(crate) has_gap: bool,
}

/// The ring.
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
    /// Numbers begin at `first`, which is higher than any that an earlier process has told: a time does.
    pub(crate) fn new(first: u64) -> Hub {
        let ring = Ring { news: VecDeque::new(), bytes: 0, next: first.max(1) };
        Hub { ring: Mutex::new(ring), newest: watch::Sender::new(first.max(1) - 1) }
    }

    /// Tells something.
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

    /// Whether anybody reads: what only readers need is not made otherwise.
    pub(crate) fn has_readers(&self) -> bool {
        self.readers() > 0
    }

    /// How many wait for news.
    pub(crate) fn readers(&self) -> usize {
        self.newest.receiver_count()
    }

    /// To wait for news: its value is the number of the newest.
    pub(crate) fn reader(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// What comes next behind number `after`. A reader takes one at a time: what it has taken and not yet sent is all that a slow
    /// one holds besides its connection.
    pub(crate) fn after(&self, after: u64) -> HubRead {
        let ring = self.ring.lock().in_any_case();
        let first = ring.next - ring.news.len() as u64;
        // A number that was never told is of another process.
        let has_gap = after + 1 < first || after >= ring.next;
        let from = if has_gap { first } else { after + 1 };
        let at = usize::try_from(from - first).unwrap_or(usize::MAX);
        HubRead { news: ring.news.get(at).cloned(), has_gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul::LocationSpec;

    fn other(text: &str) -> NewsBody {
        NewsBody::Other { kind: "cap", text: text.into() }
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
        // Of an earlier process, and one that nobody has told.
        assert_eq!([after(7), after(500)], [(Some(100), true); 2]);
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
        let mut narrow = Caller { scopes: vec![crate::access::Scope::Read], ..Caller::local() };
        narrow.reach.local = Some(vec!["/a".into()]);
        let body = NewsBody::Progress(vec![(job, at("/a/x"), "1".into()), (job, at("/b"), "2".into())]);
        assert_eq!(body.for_caller(&local, None), Some(("progress", "[1,2]".into())));
        assert_eq!(body.for_caller(&narrow, None), Some(("progress", "[1]".into())));
        let log = NewsBody::Log { job, places: at("/a"), text: "{}".into() };
        assert_eq!(log.for_caller(&local, None), None);
        assert_eq!(log.for_caller(&narrow, Some(job)), Some(("log", "{}".into())));
        assert_eq!(other("{}").for_caller(&narrow, Some(job)), None);
    }
}
