//! Errors over HTTP, as RFC 9457 problem details.
//!
//! Every refusal has this form, those of the framework included (no such path, wrong method, a body that is not
//! JSON), so that clients read them all in one way.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_proto::{ErrorCode, api};

use crate::error::ServiceError;

/// The HTTP status of a code. Exhaustive, so that a new code cannot be forgotten.
pub const fn http_status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Invalid => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Busy | ErrorCode::Archived | ErrorCode::Changed => StatusCode::CONFLICT,
        ErrorCode::SessionGone => StatusCode::GONE,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Full | ErrorCode::Quota => StatusCode::INSUFFICIENT_STORAGE,
        ErrorCode::Limit => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::ReadOnly | ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Damaged | ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A refusal with its status, which may say more than that of its code.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    error: ServiceError,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Answer for a path at which there is nothing.
    pub(crate) fn not_found() -> Self {
        ServiceError::new(
            ErrorCode::NotFound,
            "there is nothing at this path; /api/docs/ lists the paths of the API",
        )
        .into()
    }

    /// The same for agents, which know no paths but those of their version.
    pub(crate) fn unknown_to_agents() -> Self {
        let text = "the API at this address has nothing at this path: agent and server may be of different versions; \
                    upgrade the older of the two";
        Self::with_status(StatusCode::NOT_FOUND, ServiceError::new(ErrorCode::Unsupported, text))
    }

    /// The path is right, the method is not.
    pub(crate) fn method_not_allowed(allowed: &str) -> Self {
        let error = ServiceError::invalid(format!("this path allows only the methods {allowed}"));
        let header = HeaderValue::from_str(allowed).ok().map(|allowed| (header::ALLOW, allowed));
        Self { status: StatusCode::METHOD_NOT_ALLOWED, error, header }
    }

    /// Adds a header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.header = Some((name, HeaderValue::from_static(value)));
        self
    }

    /// As the caller is told, and the log where that matters.
    pub(super) fn told(self) -> api::Problem {
        self.error.log();
        api::Problem {
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            code: self.error.code,
            detail: self.error.message,
        }
    }

    fn with_status(status: StatusCode, error: ServiceError) -> Self {
        let retry_after = error.retry_after_secs.map(|secs| (header::RETRY_AFTER, secs.into()));
        Self { status, error, header: retry_after }
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        Self::with_status(http_status(error.code), error)
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        let (status, text) = (rejection.status(), rejection.body_text());
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Self::with_status(
                status,
                ServiceError::new(
                    ErrorCode::Limit,
                    format!(
                        "the body is longer than this path accepts; none accepts more than {} bytes",
                        super::bounds::BODY_MAX_BYTES
                    ),
                ),
            ),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::with_status(
                status,
                ServiceError::invalid("the body must be JSON; send content-type: application/json"),
            ),
            _ => Self::with_status(StatusCode::BAD_REQUEST, ServiceError::invalid(text)),
        }
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        ServiceError::invalid(format!("the path cannot be read: {}", rejection.body_text())).into()
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
        ServiceError::invalid(
            text.replace("unknown field", "unknown parameter")
                .replace("duplicate field", "given twice: parameter"),
        )
        .into()
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let (status, header) = (self.status, self.header.take());
        let mut response = (status, Json(self.told())).into_response();
        let kind = HeaderValue::from_static(api::Problem::MEDIA_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"holdfast\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl IntoResponse for ServiceError {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_an_error_over_http() {
        for code in ErrorCode::ALL {
            let response = ServiceError::new(*code, "x").into_response();
            let status = response.status();
            assert!(status.is_client_error() || status.is_server_error(), "{code}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        }
    }
}
