//! The API: JSON and events over HTTP, below `/api/v1`.
//!
//! How to read it: each file is a resource, with its routes, its requests and its answers, and nothing else.
//! `extract.rs` gives a handler the node and the caller, `problem.rs` is how a request fails, `guard.rs`
//! refuses requests before any handler, `listen.rs` accepts connections, `connection/` says how many and for
//! how long, `document.rs` describes the API, `page.rs` serves the page for browsers.
//!
//! Always true: every route below `/api` but the one for logging in needs a caller that may use it; no
//! request keeps the node busy for longer, or makes it keep more, than the limits allow.

mod caps;
mod connection;
mod deeds;
mod document;
mod events;
mod extract;
mod files;
mod guard;
mod history;
mod jobs;
mod limits;
mod listen;
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
use utoipa_axum::router::OpenApiRouter;

use crate::audit::Audit;
use crate::node::Node;
use deeds::Deeds;
use extract::App;

pub(crate) use request_rules::RequestRules;

pub(crate) use listen::{AddressScope, ListenAddresses, Listeners, ReloadableTls, TcpOrigin};
pub use problem::Problem;

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
