//! Watched folders: add them, list them, remove them, and see what became of their files.

use axum::Json;
use axum::http::StatusCode;
use farhaul_api::{WatchList, WatchedFilePage};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{
    App, JsonBody, May, PathParameters, QueryParameters, ToControl, ToRead, ToTake, ToWatch,
};
use super::jobs::{bad_query, page};
use super::problem::HandlerFailure;
use crate::node::WatchSpec;
use crate::watch::STATES;
use farhaul_api::WatchView;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, remove))
        .routes(routes!(files))
        .routes(routes!(retry))
        .routes(routes!(take))
}

/// The watched folders that the caller may see.
#[utoipa::path(get, path = "/watches", tag = "watches",
    responses((status = 200, description = "All of them", body = WatchList<WatchSpec>)))]
async fn list(may: May<ToRead>) -> Result<Json<WatchList<WatchSpec>>, HandlerFailure> {
    let watches = may.act("list watches", "", |node, caller| node.list_watches(caller)).await?;
    Ok(Json(WatchList { watches }))
}

/// Watches a folder: each of its files becomes a job of the caller when it is whole.
#[utoipa::path(post, path = "/watches", tag = "watches", request_body = WatchSpec,
    responses((status = 201, description = "The watch", body = WatchView<WatchSpec>)))]
async fn create(
    may: May<ToWatch>,
    body: JsonBody,
) -> Result<(StatusCode, Json<WatchView<WatchSpec>>), HandlerFailure> {
    let spec: WatchSpec = body.read()?;
    let target = format!("{} to {}", spec.folder, spec.destination);
    let view = may.act("watch a folder", target, move |node, caller| node.add_watch(caller, spec));
    Ok((StatusCode::CREATED, Json(view.await?)))
}

/// One watched folder.
#[utoipa::path(get, path = "/watches/{id}", tag = "watches", params(("id" = String, Path)),
    responses((status = 200, description = "The watch", body = WatchView<WatchSpec>)))]
async fn show(
    may: May<ToRead>,
    PathParameters(id): PathParameters<String>,
) -> Result<Json<WatchView<WatchSpec>>, HandlerFailure> {
    let view = may.act("see a watch", id.clone(), move |node, caller| node.watch_view(caller, &id));
    Ok(Json(view.await?))
}

/// Stops watching a folder. Jobs that have its files go on.
#[utoipa::path(delete, path = "/watches/{id}", tag = "watches", params(("id" = String, Path)),
    responses((status = 204, description = "The folder is not watched any more")))]
async fn remove(
    may: May<ToControl>,
    PathParameters(id): PathParameters<String>,
) -> Result<StatusCode, HandlerFailure> {
    may.act("remove a watch", id.clone(), move |node, caller| node.remove_watch(caller, &id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes files that have failed again, once they have not changed for the usual time.
#[utoipa::path(post, path = "/watches/{id}/retry", tag = "watches", params(("id" = String, Path)),
    responses((status = 204, description = "The files will be taken again")))]
async fn retry(
    may: May<ToControl>,
    PathParameters(id): PathParameters<String>,
) -> Result<StatusCode, HandlerFailure> {
    may.act("retry a watch", id.clone(), move |node, caller| node.retry_watch(caller, &id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes over a watch whose owner's token is not valid any more. From now on it is the caller's.
#[utoipa::path(post, path = "/watches/{id}/take", tag = "watches", params(("id" = String, Path)),
    responses((status = 200, description = "The watch as it is now", body = WatchView<WatchSpec>)))]
async fn take(
    may: May<ToTake>,
    PathParameters(id): PathParameters<String>,
) -> Result<Json<WatchView<WatchSpec>>, HandlerFailure> {
    let view = may.act("take watch", id.clone(), move |node, caller| node.take_watch(caller, &id));
    Ok(Json(view.await?))
}

/// Which files to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchedFileQuery {
    /// Only those of this state: `new`, `settling`, `taken`, `changed`, `done`, `failed`, `gone`.
    state: Option<String>,
    /// How many files the page has, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the page before this one ended.
    cursor: Option<String>,
}

/// Lists what became of each file of a watched folder.
#[utoipa::path(get, path = "/watches/{id}/files", tag = "watches", params(("id" = String, Path), WatchedFileQuery),
    responses((status = 200, description = "A page of files", body = WatchedFilePage)))]
async fn files(
    may: May<ToRead>,
    PathParameters(id): PathParameters<String>,
    QueryParameters(which): QueryParameters<WatchedFileQuery>,
) -> Result<Json<WatchedFilePage>, HandlerFailure> {
    let limit = page(which.limit)?;
    let WatchedFileQuery { state, cursor, .. } = which;
    if let Some(state) = state.as_deref().filter(|state| !STATES.contains(state)) {
        let state = farhaul_text::printable(state.as_bytes(), 40);
        return Err(bad_query(&format!(
            "files have no state '{state}'; the states are {}",
            STATES.join(", ")
        )));
    }
    let after = cursor.unwrap_or_default();
    let files = may.act("see a watch", id.clone(), move |node, caller| {
        node.watch_files(caller, &id, state.as_deref(), &after, limit)
    });
    let files = files.await?;
    let next_cursor = files.last().filter(|_| files.len() == limit).map(|file| file.path.clone());
    Ok(Json(WatchedFilePage { files, next_cursor }))
}
