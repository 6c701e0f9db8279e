//! Errors over HTTP, as RFC 9457 problem details.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_proto::ErrorCode;
use serde_json::json;

use crate::error::ServiceError;

/// The HTTP status of a code. Exhaustive, so that a new code cannot be forgotten.
pub const fn http_status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Invalid => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Busy => StatusCode::CONFLICT,
        ErrorCode::SessionGone => StatusCode::GONE,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Full => StatusCode::INSUFFICIENT_STORAGE,
        ErrorCode::Limit => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::ReadOnly | ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Damaged | ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for ServiceError {
    fn into_response(self) -> Response {
        let status = http_status(self.code);
        let body = json!({
            "title": status.canonical_reason().unwrap_or_default(),
            "status": status.as_u16(),
            "code": self.code.as_str(),
            "detail": self.message,
        });
        let kind = HeaderValue::from_static("application/problem+json");
        (status, [(header::CONTENT_TYPE, kind)], body.to_string()).into_response()
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
