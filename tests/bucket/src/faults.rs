//! Planned failures of requests.

use hyper::{Method, Uri};

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Put,
    Get,
    Head,
    List,
    Delete,
    /// Restores an object from an archive.
    Restore,
    /// Extends the retention of an object.
    Retain,
    /// Any request of a multipart upload.
    Parts,
    /// Any request.
    Any,
}

impl Op {
    pub(crate) fn of(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |key: &str| query.split('&').any(|pair| pair.split('=').next() == Some(key));
        if has("uploads") || has("uploadId") {
            return Self::Parts;
        }
        match *method {
            Method::PUT if has("retention") => Self::Retain,
            Method::PUT => Self::Put,
            Method::HEAD => Self::Head,
            Method::DELETE => Self::Delete,
            Method::POST if has("restore") => Self::Restore,
            Method::POST if has("delete") => Self::Delete,
            Method::GET if has("list-type") || has("versions") => Self::List,
            Method::GET => Self::Get,
            _ => Self::Any,
        }
    }
}

/// Way in which a request fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this status and code; nothing is done.
    Refuse(u16, &'static str),
    /// Answers with this text; nothing is done.
    Answer(&'static str),
    /// Carries the request out, and breaks the connection before the answer.
    LoseAnswer,
    /// Carries the request out, and holds the answer until [`TestBucket::heal`](crate::TestBucket::heal); then breaks
    /// the connection.
    HoldAnswer,
    /// Breaks the connection; nothing is done.
    Break,
    /// Cuts the answer's body off half way.
    Truncate,
    /// Alters a byte of the answer's body, the first time that this object is requested.
    Flip,
}

/// Future requests that fail.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) op: Op,
    /// Part of the path.
    pub(crate) part: String,
    pub(crate) fault: Fault,
    pub(crate) times: usize,
}

impl Plan {
    pub(crate) fn is_of(&self, op: Op, path: &str) -> bool {
        self.times > 0 && (self.op == Op::Any || self.op == op) && path.contains(&self.part)
    }
}
