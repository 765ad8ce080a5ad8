//! The description of the API, as OpenAPI 3.1, made from the handlers.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, May, ToRead};
use super::problem::STATUSES;
use farhaul_api::Problem;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(openapi))
}

/// This description of the API.
#[utoipa::path(get, path = "/openapi.json", tag = "node",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
async fn openapi(_: May<ToRead>) -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| serde_json::to_string(&description()).unwrap_or_default());
    ([(header::CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

/// The name of a failure with this status.
fn failure_name(status: StatusCode) -> String {
    format!("Failed{}", status.as_str())
}

/// The statuses of the failures that a route may answer with. Tests hold all answers against them.
fn failures(method: &str, path: &str, has_body: bool) -> BTreeSet<StatusCode> {
    // Whoever asks, whatever for: by the name of the node, the caller, and how much the caller asks.
    let mut all = BTreeSet::from([
        StatusCode::BAD_REQUEST,
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::MISDIRECTED_REQUEST,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::INTERNAL_SERVER_ERROR,
    ]);
    if path.contains('{') {
        all.insert(StatusCode::NOT_FOUND);
    }
    if has_body {
        let of_body = [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            StatusCode::UNPROCESSABLE_ENTITY,
        ];
        all.extend(of_body);
    }
    if method != "get" {
        // Something is changed: by what is there, what the node has room for, and what files and hosts say.
        let of_change = [
            StatusCode::NOT_FOUND,
            StatusCode::CONFLICT,
            StatusCode::UNPROCESSABLE_ENTITY,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::INSUFFICIENT_STORAGE,
        ];
        all.extend(of_change);
    }
    if path == ASKS {
        let of_far_end = [
            StatusCode::NOT_FOUND,
            StatusCode::CONFLICT,
            StatusCode::UNPROCESSABLE_ENTITY,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
            StatusCode::INSUFFICIENT_STORAGE,
        ];
        all.extend(of_far_end);
    }
    all
}

/// The route that asks far ends and directories.
const ASKS: &str = "/api/v1/files";

/// The whole description of the API.
pub(crate) fn description() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Farhaul")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Jobs, their history, caps and watches of one data transfer node."))
        .build();
    let empty = OpenApiBuilder::new().info(info).build();
    let (_, mut api) = OpenApiRouter::with_openapi(empty).merge(super::all_routes()).split_for_parts();
    let components = api.components.get_or_insert_default();
    let bearer =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token (farhaul token create)"));
    components.security_schemes.insert("token".into(), SecurityScheme::Http(bearer.build()).into());
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    let cookie = ApiKeyValue::with_description(
        "farhaul",
        "A log-in with a browser; the port is added to the cookie's name",
    );
    components.security_schemes.insert("login".into(), SecurityScheme::ApiKey(ApiKey::Cookie(cookie)).into());
    let none = Vec::<String>::new;
    api.security =
        Some(vec![SecurityRequirement::new("token", none()), SecurityRequirement::new("login", none())]);
    for (status, says) in STATUSES {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
        let response = ResponseBuilder::new().description(says).content("application/problem+json", problem);
        components.responses.insert(failure_name(status), response.build().into());
    }
    for (path, item) in &mut api.paths.paths {
        let operations = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("delete", &mut item.delete),
            ("patch", &mut item.patch),
        ];
        let named =
            operations.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)));
        for (method, operation) in named {
            // Generators of client libraries name their functions by the operation id.
            let words =
                path.trim_start_matches("/api/v1/").replace(['/', '-', '.'], "_").replace(['{', '}'], "");
            operation.operation_id = Some(format!("{method}_{words}"));
            for status in failures(method, path, operation.request_body.is_some()) {
                let failure = Ref::from_response_name(failure_name(status));
                operation.responses.responses.insert(status.as_str().into(), failure.into());
            }
        }
    }
    api
}
