//! The API: JSON and events over HTTP, below `/api/v1`.
//!
//! How to read it: each file is a resource, with its routes, its requests and its answers, and nothing else.
//! `extract.rs` gives a handler the node and the caller, `problem.rs` is how a request fails, `guard.rs`
//! refuses requests before any handler, `document.rs` describes the API, `page.rs` serves the page for browsers. The
//! crate `http` accepts the connections.
//!
//! Always true: every route below `/api` but the one for logging in needs a caller that may use it; no
//! request keeps the node busy for longer, or makes it keep more, than the limits allow.

mod caps;
mod deeds;
mod document;
mod events;
mod extract;
mod files;
mod guard;
mod history;
mod jobs;
mod limits;
mod logins;
mod metrics;
mod page;
mod peers;
mod problem;
mod questions;
mod request_rules;
mod system;
mod threads;
mod tokens;
mod watches;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use farhaul_http::{HttpVersions, ProcessPurpose, Server};
use utoipa_axum::router::OpenApiRouter;

use crate::audit::Audit;
use crate::node::Node;
use deeds::Deeds;
use extract::App;
use problem::HandlerFailure;

pub(crate) use request_rules::RequestRules;

/// The part of the API that is served at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressScope {
    /// The whole API.
    Everything,
    /// Only the metrics, for collectors.
    Metrics,
}

/// When a caller may come again that has not taken its answers.
const RETRY_AFTER_S: u64 = 5;

/// How the API listens.
pub(crate) const SERVER: Server = Server {
    name: "the API",
    is_plain_abroad: false,
    versions: HttpVersions::One,
    purpose: ProcessPurpose::Transfers,
    answers_not_taken,
};

fn answers_not_taken() -> Response {
    let what = "too many answers to this caller are not taken yet";
    HandlerFailure::too_many(what, RETRY_AFTER_S).into_response()
}

/// All routes below `/api/v1`, with their description.
fn routes() -> OpenApiRouter<App> {
    let all = [
        system::router(),
        jobs::router(),
        events::router(),
        history::router(),
        caps::router(),
        files::router(),
        peers::router(),
        tokens::router(),
        logins::router(),
        watches::router(),
        document::router(),
    ];
    all.into_iter().fold(OpenApiRouter::new(), |routes, more| routes.merge(more))
}

/// All routes: the API with its version, and `/metrics`, where collectors look for it.
fn all_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().nest("/api/v1", routes()).merge(metrics::router())
}

/// The router that answers requests at an address.
pub(crate) fn service(
    node: Arc<Node>,
    rules: Arc<RequestRules>,
    audit: Arc<Audit>,
    serves: AddressScope,
) -> Router {
    let counted = node.metrics.clone();
    let deeds = Deeds::new(audit, node.clock.clone());
    let app = App::new(node, rules.clone(), Arc::new(deeds));
    let router = match serves {
        AddressScope::Everything => {
            let (router, _) = all_routes().split_for_parts();
            router.merge(page::router()).fallback(page::no_route)
        }
        AddressScope::Metrics => {
            let (router, _) = metrics::router().split_for_parts();
            router.fallback(guard::no_route)
        }
    };
    router
        .method_not_allowed_fallback(guard::no_method)
        .with_state(app)
        .layer(axum::middleware::map_response(guard::after))
        .layer(axum::middleware::from_fn_with_state(rules, guard::before))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(guard::panicked))
        .layer(axum::middleware::from_fn_with_state(counted, metrics::count))
}

#[cfg(test)]
mod tests;
