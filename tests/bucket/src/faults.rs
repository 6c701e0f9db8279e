//! What fails, and how.

use hyper::{Method, Uri};

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Put,
    Get,
    Head,
    List,
    Delete,
    /// Bringing an object back from an archive.
    Restore,
    /// Extending how long an object must stay.
    Retain,
    /// Anything of uploads in parts.
    Parts,
    /// Whatever it is.
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

/// How a request fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An answer of this status and code; nothing is done.
    Refuse(u16, &'static str),
    /// This text as an answer; nothing is done.
    Answer(&'static str),
    /// It is done, and the connection breaks before the answer.
    LoseAnswer,
    /// It is done, and no answer comes until all is healed; then the connection breaks.
    HoldAnswer,
    /// The connection breaks, and nothing is done.
    Break,
    /// The answer's body ends half way.
    Truncate,
    /// A byte of the answer's body is another, the first time that this object is asked for.
    Flip,
}

/// Requests to come that fail.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) op: Op,
    /// In the path.
    pub(crate) part: String,
    pub(crate) fault: Fault,
    pub(crate) times: usize,
}

impl Plan {
    pub(crate) fn is_of(&self, op: Op, path: &str) -> bool {
        self.times > 0 && (self.op == Op::Any || self.op == op) && path.contains(&self.part)
    }
}
