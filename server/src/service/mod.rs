//! What several protocols do alike (H5): the command line and the REST API make the same tokens.

pub(crate) mod tokens;
