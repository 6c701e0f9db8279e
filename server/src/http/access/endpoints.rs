//! Every endpoint of the API and who may ask for it.

use holdfast_engine::catalog::token::Action;

use crate::auth::Access;

/// Where the API begins.
pub(crate) const PREFIX: &str = "/api/v1";

/// One method of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) method: &'static str,
    /// Below [`PREFIX`].
    pub(crate) path: &'static str,
    pub(crate) access: Access,
}

const fn get(path: &'static str, access: Access) -> Endpoint {
    Endpoint { method: "GET", path, access }
}

const fn post(path: &'static str, access: Access) -> Endpoint {
    Endpoint { method: "POST", path, access }
}

const fn put(path: &'static str, access: Access) -> Endpoint {
    Endpoint { method: "PUT", path, access }
}

const fn delete(path: &'static str, access: Access) -> Endpoint {
    Endpoint { method: "DELETE", path, access }
}

const CATALOG: Access = Access::May(Action::Catalog);
/// Reading restore points back: within the token's namespaces, and of VMs whose contents it may have.
const READ_BACK: Access = Access::May(Action::ReadBack);
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

/// Everything below [`PREFIX`].
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    post("/login", Access::Open),
    get("/openapi.json", Access::Open),
    post("/logout", Access::Any),
    get("/session", Access::Any),
    get("/server", Access::Any),
    get("/namespaces", CATALOG),
    put("/namespaces/{name}/quota", TOKENS),
    get("/vms", CATALOG),
    get("/vms/{namespace}/{vm}", CATALOG),
    post("/vms/{namespace}/{vm}/owner", OPERATE_THERE),
    get("/disks", CATALOG),
    get("/jobs", CATALOG),
    get("/backups", CATALOG),
    get("/backups/{id}", CATALOG),
    get("/backups/{id}/thaw", READ_BACK),
    post("/backups/{id}/thaw", READ_BACK),
    get("/damage", CATALOG),
    get("/runs", REPORT),
    get("/attribution", REPORT),
    get("/details", REPORT),
    get("/details/totals", REPORT),
    get("/details/{id}", REPORT),
    get("/totals", REPORT),
    get("/series", REPORT),
    get("/capacity", Access::Whole(Action::Report)),
    get("/activity", REPORT),
    get("/activity/events", REPORT),
    get("/storage", OPERATE),
    get("/storage/statistics", OPERATE),
    get("/tiers", OPERATE),
    get("/tokens", TOKENS),
    post("/tokens", TOKENS),
    delete("/tokens/{id}", TOKENS),
    get("/audit", TOKENS),
    get("/tasks", OPERATE_ALL),
    post("/tasks", OPERATE_ALL),
    get("/tasks/{id}", OPERATE_ALL),
    post("/tasks/{id}/pause", OPERATE_ALL),
    post("/tasks/{id}/resume", OPERATE_ALL),
    post("/tasks/{id}/cancel", OPERATE_ALL),
    get("/schedules", OPERATE),
    put("/schedules/{kind}", OPERATE_ALL),
    post("/restore-points/freed", OPERATE_THERE),
    post("/restore-points/delete", RETAIN),
    post("/restore-points/{id}/lock", RETAIN),
    post("/restore-points/{id}/hold", RETAIN),
    delete("/restore-points/{id}/hold", RETAIN),
    get("/policies", CATALOG),
    post("/policies", RETAIN),
    put("/policies/{id}", RETAIN),
    delete("/policies/{id}", RETAIN),
    post("/policies/simulate", OPERATE_THERE),
    post("/policies/{id}/run", OPERATE_THERE),
];

/// The methods of a path as the router knows it.
pub(super) fn methods(path: &str) -> impl Iterator<Item = &'static str> {
    ENDPOINTS.iter().filter(move |endpoint| endpoint.path == path).flat_map(|endpoint| {
        // The router answers HEAD wherever it answers GET.
        [Some(endpoint.method), (endpoint.method == "GET").then_some("HEAD")].into_iter().flatten()
    })
}

/// The endpoint of a method and a path as the router knows it.
pub(crate) fn endpoint(method: &str, path: &str) -> Option<&'static Endpoint> {
    let method = if method == "HEAD" { "GET" } else { method };
    ENDPOINTS.iter().find(|endpoint| endpoint.method == method && endpoint.path == path)
}
