//! What several protocols do alike: the command line and the REST API make the same tokens.

pub(crate) mod tokens;
