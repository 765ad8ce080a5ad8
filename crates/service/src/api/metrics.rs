//! The metrics, at the path where collectors look for them, and the counts of the API's own answers.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, May, ToRead};
use super::problem::HandlerFailure;
use crate::metrics::{Format, Metrics};

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// The content types of the two formats.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics of the node for collectors such as Prometheus: OpenMetrics, or the older text format if `Accept`
/// prefers it.
#[utoipa::path(get, path = "/metrics", tag = "node",
    responses((status = 200, description = "All metrics (docs/reference/metrics.md)",
        content((String = "application/openmetrics-text"), (String = "text/plain")))))]
async fn metrics(may: May<ToRead>, headers: HeaderMap) -> Result<Response, HandlerFailure> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = wanted(accept.unwrap_or_default());
    let text = may.act("look at metrics", "", move |node, _| node.metrics.text(node, format)).await?;
    let kind = match format {
        Format::OpenMetrics => OPEN_METRICS,
        Format::Prometheus => PROMETHEUS,
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The older format is chosen only if the header names it and prefers it to the newer one.
fn wanted(accept: &str) -> Format {
    let weight = |kind: &str| {
        let named = accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_it = parts.next()?.eq_ignore_ascii_case(kind);
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
            weight.filter(|_| is_it)
        });
        named.fold(0.0_f64, f64::max)
    };
    if weight("text/plain") > weight("application/openmetrics-text") {
        Format::Prometheus
    } else {
        Format::OpenMetrics
    }
}

/// Counts each answer by its route. A route is a template and not the path, so that callers cannot add new
/// labels.
pub(super) async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let method = match *request.method() {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    };
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics.answered(method, route, response.status().as_u16());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_gets_the_format_that_it_prefers() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for accept in ["", "*/*", "text/html,*/*;q=0.8", "application/openmetrics-text", prometheus] {
            assert_eq!(wanted(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "text/plain",
            "Text/Plain; version=0.0.4",
            "application/openmetrics-text;q=0.2, text/plain;q=0.9",
        ] {
            assert_eq!(wanted(accept), Format::Prometheus, "{accept}");
        }
    }
}
