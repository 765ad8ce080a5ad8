//! The events of the node as server-sent events, which a reader can resume by their ids.
//!
//! Always true: a slow reader costs nothing but its connection: it reads from a ring that never waits for
//! readers, and gets `gap` when it has missed something. It gets nothing more once its token or log-in is no
//! longer valid.

use farhaul_api::EventKind;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, May, QueryParameters, ToRead};
use super::jobs::bad_query;
use super::problem::HandlerFailure;
use crate::access::Caller;
use crate::hub::HubRead;
use crate::node::Node;
use crate::node::logins::CallerProof;
use farhaul_api::JobId;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(follow))
}

/// How often a line goes out if nothing happens, so that both ends notice a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the node checks whether a reader's token or log-in has expired.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Which events the reader wants.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// Only events about this job, with the lines of its log.
    job: Option<String>,
    /// Events after this id; without it, events from now on. A `Last-Event-ID` header does the same.
    after: Option<u64>,
}

/// A stream of events. The first is `begin`, with the id after which the stream goes on. Then come `job` (a
/// job as it is now), `progress` (how far the running jobs are, once a second), `log` (only with the
/// parameter `job`), `cap` and `watch`. `gap` says that you have missed events: fetch again whatever you
/// show.
#[utoipa::path(get, path = "/events", tag = "events", params(EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that you have received")),
    responses((status = 200, description = "Events without end", body = String, content_type = "text/event-stream")))]
async fn follow(
    may: May<ToRead>,
    headers: HeaderMap,
    QueryParameters(which): QueryParameters<EventQuery>,
) -> Result<impl IntoResponse, HandlerFailure> {
    let job = which.job.map(|text| text.parse::<JobId>().map_err(|error| bad_query(&error.to_string())));
    let job = job.transpose()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let May { node, caller, identity, .. } = may;
    let newest = node.hub.reader();
    let from = last.or(which.after).unwrap_or_else(|| *newest.borrow());
    // A reader that asks for the state of things after `begin`, and follows on from its id, misses nothing.
    let begin = Event::default().id(from.to_string()).event(EventKind::Begin.name()).data("{}");
    let leave = ReadPermission { proof: identity.proof, withdrawn: node.withdrawn(), looked: Instant::now() };
    let reader = Reader { node, caller, leave, job, newest, after: from, waiting: vec![begin] };
    let events = unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    // A proxy such as nginx would otherwise keep events back until its buffer is full.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))];
    Ok((unbuffered, Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))))
}

/// Checks whether a reader may still read.
struct ReadPermission {
    proof: CallerProof,
    withdrawn: watch::Receiver<u64>,
    looked: Instant,
}

impl ReadPermission {
    /// True if what the reader has shown is still valid. Looks when a token or log-in was withdrawn, and every
    /// [`LOOK_EVERY`].
    fn holds(&mut self, node: &Node) -> bool {
        let is_other = self.withdrawn.has_changed().unwrap_or(true);
        if self.proof == CallerProof::Socket || !is_other && self.looked.elapsed() < LOOK_EVERY {
            return true;
        }
        self.withdrawn.mark_unchanged();
        self.looked = Instant::now();
        node.who(self.proof).is_ok()
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
    /// Events to give out, in reverse order: a `gap` is pushed last, so that it goes out first.
    waiting: Vec<Event>,
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.leave.holds(&self.node) {
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
                Some(Event::default().id(news.id.to_string()).event(kind.name()).data(text))
            });
            self.waiting.extend(seen);
            if has_gap {
                self.waiting.push(Event::default().event(EventKind::Gap.name()).data("{}"));
            } else if news.is_none() {
                tokio::select! {
                    // An error means that the node is gone.
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
