//! The REST API, one file a resource, and its OpenAPI document (`document`), which is made from the handlers. What
//! several of them share: `filter` (which rows of compression details), `wire` (pages, sums and times).

mod activity;
mod audit;
mod backups;
mod capacity;
mod damage;
mod details;
mod disks;
mod document;
pub(in crate::http) mod filter;
mod findings;
mod jobs;
mod join;
mod namespaces;
mod overview;
mod retention;
mod schedules;
mod series;
mod server;
mod session;
mod storage;
mod tasks;
mod thaw;
mod tiers;
mod tokens;
mod totals;
mod verifications;
mod vms;
mod wire;

use axum::Router;
use holdfast_proto::api::PREFIX;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::{Audience, HttpState};

/// Every route of the API that is for `audience`.
pub(super) fn router(audience: Audience) -> Router<HttpState> {
    match audience {
        Audience::Browsers => below_prefix(for_browsers().merge(for_everyone())),
        Audience::Agents => below_prefix(for_agents().merge(for_everyone())),
    }
    .split_for_parts()
    .0
}

/// All of them, for their description.
fn routes() -> OpenApiRouter<HttpState> {
    below_prefix(for_browsers().merge(for_agents()).merge(for_everyone()))
}

fn below_prefix(api: OpenApiRouter<HttpState>) -> OpenApiRouter<HttpState> {
    OpenApiRouter::with_openapi(document::beginning()).nest(PREFIX, api)
}

/// Logins, and what no agent needs: who has access, what namespaces may take, what the audit log says.
fn for_browsers() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new()
        .routes(routes!(document::openapi))
        .routes(routes!(session::login))
        .routes(routes!(session::logout))
        .routes(routes!(session::session))
        .routes(routes!(namespaces::set_quota))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(audit::list))
}

/// Joining; agents log in nowhere else.
fn for_agents() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new().routes(routes!(join::join))
}

fn for_everyone() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new()
        .routes(routes!(server::server))
        .routes(routes!(namespaces::list))
        .routes(routes!(jobs::list))
        .routes(routes!(vms::list))
        .routes(routes!(vms::get))
        .routes(routes!(vms::change_owner))
        .routes(routes!(disks::list))
        .routes(routes!(backups::list))
        .routes(routes!(backups::get))
        .routes(routes!(thaw::quote, thaw::start))
        .routes(routes!(thaw::task))
        .routes(routes!(verifications::record))
        .routes(routes!(verifications::false_chunks))
        .routes(routes!(damage::list))
        .routes(routes!(storage::get))
        .routes(routes!(storage::history))
        .routes(routes!(details::list))
        .routes(routes!(totals::groups))
        .routes(routes!(details::get))
        .routes(routes!(totals::list))
        .routes(routes!(findings::list))
        .routes(routes!(overview::overview))
        .routes(routes!(series::series))
        .routes(routes!(activity::now))
        .routes(routes!(activity::events))
        .routes(routes!(capacity::capacity))
        .routes(routes!(storage::storage))
        .routes(routes!(storage::statistics))
        .routes(routes!(tiers::tiers))
        .routes(routes!(tasks::list, tasks::start))
        .routes(routes!(tasks::get))
        .routes(routes!(tasks::pause))
        .routes(routes!(tasks::resume))
        .routes(routes!(tasks::cancel))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::set))
        .routes(routes!(retention::points::freed))
        .routes(routes!(retention::points::delete))
        .routes(routes!(retention::points::lock))
        .routes(routes!(retention::points::hold))
        .routes(routes!(retention::points::release))
        .routes(routes!(retention::policies::list, retention::policies::create))
        .routes(routes!(retention::policies::replace, retention::policies::remove))
        .routes(routes!(retention::policies::simulate))
        .routes(routes!(retention::policies::run))
        .routes(routes!(retention::policies::forget))
}
