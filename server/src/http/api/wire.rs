//! What several answers have in common, and how times read in them.

use holdfast_proto::when::timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// A page of a list that is addressed by offset
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Items<T> {
    pub(super) items: Vec<T>,
    /// How many there are in all
    pub(super) total: u64,
    /// How many come before the first of these
    pub(super) offset: u64,
}

/// A page of a list that is read from its beginning
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Keyset<T> {
    pub(super) items: Vec<T>,
    /// `page_token` of the next page; null: there is no more
    pub(super) next_page_token: Option<String>,
}

/// RFC 3339 in UTC with milliseconds.
pub(super) fn time(unix_ms: i64) -> String {
    timestamp(unix_ms)
}

/// The same of a time that may not have been.
pub(super) fn maybe_time(unix_ms: Option<i64>) -> Option<String> {
    unix_ms.map(timestamp)
}
