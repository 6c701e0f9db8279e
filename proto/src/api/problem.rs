//! Refusals.

use serde::{Deserialize, Serialize};

use crate::ErrorCode;

/// A refusal, as problem details (RFC 9457)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The HTTP status in words
    #[cfg_attr(feature = "schema", schema(example = "Bad Request"))]
    pub title: String,
    /// The HTTP status
    #[cfg_attr(feature = "schema", schema(example = 400))]
    pub status: u16,
    /// The error as a stable word: the same as in gRPC and for exit codes
    #[cfg_attr(feature = "schema", schema(example = "invalid"))]
    pub code: ErrorCode,
    /// The event, its object, and what to do
    pub detail: String,
}

impl Problem {
    /// The media type of a refusal.
    pub const MEDIA_TYPE: &str = "application/problem+json";
}
