//! Filter for rows of compression details: the parameters several endpoints share.

use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{DetailFilter, RowStatus};

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::query::{id, name, search, text, time};

/// Parameters that [`detail_query`] collects.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) namespace: Option<String>,
    pub(super) job: Option<String>,
    pub(super) vm: Option<String>,
    pub(super) disk: Option<String>,
    pub(super) run: Option<String>,
    pub(super) status: Option<String>,
    pub(super) q: Option<String>,
    pub(super) since: Option<String>,
    pub(super) until: Option<String>,
    pub(super) finished_since: Option<String>,
    pub(super) finished_until: Option<String>,
    pub(super) existing: bool,
}

impl Filter {
    /// The filter, within the caller's scope. Blocks.
    pub(super) fn resolve(self, app: &App, caller: &Caller) -> Result<DetailFilter, ServiceError> {
        let now_ms = app.clock.now_ms();
        Ok(DetailFilter {
            namespaces: caller.namespaces(
                app.catalog(),
                &self.namespace.unwrap_or_default(),
                Action::Report,
            )?,
            job: name("job", self.job)?,
            vm: name("VM", self.vm)?,
            disk: name("disk", self.disk)?,
            run: text(self.run).map(|run| id("run", &run)).transpose()?,
            statuses: text(self.status).map(|list| statuses(&list)).transpose()?,
            search: search(self.q)?,
            since_ms: time("since", self.since, now_ms)?,
            until_ms: time("until", self.until, now_ms)?,
            finished_since_ms: time("finished_since", self.finished_since, now_ms)?,
            finished_until_ms: time("finished_until", self.finished_until, now_ms)?,
            existing: self.existing,
        })
    }
}

fn statuses(list: &str) -> Result<Vec<RowStatus>, ServiceError> {
    let known = |word: &str| RowStatus::ALL.into_iter().find(|status| status.word() == word.trim());
    let refused =
        || ServiceError::invalid("status: must be a comma-separated list of done, failed, aborted, expired");
    list.split(',').map(|word| known(word).ok_or_else(refused)).collect()
}

/// A query with the parameters that choose rows of compression details, and some of its own.
macro_rules! detail_query {
    ($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
        #[serde(deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub(super) struct $name {
            /// One namespace [default: all in the token's scope]
            namespace: Option<String>,
            /// One job
            job: Option<String>,
            /// One VM
            vm: Option<String>,
            /// Disks of this name
            disk: Option<String>,
            /// One run's id
            run: Option<String>,
            /// A comma-separated list of done, failed, aborted, expired [default: all]
            status: Option<String>,
            /// Part of the name of a namespace, job, VM or disk, or of an error; case is ignored
            q: Option<String>,
            /// Started at or after: a time, a day, or a span before now such as 7d
            since: Option<String>,
            /// Started before
            until: Option<String>,
            /// Finished at or after
            finished_since: Option<String>,
            /// Finished before
            finished_until: Option<String>,
            /// Only runs whose restore point is there [default: false]
            existing: Option<bool>,
            $($(#[$meta])* $field: $type,)*
        }

        impl $name {
            fn filter(&mut self) -> $crate::http::rest::filter::Filter {
                $crate::http::rest::filter::Filter {
                    namespace: self.namespace.take(),
                    job: self.job.take(),
                    vm: self.vm.take(),
                    disk: self.disk.take(),
                    run: self.run.take(),
                    status: self.status.take(),
                    q: self.q.take(),
                    since: self.since.take(),
                    until: self.until.take(),
                    finished_since: self.finished_since.take(),
                    finished_until: self.finished_until.take(),
                    existing: self.existing.unwrap_or(false),
                }
            }
        }
    };
}
pub(super) use detail_query;
