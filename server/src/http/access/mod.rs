//! Who may ask for what: one table for the check, the OpenAPI document and the tests.
//!
//! Invariants:
//! * A route that is not in [`endpoints::ENDPOINTS`] is refused for every caller (H1): the check comes before the handler,
//!   and it refuses what the table does not contain.
//! * With a cookie, a request that may change something is checked for its origin (H3), see
//!   [`csrf`](crate::auth::login::csrf).

mod endpoints;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_proto::ErrorCode;

use super::connection::Peer;
use super::problem::Problem;
use crate::app::App;
use crate::auth::login::{cookie, csrf};
use crate::auth::{Caller, Credential, WebLogin};
use crate::error::ServiceError;
#[cfg(test)]
pub(crate) use endpoints::ENDPOINTS;
pub(crate) use endpoints::{Access, Endpoint, PREFIX, endpoint};

/// The caller, once [`check`] has let them in.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) caller: Caller,
    /// Their login; `None` with a bearer token.
    pub(crate) web: Option<WebLogin>,
}

impl Identity {
    /// What an answer that takes long depends on.
    pub(crate) fn credential(&self) -> Credential {
        Credential { token: self.caller.token.id, login: self.web.as_ref().map(WebLogin::key) }
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = ServiceError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ServiceError> {
        parts.extensions.get().cloned().ok_or_else(|| ServiceError::defect("the caller was not checked"))
    }
}

/// Marks a response that contains a secret: compressed together with text that others may choose, it could be
/// guessed from the length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secret;

/// Around every route of the API.
pub(super) async fn check(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let Some(path) = matched.and_then(|path| path.strip_prefix(PREFIX)).map(str::to_owned) else {
        return ServiceError::defect(format!("{matched:?} is not a route below {PREFIX}")).into_response();
    };
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
                format!(
                    "this concerns the whole repository, but token {name:?} is valid for some namespaces only; use a \
                     token that is valid for all"
                ),
            ))
        }
    }
}

/// A path that is not in the table is a defect; one that is has other methods.
fn wrong_method(path: &str) -> Problem {
    let has = |method| endpoint(method, path).is_some();
    match (has("GET"), has("POST"), has("DELETE")) {
        (true, true, _) => Problem::method_not_allowed("GET, HEAD, POST"),
        (true, ..) => Problem::method_not_allowed("GET, HEAD"),
        (_, true, _) => Problem::method_not_allowed("POST"),
        (.., true) => Problem::method_not_allowed("DELETE"),
        _ => ServiceError::defect(format!("{path} has no access rule")).into(),
    }
}

/// Where a request came from.
pub(super) fn peer(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get::<Peer>().and_then(|peer| peer.0)
}

async fn identify(
    app: &Arc<App>,
    method: &Method,
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
) -> Result<Identity, ServiceError> {
    // One that is not text is a wrong token.
    let bearer =
        headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default().to_owned());
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = cookie::read(cookies).map(str::to_owned);
    if let (None, Some(cookie)) = (&bearer, cookie) {
        let (caller, web) = app.identify(move |auth| auth.authenticate_cookie(&cookie, peer)).await?;
        if !method.is_safe() {
            csrf::check(&web, bytes(headers, csrf::SITE_HEADER), bytes(headers, csrf::TOKEN_HEADER))?;
        }
        return Ok(Identity { caller, web: Some(web) });
    }
    let caller = app.identify(move |auth| auth.authenticate(bearer.as_deref(), peer)).await?;
    Ok(Identity { caller, web: None })
}

/// The value of a header.
pub(super) fn bytes<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    headers.get(name).map(|value| value.as_bytes())
}
