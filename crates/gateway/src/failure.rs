//! How a request fails: a status, and one line of text for people.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use farhaul_words::{Code, Error, ExitCode};

/// When a client may come again while the far end cannot be reached.
const RETRY_AFTER_S: &str = "5";

/// A request that is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    what: String,
    header: Option<(header::HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, what: impl Into<String>) -> Refusal {
        Refusal { status, what: what.into(), header: None }
    }

    pub(crate) fn bad_request(what: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, what)
    }

    pub(crate) fn with_header(self, name: header::HeaderName, value: HeaderValue) -> Refusal {
        Refusal { header: Some((name, value)), ..self }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<Error> for Refusal {
    /// What the far end, or the way there, says.
    fn from(error: Error) -> Refusal {
        let status = status(&error);
        // What the far end says about itself is for whoever runs the gateway.
        tracing::debug!(%error, %status, "a request failed");
        let what = match status {
            StatusCode::NOT_FOUND => "there is no such file or directory".to_string(),
            StatusCode::FORBIDDEN => "this may not be read".to_string(),
            StatusCode::SERVICE_UNAVAILABLE => "the far end cannot be reached now".to_string(),
            _ => format!("the far end cannot give this ({})", error.code().name()),
        };
        let refusal = Refusal::new(status, what);
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                refusal.with_header(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S))
            }
            _ => refusal,
        }
    }
}

fn status(error: &Error) -> StatusCode {
    match error.code() {
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::PermissionDenied | Code::Forbidden => StatusCode::FORBIDDEN,
        Code::Busy => StatusCode::SERVICE_UNAVAILABLE,
        _ if error.exit_code() == ExitCode::Lost || error.exit_code() == ExitCode::Connect => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::BAD_GATEWAY,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(format!("{}\n", self.what)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Some((name, value)) = self.header {
            headers.insert(name, value);
        }
        response
    }
}
