//! The nouns of administration, each once: requests and answers of the API, for the server's handlers, the command line and, with
//! the feature `schema`, the OpenAPI document. The feature's first lines of doc comments are its descriptions.

mod problem;

pub use problem::Problem;

/// Where the API begins.
pub const PREFIX: &str = "/api/v1";
