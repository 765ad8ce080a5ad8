//! Files: lists directories here and at peers, as far as the caller reaches.

use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, May, QueryParameters, ToRead};
use super::problem::HandlerFailure;
use farhaul_api::DirectoryView;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which directory to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DirectoryQuery {
    /// An absolute path on the node's host, `[user@]host:path`, or `fh://host[:port]/path`.
    location: String,
}

/// The entries of a directory, sorted by name; 10,000 at most.
#[utoipa::path(get, path = "/files", tag = "files", params(DirectoryQuery),
    responses((status = 200, description = "The entries", body = DirectoryView)))]
async fn list(
    may: May<ToRead>,
    QueryParameters(which): QueryParameters<DirectoryQuery>,
) -> Result<Json<DirectoryView>, HandlerFailure> {
    let location = which.location;
    may.ask("list files", location.clone(), move |node, caller, question| {
        node.browse(caller, &location, question)
    })
    .await
    .map(Json)
}
