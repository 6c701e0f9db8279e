//! Who may ask for what: one table for the check, the OpenAPI document and the tests.
//!
//! Invariants:
//! * A route that is not in [`endpoints::ENDPOINTS`] is refused for every caller (H1): the check comes before the handler,
//!   and it refuses what the table does not contain.
//! * With a cookie, a request that may change something is checked for its origin (H3), see
//!   [`csrf`](crate::auth::login::csrf).

mod endpoints;

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::state::HttpState;
use crate::app::{App, holding};
use crate::auth::login::{cookie, csrf};
use crate::auth::{Access, Authenticator, Caller, Credential, WebLogin, named_token};
use crate::error::ServiceError;
use crate::net::{Held, Link};
#[cfg(test)]
pub(crate) use endpoints::ENDPOINTS;
pub(crate) use endpoints::{Endpoint, PREFIX, endpoint};

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
pub(super) async fn check(State(state): State<HttpState>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let Some(path) = matched.and_then(|path| path.strip_prefix(PREFIX)).map(str::to_owned) else {
        return ServiceError::defect(format!("{matched:?} is not a route below {PREFIX}")).into_response();
    };
    let endpoint = match endpoint(request.method().as_str(), &path) {
        Some(endpoint) => endpoint,
        None => return wrong_method(&path).into_response(),
    };
    let mut slot = None;
    if endpoint.access != Access::Open {
        let asked = Asked {
            method: request.method(),
            path: request.uri().path(),
            headers: request.headers(),
            extensions: request.extensions(),
        };
        match admit(&state, asked, endpoint).await {
            Ok((identity, taken)) => {
                request.extensions_mut().insert(identity);
                slot = taken;
            }
            Err(error) => return error.into_response(),
        }
    }
    let secret = endpoint.method != "GET" || path == "/session";
    let caller = request.extensions().get::<Identity>().map(|identity| identity.caller.clone());
    let answered = async {
        let response = next.run(request).await;
        if let Some(caller) = caller.filter(|_| response.status() == StatusCode::FORBIDDEN) {
            note_refusal(&state, endpoint, caller, "outside of its namespaces or VMs").await;
        }
        response
    };
    let mut response = holding(slot.clone(), answered).await;
    if secret {
        response.extensions_mut().insert(Secret);
    }
    if let Some(slot) = slot {
        response.extensions_mut().insert(slot);
    }
    response
}

/// A request without its body, which is not read before it is known who calls.
#[derive(Clone, Copy)]
struct Asked<'a> {
    method: &'a Method,
    path: &'a str,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

/// The caller, who may ask for this, and the slot of the request.
async fn admit(
    state: &HttpState,
    asked: Asked<'_>,
    endpoint: &'static Endpoint,
) -> Result<(Identity, Option<Held>), ServiceError> {
    let link = link(asked.extensions)?;
    let identity = identify(&state.app, asked.method, asked.headers, link).await?;
    let slot = state.slots.of_caller(asked.path, identity.caller.token.id).await?.map(Held::new);
    if let Err(error) = endpoint.access.check(&identity.caller) {
        holding(slot, note_refusal(state, endpoint, identity.caller, &error.message)).await;
        return Err(error);
    }
    Ok((identity, slot))
}

/// Notes in the audit log that a request was refused.
async fn note_refusal(state: &HttpState, endpoint: &'static Endpoint, caller: Caller, why: &str) {
    let (call, why) = (format!("{} {}", endpoint.method, endpoint.path), why.to_owned());
    let note = move |app: &Arc<App>| {
        app.auth.note_refused_call(&caller, &call, &why);
        Ok(())
    };
    if let Err(error) = state.app.blocking(note).await {
        error.log();
    }
}

/// A path that is not in the table is a defect; one that is has other methods.
fn wrong_method(path: &str) -> Problem {
    let allowed = endpoints::methods(path).collect::<Vec<_>>().join(", ");
    if allowed.is_empty() {
        return ServiceError::defect(format!("{path} has no access rule")).into();
    }
    Problem::method_not_allowed(&allowed)
}

/// The connection a request came by.
pub(super) fn link(extensions: &Extensions) -> Result<&Arc<Link>, ServiceError> {
    extensions.get::<Arc<Link>>().ok_or_else(|| ServiceError::defect("a request came without its connection"))
}

/// The caller behind an `authorization` header or its absence.
pub(super) async fn identify_bearer(
    app: &Arc<App>,
    bearer: Option<&HeaderValue>,
    link: &Link,
) -> Result<Caller, ServiceError> {
    // One that is not text is a wrong token.
    let bearer = bearer.map(|value| value.to_str().unwrap_or_default().to_owned());
    let (shown, peer) = (bearer.as_deref().map(named_token), Some(link.peer()));
    let look_up = move |auth: &Authenticator| auth.authenticate(bearer.as_deref(), peer);
    app.admit("http", link, shown, look_up, |caller| caller.token.id).await
}

async fn identify(
    app: &Arc<App>,
    method: &Method,
    headers: &HeaderMap,
    link: &Link,
) -> Result<Identity, ServiceError> {
    let bearer = headers.get(header::AUTHORIZATION);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = cookie::read(cookies).map(str::to_owned);
    if let (None, Some(cookie)) = (bearer, cookie) {
        let peer = Some(link.peer());
        let look_up = move |auth: &Authenticator| auth.authenticate_cookie(&cookie, peer);
        let (caller, web) =
            app.admit("http", link, Some(None), look_up, |(caller, _)| caller.token.id).await?;
        if !method.is_safe() {
            csrf::check(&web, bytes(headers, csrf::SITE_HEADER), bytes(headers, csrf::TOKEN_HEADER))?;
        }
        return Ok(Identity { caller, web: Some(web) });
    }
    Ok(Identity { caller: identify_bearer(app, bearer, link).await?, web: None })
}

/// The value of a header.
pub(super) fn bytes<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    headers.get(name).map(|value| value.as_bytes())
}
