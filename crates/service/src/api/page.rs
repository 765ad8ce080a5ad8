//! The page for browsers. It needs no token, as it holds nothing of the node.

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::extract::App;
use super::guard;
use crate::page::{BuiltPage, answer};

/// The routes of the page: files in its folder and in one folder below.
pub(super) fn router() -> Router<App> {
    Router::new().route("/", get(page)).route("/{file}", get(page)).route("/assets/{file}", get(page))
}

/// True if a path belongs to the page, and not to the API.
pub(super) fn is_of_page(uri: &Uri) -> bool {
    let first = uri.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    first != "api" && first != "metrics"
}

async fn page(request: Request) -> Response {
    if !is_of_page(request.uri()) {
        return guard::no_route(request.uri().clone()).await.into_response();
    }
    answer(&BuiltPage, request.uri().path(), request.headers())
}

/// The answer if nothing has this path.
pub(super) async fn no_route(request: Request) -> Response {
    let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_of_page(request.uri()) && is_look {
        return answer(&BuiltPage, request.uri().path(), request.headers());
    }
    guard::no_route(request.uri().clone()).await.into_response()
}
