//! Strings that are one of a few words. The OpenAPI document lists the words of each, taken from where they are
//! defined, so that generated clients such as the web UI's types know all of them.

use holdfast_engine::catalog::token;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::{filter, session, totals};

/// Types that only describe: the fields themselves are strings.
macro_rules! words {
    ($($(#[doc = $about:literal])+ $name:ident = $words:expr;)+) => {$(
        $(#[doc = $about])+
        #[derive(Debug)]
        pub(in crate::http) enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                one_of(concat!($($about),+), $words)
            }
        }

        impl ToSchema for $name {}
    )+};
}

words! {
    /// What a token is for
    Role = token::Role::ALL.map(token::Role::as_str);
    /// What a role may do
    Action = token::Action::ALL.map(session::word);
    /// How a run of a disk ended
    RowStatus = filter::STATUSES.map(|status| status.word());
    /// What compression details are added up by
    GroupBy = totals::GROUPS.map(|(word, _)| word);
    /// A span of time up to now
    TimeWindow = totals::WINDOWS.map(|(word, _)| word);
    /// What went wrong, as a stable word: the same as in gRPC and for exit codes
    ErrorCode = holdfast_proto::ErrorCode::ALL.iter().map(|code| code.as_str());
}

fn one_of(about: &str, words: impl IntoIterator<Item = &'static str>) -> RefOr<Schema> {
    let schema = ObjectBuilder::new().schema_type(Type::String).description(Some(about.trim()));
    schema.enum_values(Some(words)).into()
}
