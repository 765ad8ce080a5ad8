//! Caps: set them, list them, remove them.

use axum::Json;
use axum::http::StatusCode;
use farhaul_api::Cap;
use farhaul_api::CapList;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, JsonBody, May, PathParameters, ToRead, ToSetCaps};
use super::problem::HandlerFailure;
use crate::caps::spec::CapRule;
use farhaul_api::CapView;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, set, remove))
}

/// All caps, with the rates that hold now.
#[utoipa::path(get, path = "/caps", tag = "caps",
    responses((status = 200, description = "All of them, by name", body = CapList)))]
async fn list(may: May<ToRead>) -> Result<Json<CapList>, HandlerFailure> {
    let caps = may.act("list caps", "", |node, caller| node.list_caps(caller)).await?;
    Ok(Json(CapList { caps }))
}

/// One cap.
#[utoipa::path(get, path = "/caps/{name}", tag = "caps", params(("name" = String, Path)),
    responses((status = 200, description = "The cap", body = CapView)))]
async fn show(
    may: May<ToRead>,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<CapView>, HandlerFailure> {
    may.act("show cap", name.clone(), move |node, caller| node.show_cap(caller, &name)).await.map(Json)
}

/// Sets a cap: makes it, or replaces the one of this name. Running jobs go on at the new rate.
#[utoipa::path(put, path = "/caps/{name}", tag = "caps", params(("name" = String, Path)), request_body = Cap,
    responses((status = 200, description = "The cap as it is now", body = CapView)))]
async fn set(
    may: May<ToSetCaps>,
    PathParameters(name): PathParameters<String>,
    body: JsonBody,
) -> Result<Json<CapView>, HandlerFailure> {
    let cap: CapRule = body.read()?;
    may.act("set cap", name.clone(), move |node, caller| node.set_cap(caller, &name, cap)).await.map(Json)
}

/// Removes a cap. Its sessions move to the cap that fits them then.
#[utoipa::path(delete, path = "/caps/{name}", tag = "caps", params(("name" = String, Path)),
    responses((status = 204, description = "It is gone")))]
async fn remove(
    may: May<ToSetCaps>,
    PathParameters(name): PathParameters<String>,
) -> Result<StatusCode, HandlerFailure> {
    may.act("remove cap", name.clone(), move |node, caller| node.remove_cap(caller, &name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
