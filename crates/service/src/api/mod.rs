//! The API: HTTP, JSON, events; `/api/v1`.
//!
//! How to read it: a file a resource, with its routes, what is asked and what is answered, and nothing else; `extract.rs` is how a
//! handler gets node and caller, `problem.rs` how a request fails, `guard.rs` what is refused before any handler, `listen.rs`
//! where requests come from, `document.rs` the description of it all.
//!
//! Always true: no route works without a caller who may use it; no request keeps the node busy for longer, or makes it keep
//! more, than limits allow.

mod deeds;
mod document;
mod events;
mod extract;
mod guard;
mod history;
mod jobs;
mod limits;
mod listen;
mod problem;
mod system;
mod tokens;
mod watches;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use utoipa_axum::router::OpenApiRouter;

use crate::node::Node;
use extract::App;

pub(crate) use listen::{Listeners, Tls};
pub use problem::Problem;

/// Bytes of a request's body.
const BODY_MAX: usize = 8 << 20;

/// All routes, and their description.
fn routes() -> OpenApiRouter<App> {
    let all = [
        system::router(),
        jobs::router(),
        events::router(),
        history::router(),
        tokens::router(),
        watches::router(),
        document::router(),
    ];
    all.into_iter().fold(OpenApiRouter::new(), |routes, more| routes.merge(more))
}

/// What answers requests. `hosts` are the names by which the node may be called over TCP.
pub(crate) fn service(node: Arc<Node>, hosts: Vec<String>) -> Router {
    let app = App::new(node, Arc::default(), Arc::default());
    let (router, _) = OpenApiRouter::new().nest("/api/v1", routes()).split_for_parts();
    router
        .fallback(guard::no_route)
        .method_not_allowed_fallback(guard::no_method)
        .with_state(app)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(axum::middleware::from_fn_with_state(Arc::new(hosts), guard::before))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(guard::panicked))
}

#[cfg(test)]
mod tests;
