//! How a failed request is answered: RFC 9457, with the error codes that all of Farhaul uses.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use farhaul_api::Problem;
use farhaul_words::{Code, Error};

use crate::job::JobOption;

/// The page that explains the codes.
const ERRORS: &str = "https://github.com/farhaul/farhaul/blob/main/docs/reference/errors.md#";

/// The statuses that failures may have, and what each says. A failure has no other one, and the description of the API
/// takes them from here.
pub(super) const STATUSES: [(StatusCode, &str); 17] = [
    (StatusCode::BAD_REQUEST, "The request makes no sense"),
    (StatusCode::UNAUTHORIZED, "Nobody is known by what the request shows"),
    (StatusCode::FORBIDDEN, "The caller may not do this"),
    (StatusCode::NOT_FOUND, "There is no such thing"),
    (StatusCode::METHOD_NOT_ALLOWED, "The path takes no such request"),
    (StatusCode::REQUEST_TIMEOUT, "The body came too slowly"),
    (StatusCode::CONFLICT, "This cannot be done as things stand"),
    (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not JSON"),
    (StatusCode::MISDIRECTED_REQUEST, "The node has another name"),
    (StatusCode::UNPROCESSABLE_ENTITY, "The node cannot do what the request says"),
    (StatusCode::TOO_MANY_REQUESTS, "This is more than a caller may ask, or make the node keep"),
    (StatusCode::INTERNAL_SERVER_ERROR, "The node, or what it works with, has failed"),
    (StatusCode::BAD_GATEWAY, "A far end cannot be reached, or has failed"),
    (StatusCode::SERVICE_UNAVAILABLE, "A far end is busy"),
    (StatusCode::GATEWAY_TIMEOUT, "There was no answer in time"),
    (StatusCode::INSUFFICIENT_STORAGE, "A disk is full"),
];

/// How a handler fails.
#[derive(Debug, Clone)]
pub(crate) struct HandlerFailure {
    pub(crate) error: Error,
    status: StatusCode,
    retry_after_s: Option<u64>,
    set_cookie: Option<HeaderValue>,
    /// The connection ends with this answer.
    closes: bool,
}

impl HandlerFailure {
    /// A failure with another status than the usual one of the code.
    pub(crate) fn with_status(error: Error, status: StatusCode) -> HandlerFailure {
        HandlerFailure { error, status, retry_after_s: None, set_cookie: None, closes: false }
    }

    /// A failure because the caller asks too often.
    pub(crate) fn too_many(what: &str, retry_after_s: u64) -> HandlerFailure {
        let error = Error::new(Code::TooMany, what);
        let status = StatusCode::TOO_MANY_REQUESTS;
        HandlerFailure { retry_after_s: Some(retry_after_s), ..HandlerFailure::with_status(error, status) }
    }

    /// Ends the connection with this answer.
    pub(crate) fn and_close(self) -> HandlerFailure {
        HandlerFailure { closes: true, ..self }
    }

    /// Adds a cookie to the answer.
    pub(crate) fn with_cookie(self, cookie: HeaderValue) -> HandlerFailure {
        HandlerFailure { set_cookie: Some(cookie), ..self }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    fn problem(&self) -> Problem {
        let code = self.error.code();
        Problem {
            kind: format!("{ERRORS}{}", code.name().to_lowercase()),
            title: code.meaning().into(),
            status: self.status.as_u16(),
            detail: one_line(&self.error.to_string()),
            code: code.name().into(),
            hint: self.error.hint().map(one_line),
            fields: JobOption::fields_of(&self.error.options()),
            retryable: self.error.is_retryable(),
        }
    }
}

/// The most characters of a text that says why a request failed. It may have names in it that the caller sent.
const TEXT_MAX: usize = 1000;

/// The text in one line that steers no terminal.
fn one_line(text: &str) -> String {
    farhaul_text::printable(text.as_bytes(), TEXT_MAX)
}

impl From<Error> for HandlerFailure {
    fn from(error: Error) -> HandlerFailure {
        let retry_after_s = (error.code() == Code::TooMany).then_some(10);
        HandlerFailure {
            retry_after_s,
            ..HandlerFailure::with_status(error.clone(), status_of(error.code()))
        }
    }
}

/// The HTTP status of a code. A code that is not listed is a fault of the node or of what it works with.
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::NoToken => StatusCode::UNAUTHORIZED,
        Code::OutOfScope | Code::Forbidden => StatusCode::FORBIDDEN,
        Code::NoSuchThing | Code::NotFound => StatusCode::NOT_FOUND,
        Code::NotNow | Code::NotInTime | Code::AlreadyExists => StatusCode::CONFLICT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Code::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Code::Busy | Code::StoreLocked => StatusCode::SERVICE_UNAVAILABLE,
        Code::KeyReused | Code::PermissionDenied | Code::NotADirectory | Code::BadPath => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        code => match code.exit_code() {
            farhaul::errors::ExitCode::Usage => StatusCode::UNPROCESSABLE_ENTITY,
            farhaul::errors::ExitCode::Connect
            | farhaul::errors::ExitCode::Auth
            | farhaul::errors::ExitCode::Lost => StatusCode::BAD_GATEWAY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

impl IntoResponse for HandlerFailure {
    fn into_response(self) -> Response {
        debug_assert!(STATUSES.iter().any(|(status, _)| *status == self.status), "{}", self.status);
        let mut response = (self.status, Json(self.problem())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // Who is refused comes again as a stranger, with another place among those.
        if self.closes || self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(cookie) = self.set_cookie {
            headers.insert(header::SET_COOKIE, cookie);
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_of_the_statuses_that_are_described() {
        for code in Code::ALL {
            let status = status_of(*code);
            assert!(STATUSES.iter().any(|(one, _)| *one == status), "{code}: {status}");
        }
    }

    #[test]
    fn codes_have_the_statuses_that_clients_expect() {
        for (code, status) in [
            (Code::NoToken, 401),
            (Code::OutOfScope, 403),
            (Code::NoSuchThing, 404),
            (Code::NotNow, 409),
            (Code::KeyReused, 422),
            (Code::BadOption, 422),
            (Code::TooMany, 429),
            (Code::Bug, 500),
            (Code::Unreachable, 502),
            (Code::NoSpace, 507),
        ] {
            assert_eq!(HandlerFailure::from(Error::new(code, "x")).status().as_u16(), status, "{code}");
        }
    }
}
