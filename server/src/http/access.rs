//! Who may ask for what: one table for the check, the OpenAPI document and the tests.
//!
//! Invariants:
//! * A route that is not in [`ENDPOINTS`] answers nobody (H1): the check comes before the handler, and what the table
//!   does not know it refuses.
//! * With a cookie, whatever may change something needs the session's CSRF token and must not come from another site
//!   (H3). A bearer token is never sent by a browser on its own, so it needs neither.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;

use super::cookie;
use super::problem::Problem;
use super::serve::Peer;
use crate::app::App;
use crate::auth::{Caller, WebLogin};
use crate::error::ServiceError;

/// Where the API begins.
pub(crate) const PREFIX: &str = "/api/v1";

/// The header that repeats a session's CSRF token.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// What an endpoint asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// A valid token.
    Any,
    /// A valid token whose role may do this; its scope narrows what is found.
    May(Action),
    /// The same for what concerns the repository as a whole: only tokens for every namespace. What others
    /// store is nobody else's business.
    Whole(Action),
}

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

const fn delete(path: &'static str, access: Access) -> Endpoint {
    Endpoint { method: "DELETE", path, access }
}

const CATALOG: Access = Access::May(Action::Catalog);
const REPORT: Access = Access::May(Action::Report);
const OPERATE: Access = Access::Whole(Action::Operate);
const TOKENS: Access = Access::May(Action::ManageTokens);

/// Everything below [`PREFIX`].
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    post("/login", Access::Open),
    get("/openapi.json", Access::Open),
    post("/logout", Access::Any),
    get("/session", Access::Any),
    get("/server", Access::Any),
    get("/namespaces", CATALOG),
    get("/vms", CATALOG),
    get("/vms/{namespace}/{vm}", CATALOG),
    get("/disks", CATALOG),
    get("/jobs", CATALOG),
    get("/backups", CATALOG),
    get("/backups/{id}", CATALOG),
    get("/runs", REPORT),
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
    get("/tokens", TOKENS),
    post("/tokens", TOKENS),
    delete("/tokens/{id}", TOKENS),
    get("/audit", TOKENS),
];

/// The endpoint of a method and a path as the router knows it.
pub(crate) fn endpoint(method: &str, path: &str) -> Option<&'static Endpoint> {
    let method = if method == "HEAD" { "GET" } else { method };
    ENDPOINTS.iter().find(|endpoint| endpoint.method == method && endpoint.path == path)
}

/// Who asks, once [`check`] let them in.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) caller: Caller,
    /// How they logged in; `None` with a bearer token.
    pub(crate) web: Option<WebLogin>,
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = ServiceError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServiceError> {
        parts.extensions.get().cloned().ok_or_else(|| {
            ServiceError::new(ErrorCode::Internal, "the server met a defect in itself: an unguarded address")
        })
    }
}

/// A response that holds a secret: compressing it beside what others may choose would tell of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secret;

/// Around every route of the API.
pub(super) async fn check(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let Some(matched) = request.extensions().get::<MatchedPath>() else { return next.run(request).await };
    let path = matched.as_str().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    let endpoint = match endpoint(request.method().as_str(), &path) {
        Some(endpoint) => endpoint,
        None => return wrong_method(&path).into_response(),
    };
    if endpoint.access != Access::Open {
        match identify(&app, request.method(), request.headers(), peer(request.extensions())).await {
            Ok(identity) => {
                if let Err(error) = may(&identity.caller, endpoint.access) {
                    return error.into_response();
                }
                request.extensions_mut().insert(identity);
            }
            Err(error) => return error.into_response(),
        }
    }
    let secret = endpoint.method != "GET" || path == "/session";
    let mut response = next.run(request).await;
    if secret {
        response.extensions_mut().insert(Secret);
    }
    response
}

fn may(caller: &Caller, access: Access) -> Result<(), ServiceError> {
    match access {
        Access::Open | Access::Any => Ok(()),
        Access::May(action) => caller.check_role(action),
        Access::Whole(action) => {
            caller.check_role(action)?;
            if caller.scope().is_none() {
                return Ok(());
            }
            let name = &caller.token.name;
            Err(ServiceError::new(
                ErrorCode::Forbidden,
                format!("this concerns the whole repository, and token {name:?} is for some namespaces only"),
            ))
        }
    }
}

/// A path nobody wrote down is a defect; one that is there takes other methods.
fn wrong_method(path: &str) -> Problem {
    let has = |method| endpoint(method, path).is_some();
    match (has("GET"), has("POST"), has("DELETE")) {
        (true, true, _) => Problem::method_not_allowed("GET, HEAD, POST"),
        (true, ..) => Problem::method_not_allowed("GET, HEAD"),
        (_, true, _) => Problem::method_not_allowed("POST"),
        (.., true) => Problem::method_not_allowed("DELETE"),
        _ => ServiceError::new(ErrorCode::Internal, format!("nobody may ask for {path}: it has no rule"))
            .into(),
    }
}

/// Where a request came from.
pub(super) fn peer(extensions: &axum::http::Extensions) -> Option<std::net::SocketAddr> {
    extensions.get::<Peer>().and_then(|peer| peer.0)
}

async fn identify(
    app: &Arc<App>,
    method: &Method,
    headers: &HeaderMap,
    peer: Option<std::net::SocketAddr>,
) -> Result<Identity, ServiceError> {
    let bearer =
        headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default().to_owned());
    let cookie = cookie::read(headers);
    if let (None, Some(cookie)) = (&bearer, cookie) {
        let (caller, web) = app.blocking(move |app| app.auth.authenticate_web(&cookie, peer)).await?;
        if !method.is_safe() {
            check_origin(headers)?;
            let given = headers.get(CSRF_HEADER).map_or(&b""[..], |value| value.as_bytes());
            if !web.csrf_matches(given) {
                return Err(ServiceError::new(
                    ErrorCode::Forbidden,
                    format!(
                        "with a cookie this needs the header {CSRF_HEADER}, as 'csrf' of GET {PREFIX}/session says"
                    ),
                ));
            }
        }
        return Ok(Identity { caller, web: Some(web) });
    }
    let caller = app.blocking(move |app| app.auth.authenticate(bearer.as_deref(), peer)).await?;
    Ok(Identity { caller, web: None })
}

/// Refuses what another site made a browser send. Clients that are no browsers do not say.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), ServiceError> {
    match headers.get("sec-fetch-site").map(|value| value.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(ServiceError::new(
            ErrorCode::Forbidden,
            "another site asked for this; open this server's own pages",
        )),
    }
}
