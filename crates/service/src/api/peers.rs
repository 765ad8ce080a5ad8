//! Peers: the other hosts that jobs copy from and to.

use axum::Json;
use farhaul_api::PeerList;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, May, PathParameters, ToRead};
use super::problem::HandlerFailure;
use farhaul_api::PeerView;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show))
}

/// The other hosts of the configuration, of jobs and of the history; for a token with a list of peers, only
/// those.
#[utoipa::path(get, path = "/peers", tag = "peers",
    responses((status = 200, description = "All of them, by name", body = PeerList)))]
async fn list(may: May<ToRead>) -> Result<Json<PeerList>, HandlerFailure> {
    let peers = may.act("list peers", "", |node, caller| node.list_peers(caller)).await?;
    Ok(Json(PeerList { peers }))
}

/// One peer.
#[utoipa::path(get, path = "/peers/{peer}", tag = "peers",
    params(("peer" = String, Path, description = "Its name, such as `fh://hpc:33001` with each slash as `%2F`, or a daemon's host: `hpc`")),
    responses((status = 200, description = "The peer", body = PeerView)))]
async fn show(
    may: May<ToRead>,
    PathParameters(peer): PathParameters<String>,
) -> Result<Json<PeerView>, HandlerFailure> {
    may.act("show peer", peer.clone(), move |node, caller| node.show_peer(caller, &peer)).await.map(Json)
}
