//! What happens, as server-sent events that can be resumed by their ids.
//!
//! Always true: a reader that is slow, or stands still, costs nothing but its connection: it reads from a ring that nobody waits
//! for, and hears `gap` when it has missed something; it hears nothing more when its token or log-in is worth nothing any more.

use std::convert::Infallible;
use std::ops::Not as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, May, QueryParameters, ToRead, blocking};
use super::jobs::bad_query;
use super::problem::HandlerFailure;
use crate::access::Caller;
use crate::hub::HubRead;
use crate::job::JobId;
use crate::node::Node;
use crate::node::logins::CallerProof;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(follow))
}

/// So often a line goes out if nothing happens, so that both ends notice a connection that is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// So often it is looked whether a reader may still read, for what ends by its time.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Which events are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// Only what is about this job, with the lines of its log.
    job: Option<String>,
    /// What has come behind this id; else from now on. A `Last-Event-ID` header is the same.
    after: Option<u64>,
}

/// What happens from now on: first of all `begin`, whose id is that of the last thing that was heard or has happened,
/// then `job` (a job as it is now), `progress` (how far those are that run, once a second), `log` (with `job`), `cap`,
/// `watch`, and `gap` when something was missed: then ask again for what you show.
#[utoipa::path(get, path = "/events", tag = "events", params(EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that was heard")),
    responses((status = 200, description = "Events without end", body = String, content_type = "text/event-stream")))]
async fn follow(
    may: May<ToRead>,
    headers: HeaderMap,
    QueryParameters(which): QueryParameters<EventQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, HandlerFailure> {
    let job = which.job.map(|text| text.parse::<JobId>().map_err(|error| bad_query(&error.to_string())));
    let job = job.transpose()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let May { node, caller, who, .. } = may;
    let newest = node.hub.reader();
    let from = last.or(which.after).unwrap_or_else(|| *newest.borrow());
    // Who asks for something when this has come, and goes on from its id, misses nothing in between.
    let begin = Event::default().id(from.to_string()).event("begin").data("{}");
    let leave = ReadPermission { proof: who.proof, withdrawn: node.withdrawn(), looked: Instant::now() };
    let reader = Reader { node, caller, leave, job, newest, after: from, waiting: vec![begin] };
    let events = unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Whether a reader may still read.
struct ReadPermission {
    proof: CallerProof,
    withdrawn: watch::Receiver<u64>,
    looked: Instant,
}

impl ReadPermission {
    /// Whether what the reader has shown is still good; the store is asked when something was withdrawn, and now and then.
    async fn holds(&mut self, node: &Arc<Node>) -> bool {
        let is_other = self.withdrawn.has_changed().unwrap_or(true);
        if self.proof == CallerProof::Socket || !is_other && self.looked.elapsed() < LOOK_EVERY {
            return true;
        }
        self.withdrawn.mark_unchanged();
        self.looked = Instant::now();
        let (node, proof) = (node.clone(), self.proof);
        // A store that cannot be read lets nobody in, and throws nobody out.
        blocking(move || node.who(proof)).await.is_ok_and(|found| found.is_err()).not()
    }
}

/// One connection's place in the ring.
struct Reader {
    node: Arc<Node>,
    caller: Caller,
    leave: ReadPermission,
    job: Option<JobId>,
    newest: watch::Receiver<u64>,
    after: u64,
    /// The last comes first: what is next, behind word of a gap before it.
    waiting: Vec<Event>,
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.leave.holds(&self.node).await {
                return None;
            }
            if let Some(event) = self.waiting.pop() {
                return Some(event);
            }
            self.newest.mark_unchanged();
            let HubRead { news, has_gap } = self.node.hub.after(self.after);
            self.after = match &news {
                Some(news) => news.id,
                None if has_gap => *self.newest.borrow(),
                None => self.after,
            };
            let seen = news.as_ref().and_then(|news| {
                let (kind, text) = news.body.for_caller(&self.caller, self.job)?;
                Some(Event::default().id(news.id.to_string()).event(kind).data(text))
            });
            self.waiting.extend(seen);
            if has_gap {
                self.waiting.push(Event::default().event("gap").data("{}"));
            } else if news.is_none() {
                tokio::select! {
                    // The node is gone when there is nobody to tell news.
                    changed = self.newest.changed() => changed.ok()?,
                    changed = self.leave.withdrawn.changed() => {
                        changed.ok()?;
                        self.leave.withdrawn.mark_changed();
                    }
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        }
    }
}
