//! Takes a request from its guard to its answer. There is one route: every address is a path at the far end.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use farhaul::read::PathKind;
use farhaul_http::{Connection, RequestOrigin};
use farhaul_words::{Code, Error};
use tokio::sync::Semaphore;

use crate::access_log::{AccessLog, Asked};
use crate::body::Answers;
use crate::failure::Refusal;
use crate::file_answer::{self, EarlyRead};
use crate::guard::{self, HostNames};
use crate::listing::{self, Reader};
use crate::login::Access;
use crate::paths::FarPath;
use crate::propfind::{self, Extent};
use crate::store::Store;

const DAV: HeaderName = HeaderName::from_static("dav");

/// What all requests have in common.
pub(crate) struct Gateway {
    pub(crate) store: Store,
    pub(crate) log: Arc<AccessLog>,
    pub(crate) access: Access,
    pub(crate) names: HostNames,
    pub(crate) answers: Answers,
    /// Of lists that are written at the same time. Each has a thread, which also waits for its client.
    pub(crate) lists: Arc<Semaphore>,
}

/// How many lists are written at the same time.
pub(crate) const LISTS_MAX: usize = 64;

pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .fallback(handle)
        .with_state(gateway)
        .layer(axum::middleware::map_response(after))
        .layer(tower_http::catch_panic::CatchPanicLayer::new())
}

async fn handle(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    // The body of a request is of no interest. What a client sends of it unasked is read by the connection.
    let (parts, _body) = request.into_parts();
    let mut asked = Asked::of(&parts);
    let log = gateway.log.clone();
    let answered = answer(gateway, parts, &mut asked.reader).await;
    log.watch(asked, answered.unwrap_or_else(|refusal| refusal.into_response()))
}

/// `reader` gets the name under which the request is made.
async fn answer(gateway: Arc<Gateway>, parts: Parts, reader: &mut String) -> Result<Response, Refusal> {
    let origin = RequestOrigin::of(&parts);
    guard::judge(origin, &parts.method, &parts.uri, &parts.headers, &gateway.names)?;
    let principal = gateway.access.principal(origin, &parts.headers)?;
    reader.clone_from(&principal);
    if origin != RequestOrigin::OwnUser
        && let Some(connection) = Connection::of(&parts)
        && connection.show(&principal).is_err()
    {
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "this client has too many connections"));
    }
    if parts.method == Method::OPTIONS {
        return Ok(options());
    }
    let path = FarPath::of_address(parts.uri.path())?;
    // Whatever waits for the far end waits on a thread of its own.
    let waiting = tokio::task::spawn_blocking(move || look(&gateway, &path, &parts));
    match waiting.await {
        Ok(answer) => answer,
        Err(_) => Err(Refusal::from(Error::bug("a request"))),
    }
}

fn options() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(guard::ALLOWED));
    headers.insert(DAV, HeaderValue::from_static("1"));
    response
}

/// Asks the far end. Blocks.
fn look(gateway: &Gateway, path: &FarPath, parts: &Parts) -> Result<Response, Refusal> {
    if parts.method.as_str() == "PROPFIND" {
        let extent = Extent::of(&parts.headers)?;
        let remote = gateway.store.far_end.remote()?;
        return propfind::answer(&remote, path, extent);
    }
    if path.is_directory {
        return list(gateway, path, parts);
    }
    let early = EarlyRead::begin(&gateway.store, &path.bytes, &parts.method, &parts.headers);
    match gateway.store.open(&path.bytes) {
        Ok(file) => {
            let name = path.bytes.rsplit(|byte| *byte == b'/').next().unwrap_or(b"");
            let Parts { method, headers, .. } = parts;
            let asked = file_answer::Asked { method, headers, name, file: &file, early };
            file_answer::answer(asked, &gateway.store, &gateway.answers)
        }
        Err(error) => match error.code() {
            Code::NotFound | Code::PermissionDenied | Code::Forbidden => Err(error.into()),
            _ => not_a_file(gateway, path, error),
        },
    }
}

/// A directory, whose address ends in a slash; or something that nobody can read.
fn not_a_file(gateway: &Gateway, path: &FarPath, error: Error) -> Result<Response, Refusal> {
    let kind = gateway.store.far_end.with(|remote| remote.stat(&path.bytes)).map(|entry| entry.kind);
    if kind.is_ok_and(|kind| kind == PathKind::Directory) {
        let there = FarPath { is_directory: true, bytes: path.bytes.clone() }.address();
        let there = HeaderValue::try_from(there).expect("an address is plain");
        let refusal =
            Refusal::new(StatusCode::MOVED_PERMANENTLY, "the address of a directory ends in a slash");
        return Ok(refusal.with_header(header::LOCATION, there).into_response());
    }
    Err(error.into())
}

fn list(gateway: &Gateway, path: &FarPath, parts: &Parts) -> Result<Response, Refusal> {
    let entry = gateway.store.far_end.with(|remote| remote.stat(&path.bytes))?;
    if entry.kind != PathKind::Directory {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such file or directory"));
    }
    let reader = Reader::of(&parts.headers);
    match parts.method == Method::HEAD {
        true => Ok(listing::head(reader)),
        false => {
            let permit = gateway.lists.clone().try_acquire_owned().map_err(|_| too_many_lists())?;
            Ok(listing::answer(gateway.store.far_end.remote()?, path.clone(), reader, permit))
        }
    }
}

fn too_many_lists() -> Refusal {
    let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many lists are being written");
    refusal.with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

/// Tells browsers not to guess what a file is, and other sites' pages not to show it as their own.
async fn after(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    response
}
