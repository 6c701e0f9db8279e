//! The REST API, one file a resource. The table of routes here is the only one: the router, the rights of callers and the OpenAPI
//! document (`document`) follow from it and from the handlers. What several of them share: `filter` (which rows of compression
//! details), `wire` (pages, sums and times).

mod activity;
mod agents;
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

use std::sync::LazyLock;

use axum::Router;
use holdfast_engine::catalog::token::Action;
use holdfast_proto::api::PREFIX;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::auth::Access;
use crate::http::access::Endpoint;
use crate::http::{Audience, HttpState};

const CATALOG: Access = Access::May(Action::Catalog);
/// Reading restore points back: within the token's namespaces, and of VMs whose contents it may have.
const READ_BACK: Access = Access::May(Action::ReadBack);
/// Writing restore points of the token's namespaces.
const BACKUP: Access = Access::May(Action::Backup);
const REPORT: Access = Access::May(Action::Report);
const OPERATE: Access = Access::Whole(Action::Operate);
/// Long work on everything.
const OPERATE_ALL: Access = Access::EveryVm(Action::Operate);
/// Running it within the token's namespaces.
const OPERATE_THERE: Access = Access::May(Action::Operate);
/// Administrators: what is kept and what goes.
const RETAIN: Access = Access::May(Action::Retain);
/// Administrators: access, and what namespaces may take.
const TOKENS: Access = Access::May(Action::ManageTokens);

/// Every route of the API that is for `audience`.
pub(super) fn router(audience: Audience) -> Router<HttpState> {
    let table = match audience {
        Audience::Browsers => for_browsers().merge(for_everyone()),
        Audience::Agents => for_agents().merge(for_everyone()),
    };
    below_prefix(table.router).split_for_parts().0
}

/// All of them.
fn table() -> Table {
    for_browsers().merge(for_agents()).merge(for_everyone())
}

/// All of them, for their description.
fn routes() -> OpenApiRouter<HttpState> {
    below_prefix(table().router)
}

/// Who may call which of them.
pub(crate) fn endpoints() -> &'static [Endpoint] {
    static ENDPOINTS: LazyLock<Vec<Endpoint>> = LazyLock::new(|| table().endpoints);
    &ENDPOINTS
}

fn below_prefix(api: OpenApiRouter<HttpState>) -> OpenApiRouter<HttpState> {
    OpenApiRouter::with_openapi(document::beginning()).nest(PREFIX, api)
}

/// Handlers, which say their method and path, and who may call them.
#[derive(Default)]
struct Table {
    router: OpenApiRouter<HttpState>,
    endpoints: Vec<Endpoint>,
}

impl Table {
    fn route(mut self, access: Access, handlers: UtoipaMethodRouter<HttpState>) -> Self {
        for (path, item) in &handlers.1.paths {
            let methods =
                [("GET", &item.get), ("POST", &item.post), ("PUT", &item.put), ("DELETE", &item.delete)];
            let has = methods.into_iter().filter(|(_, operation)| operation.is_some());
            self.endpoints.extend(has.map(|(method, _)| Endpoint { method, path: path.clone(), access }));
        }
        self.router = self.router.routes(handlers);
        self
    }

    fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.endpoints.extend(other.endpoints);
        self
    }
}

/// Logins, and what no agent needs: who has access, what namespaces may take, what the audit log says.
fn for_browsers() -> Table {
    Table::default()
        .route(Access::Open, routes!(document::openapi))
        .route(Access::Open, routes!(session::login))
        .route(Access::Any, routes!(session::logout))
        .route(Access::Any, routes!(session::session))
        .route(TOKENS, routes!(namespaces::set_quota))
        .route(TOKENS, routes!(tokens::list, tokens::create))
        .route(TOKENS, routes!(tokens::revoke))
        .route(TOKENS, routes!(audit::list))
}

/// Joining; agents log in nowhere else.
fn for_agents() -> Table {
    Table::default().route(Access::Open, routes!(join::join))
}

fn for_everyone() -> Table {
    Table::default()
        .route(Access::Any, routes!(server::server))
        .route(CATALOG, routes!(namespaces::list))
        .route(CATALOG, routes!(jobs::list))
        .route(CATALOG, routes!(agents::list))
        .route(BACKUP, routes!(agents::report))
        .route(CATALOG, routes!(vms::list))
        .route(CATALOG, routes!(vms::get))
        .route(OPERATE_THERE, routes!(vms::change_owner))
        .route(CATALOG, routes!(disks::list))
        .route(CATALOG, routes!(backups::list))
        .route(CATALOG, routes!(backups::get))
        .route(READ_BACK, routes!(thaw::quote, thaw::start))
        .route(READ_BACK, routes!(thaw::task))
        .route(READ_BACK, routes!(verifications::record))
        .route(BACKUP, routes!(verifications::false_chunks))
        .route(CATALOG, routes!(damage::list))
        .route(REPORT, routes!(storage::get))
        .route(REPORT, routes!(storage::history))
        .route(REPORT, routes!(details::list))
        .route(REPORT, routes!(totals::groups))
        .route(REPORT, routes!(totals::days))
        .route(REPORT, routes!(details::get))
        .route(REPORT, routes!(totals::list))
        .route(REPORT, routes!(findings::list))
        .route(REPORT, routes!(overview::overview))
        .route(REPORT, routes!(series::series))
        .route(REPORT, routes!(activity::now))
        .route(REPORT, routes!(activity::events))
        .route(Access::Whole(Action::Report), routes!(capacity::capacity))
        .route(OPERATE, routes!(storage::storage))
        .route(OPERATE, routes!(storage::statistics))
        .route(OPERATE, routes!(tiers::tiers))
        .route(OPERATE_ALL, routes!(tasks::list, tasks::start))
        .route(OPERATE_ALL, routes!(tasks::get))
        .route(OPERATE_ALL, routes!(tasks::pause))
        .route(OPERATE_ALL, routes!(tasks::resume))
        .route(OPERATE_ALL, routes!(tasks::cancel))
        .route(OPERATE, routes!(schedules::list))
        .route(OPERATE_ALL, routes!(schedules::set))
        .route(OPERATE_THERE, routes!(retention::points::freed))
        .route(RETAIN, routes!(retention::points::delete))
        .route(RETAIN, routes!(retention::points::lock))
        .route(RETAIN, routes!(retention::points::hold))
        .route(RETAIN, routes!(retention::points::release))
        .route(CATALOG, routes!(retention::policies::list))
        .route(RETAIN, routes!(retention::policies::create))
        .route(RETAIN, routes!(retention::policies::replace, retention::policies::remove))
        .route(OPERATE_THERE, routes!(retention::policies::simulate))
        .route(OPERATE_THERE, routes!(retention::policies::run))
        // A dry run; deleting asks for more.
        .route(OPERATE_THERE, routes!(retention::policies::forget))
}
