//! Strings that are one of a few words. The OpenAPI document lists the words of each, taken from where they are
//! used, so that generated clients such as the web UI's types know all of them.

use holdfast_engine::catalog::{self, AttributedBy as Sharer, TotalsBy, token};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// What compression details can be added up by.
pub(super) const GROUPS: [(&str, TotalsBy); 6] = [
    ("run", TotalsBy::Run),
    ("vm", TotalsBy::Vm),
    ("job", TotalsBy::Job),
    ("disk", TotalsBy::Disk),
    ("namespace", TotalsBy::Namespace),
    ("repository", TotalsBy::Repository),
];

/// What attributed bytes can be added up by.
pub(super) const SHARERS: [(&str, Sharer); 3] =
    [("namespace", Sharer::Namespace), ("vm", Sharer::Vm), ("job", Sharer::Job)];

/// Spans of time: name and milliseconds; 0: all time.
pub(super) const WINDOWS: [(&str, i64); 3] =
    [("24h", 24 * 3_600_000), ("7d", 7 * 24 * 3_600_000), ("all", 0)];

/// An action's name in answers and in the OpenAPI document.
pub(super) const fn action(action: token::Action) -> &'static str {
    match action {
        token::Action::Backup => "backup",
        token::Action::ReadBack => "read_back",
        token::Action::Restore => "restore",
        token::Action::Catalog => "catalog",
        token::Action::Report => "report",
        token::Action::ManageTokens => "manage_tokens",
        token::Action::Operate => "operate",
        token::Action::Retain => "retain",
        token::Action::TakeOver => "take_over",
    }
}

/// Types that only describe: the fields themselves are strings.
macro_rules! words {
    ($($(#[doc = $about:literal])+ $name:ident = $words:expr;)+) => {$(
        $(#[doc = $about])+
        #[derive(Debug)]
        pub(super) enum $name {}

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
    Action = token::Action::ALL.map(action);
    /// How a run of a disk ended
    RowStatus = catalog::RowStatus::ALL.map(catalog::RowStatus::word);
    /// What a task does
    TaskKind = catalog::TaskKind::ALL.map(catalog::TaskKind::word);
    /// How far a task is
    TaskStatus = catalog::TaskStatus::ALL.map(catalog::TaskStatus::word);
    /// What compression details are added up by
    GroupBy = GROUPS.map(|(word, _)| word);
    /// What attributed bytes are added up by
    AttributedBy = SHARERS.map(|(word, _)| word);
    /// A span of time up to now
    TimeWindow = WINDOWS.map(|(word, _)| word);
    /// What went wrong, as a stable word: the same as in gRPC and for exit codes
    ErrorCode = holdfast_proto::ErrorCode::ALL.iter().map(|code| code.as_str());
}

fn one_of(about: &str, words: impl IntoIterator<Item = &'static str>) -> RefOr<Schema> {
    let schema = ObjectBuilder::new().schema_type(Type::String).description(Some(about.trim()));
    schema.enum_values(Some(words)).into()
}
