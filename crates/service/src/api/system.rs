//! The node itself: its version, its health, its store.

use farhaul_api::{BackupRequest, Findings, Health, Version};
use std::path::Path;

use axum::Json;
use axum::http::StatusCode;
use farhaul_words::{Code, Error};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, JsonBody, May, ToKeepStore, ToRead};
use super::problem::HandlerFailure;
use crate::host::{self};
use crate::store::jobs;
use farhaul_api::HostView;
use farhaul_api::JobState;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(version))
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(host))
        .routes(routes!(backup))
        .routes(routes!(check))
}

/// The version of the program and of the interface.
#[utoipa::path(get, path = "/version", tag = "node",
    responses((status = 200, description = "The versions", body = Version)))]
async fn version(_: May<ToRead>) -> Json<Version> {
    Json(Version { name: "farhaul".into(), version: env!("CARGO_PKG_VERSION").into(), api: 1 })
}

/// Checks whether the process answers.
#[utoipa::path(get, path = "/health/live", tag = "node", responses((status = 204, description = "It answers")))]
async fn live(_: May<ToRead>) -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Checks whether the node takes new jobs and begins them. A node that is shutting down, or whose disk is
/// full, answers 503.
#[utoipa::path(get, path = "/health/ready", tag = "node",
    responses((status = 200, description = "It takes jobs", body = Health)))]
async fn ready(may: May<ToRead>) -> Result<Json<Health>, HandlerFailure> {
    let health = may.act("look at health", "", |node, _| {
        if node.is_draining() {
            let what = "the node is shutting down: running jobs may finish, and no other job begins";
            return Err(Error::new(Code::Busy, what).with_hint("ask again when it has been restarted"));
        }
        if let Some(failure) = node.store.failure() {
            let hint = failure.hint().unwrap_or_default().to_string();
            let what = format!("new jobs are refused: {}", failure.what());
            return Err(Error::new(Code::Busy, what).with_hint(hint));
        }
        let counts = node.store.read(jobs::counts)?;
        let named =
            counts.into_iter().map(|(state, count): (JobState, u64)| (state.name().to_string(), count));
        Ok(Health { status: "ok".into(), jobs: named.collect() })
    });
    health.await.map(Json)
}

/// The counts of the interfaces, processors, disks and sensors of the node's host so far. Rates are the
/// differences between two answers.
#[utoipa::path(get, path = "/host", tag = "node",
    responses((status = 200, description = "The counts", body = HostView)))]
async fn host(may: May<ToRead>) -> Result<Json<HostView>, HandlerFailure> {
    let view = may.act("look at the host", "", |node, caller| {
        let mut view = host::look(Path::new("/"), &host::size_of);
        view.moved = node.metrics.moved();
        // A token must not learn the names of directories beyond its reach.
        if !caller.reach.everything {
            let local = &caller.reach.local;
            let is_near =
                |point: &Path| local.iter().any(|dir| dir.starts_with(point) || point.starts_with(dir));
            view.mounts.retain(|mount| is_near(Path::new(&mount.point)));
        }
        Ok(view)
    });
    view.await.map(Json)
}

/// Writes a copy of the store, as it is at one moment, while the node goes on working.
#[utoipa::path(post, path = "/store/backup", tag = "node", request_body = BackupRequest,
    responses((status = 204, description = "The copy is written and synced")))]
async fn backup(may: May<ToKeepStore>, body: JsonBody) -> Result<StatusCode, HandlerFailure> {
    let BackupRequest { path } = body.read()?;
    if !path.is_absolute() {
        return Err(Error::new(Code::BadPath, "the path of a backup must be absolute").into());
    }
    may.act("back up the store", path.display().to_string(), move |node, _| node.store.backup(&path)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks the whole store.
#[utoipa::path(get, path = "/store/check", tag = "node",
    responses((status = 200, description = "The faults", body = Findings)))]
async fn check(may: May<ToKeepStore>) -> Result<Json<Findings>, HandlerFailure> {
    let findings = may.act("check the store", "", |node, _| node.store.check()).await?;
    Ok(Json(Findings { findings }))
}
