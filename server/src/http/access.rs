//! Rights of callers: one table for the check, the OpenAPI document and the tests.
//!
//! Invariants:
//! * A route that is not in the table of routes is refused for every caller (H1): the check comes before the handler,
//!   and it refuses what the table does not contain.
//! * With a cookie, a request that may change something is checked for its origin (H3), see
//!   [`csrf`](crate::auth::login).

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use holdfast_proto::api::PREFIX;
use holdfast_proto::version::{PROTOCOL_METADATA, check_spoken};

use crate::app::{App, holding};
use crate::auth::{Access, Authenticator, Caller, Credential, WebLogin, login, named_token};
use crate::error::ServiceError;
use crate::http::bounds::CHUNK_BYTES;
use crate::http::problem::Problem;
use crate::http::{Audience, HttpState};
use crate::limits::READ_DEADLINE;
use crate::net::{Held, Link};
use crate::shares::Share;

/// The caller, once [`check`] has let them in.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) caller: Caller,
    /// Their login; `None` with a bearer token.
    pub(crate) web: Option<WebLogin>,
    endpoint: &'static Endpoint,
    /// Share by which the request counts among those of its token.
    pub(crate) share: Option<Arc<Share<TokenId>>>,
}

impl Identity {
    /// The token and login that a long answer depends on.
    pub(crate) fn credential(&self) -> Credential {
        Credential { token: self.caller.token.id, login: self.web.as_ref().map(WebLogin::key) }
    }

    /// Notes in the audit log that the request was refused, if it was: [`check`] sees only how answers begin. Blocks.
    pub(crate) fn note_late_refusal(&self, app: &App, error: &ServiceError) {
        if error.code == ErrorCode::Forbidden {
            app.auth.note_refused_call(&self.caller, &self.endpoint.name(), &error.message);
        }
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
pub(super) async fn check(
    State((state, audience, endpoints)): State<(HttpState, Audience, &'static [Endpoint])>,
    mut request: Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let Some(path) = matched.and_then(|path| path.strip_prefix(PREFIX)).map(str::to_owned) else {
        return ServiceError::defect(format!("{matched:?} is not a route below {PREFIX}")).into_response();
    };
    let endpoint = match endpoint(endpoints, request.method().as_str(), &path) {
        Some(endpoint) => endpoint,
        None => return wrong_method(endpoints, &path).into_response(),
    };
    let mut slot = None;
    if endpoint.access != Access::Open {
        let asked = Asked {
            method: request.method(),
            path: request.uri().path(),
            headers: request.headers(),
            extensions: request.extensions(),
            audience,
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
    // An answer that holds something else is made while it is read, and bounded by that.
    if let Some(slot) = slot.filter(|_| response.extensions().get::<Held>().is_none()) {
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
    audience: Audience,
}

/// The caller, who may ask for this, and the slot of the request.
async fn admit(
    state: &HttpState,
    asked: Asked<'_>,
    endpoint: &'static Endpoint,
) -> Result<(Identity, Option<Held>), ServiceError> {
    let link = link(asked.extensions)?;
    let (caller, web) = match asked.audience {
        Audience::Browsers => identify(&state.app, asked.method, asked.headers, link).await?,
        Audience::Agents => (identify_agent(&state.app, asked.headers, link).await?, None),
    };
    let slot = state.slots.of_caller(asked.audience, asked.path, caller.token.id).await?;
    let share = slot.as_ref().map(|(_, share)| Arc::clone(share));
    let identity = Identity { caller, web, endpoint, share };
    let slot = slot.map(|slot| Held::new(slot).in_chunks_of(CHUNK_BYTES).read_within(READ_DEADLINE));
    if let Err(error) = endpoint.access.check(&identity.caller) {
        holding(slot, note_refusal(state, endpoint, identity.caller, &error.message)).await;
        return Err(error);
    }
    Ok((identity, slot))
}

/// Notes in the audit log that a request was refused.
async fn note_refusal(state: &HttpState, endpoint: &'static Endpoint, caller: Caller, why: &str) {
    let (call, why) = (endpoint.name(), why.to_owned());
    let note = move |app: &Arc<App>| {
        app.auth.note_refused_call(&caller, &call, &why);
        Ok(())
    };
    if let Err(error) = state.app.blocking(note).await {
        error.log();
    }
}

/// A path that is not in the table is a defect; one that is has other methods.
fn wrong_method(endpoints: &[Endpoint], path: &str) -> Problem {
    let allowed = methods(endpoints, path).collect::<Vec<_>>().join(", ");
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

/// The caller behind an agent's headers, who speaks a version of the protocol that this server speaks. A stranger does not learn
/// which.
async fn identify_agent(app: &Arc<App>, headers: &HeaderMap, link: &Link) -> Result<Caller, ServiceError> {
    let caller = identify_bearer(app, headers.get(header::AUTHORIZATION), link).await?;
    check_spoken(bytes(headers, PROTOCOL_METADATA))?;
    Ok(caller)
}

async fn identify(
    app: &Arc<App>,
    method: &Method,
    headers: &HeaderMap,
    link: &Link,
) -> Result<(Caller, Option<WebLogin>), ServiceError> {
    let bearer = headers.get(header::AUTHORIZATION);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = login::read_cookie(cookies).map(str::to_owned);
    if let (None, Some(cookie)) = (bearer, cookie) {
        let peer = Some(link.peer());
        let look_up = move |auth: &Authenticator| auth.authenticate_cookie(&cookie, peer);
        let (caller, web) =
            app.admit("http", link, Some(None), look_up, |(caller, _)| caller.token.id).await?;
        if !method.is_safe() {
            login::check_csrf(&web, bytes(headers, login::SITE_HEADER), bytes(headers, login::TOKEN_HEADER))?;
        }
        return Ok((caller, Some(web)));
    }
    Ok((identify_bearer(app, bearer, link).await?, None))
}

/// The value of a header.
pub(super) fn bytes<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    headers.get(name).map(|value| value.as_bytes())
}

/// One method of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) method: &'static str,
    /// Below [`PREFIX`].
    pub(crate) path: String,
    pub(crate) access: Access,
}

impl Endpoint {
    /// Its name in the audit log.
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The methods of a path as the router knows it.
fn methods(endpoints: &[Endpoint], path: &str) -> impl Iterator<Item = &'static str> {
    endpoints.iter().filter(move |endpoint| endpoint.path == path).flat_map(|endpoint| {
        // The router answers HEAD wherever it answers GET.
        [Some(endpoint.method), (endpoint.method == "GET").then_some("HEAD")].into_iter().flatten()
    })
}

/// The endpoint of a method and a path as the router knows it.
pub(super) fn endpoint<'a>(endpoints: &'a [Endpoint], method: &str, path: &str) -> Option<&'a Endpoint> {
    let method = if method == "HEAD" { "GET" } else { method };
    endpoints.iter().find(|endpoint| endpoint.method == method && endpoint.path == path)
}
