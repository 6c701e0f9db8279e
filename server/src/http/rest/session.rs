//! Logging in and out with a browser, and who is logged in.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::wire::time;
use crate::app::App;
use crate::auth::tokens::namespace_names;
use crate::auth::{Authenticator, Caller, WebLogin, login, named_token_text as named_token};
use crate::error::ServiceError;
use crate::http::access::{self, Identity};
use crate::http::problem::Problem;
use crate::http::query::Body;
use crate::http::{self, HttpState};
use crate::limits::{LOGIN_BODY_BYTES, LOGIN_DEADLINE};
use crate::net::Link;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    /// The full text of the token
    #[schema(example = "hf_01J…_0123abcd…")]
    token: String,
}

/// The caller's token and what it allows
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Session {
    /// The token's name
    name: String,
    #[schema(value_type = http::Role, example = "operator")]
    role: &'static str,
    /// The token's namespaces; empty: all
    namespaces: Vec<String>,
    /// Whether the token is for every VM of its namespaces
    every_vm: bool,
    /// What the role may do
    #[schema(value_type = Vec<http::Action>)]
    actions: Vec<&'static str>,
    /// With a cookie: the value of X-CSRF-Token that every request other than GET and HEAD needs
    csrf: Option<String>,
    /// When the login expires unless it is used, or the token expires; null: never
    expires: Option<String>,
    /// The server's version
    version: &'static str,
}

impl Session {
    /// Blocks.
    fn of(app: &App, caller: &Caller, web: Option<&WebLogin>) -> Result<Self, ServiceError> {
        let token = &caller.token;
        let ends = [token.expires_ms, web.map(WebLogin::expires_ms)];
        Ok(Self {
            name: token.name.clone(),
            role: token.role.as_str(),
            namespaces: namespace_names(app.catalog(), token)?,
            every_vm: token.vm_patterns.is_empty(),
            actions: Action::ALL
                .iter()
                .filter(|action| token.role.may(**action))
                .map(|a| http::action(*a))
                .collect(),
            csrf: web.map(|web| web.csrf().to_owned()),
            expires: ends.into_iter().flatten().min().map(time),
            version: env!("CARGO_PKG_VERSION"),
        })
    }
}

/// Log in with a token
///
/// Sets the cookie `__Host-holdfast`. The login ends 12 hours after it was last used, with its token, or by logging
/// out.
#[utoipa::path(post, path = "/login", tag = "session", request_body = Login,
    responses((status = 200, description = "Logged in; sets the cookie", body = Session)))]
pub(super) async fn login(
    State(state): State<HttpState>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    login::check_site(access::bytes(&headers, login::SITE_HEADER))?;
    let link = Arc::clone(access::link(request.extensions())?);
    let Login { token } = stranger_body(&state, request, &link).await?;
    let (named, peer) = (named_token(&token), Some(link.peer()));
    let look_up = move |auth: &Authenticator| auth.authenticate_token(Some(token.trim()), peer);
    let caller = state.app.admit("http", &link, Some(named), look_up, |caller| caller.token.id).await?;
    let (session, cookie) = state
        .app
        .blocking(move |app| {
            let (web, cookie) = app.auth.log_in(&caller)?;
            Ok((Session::of(app, &caller, Some(&web))?, cookie))
        })
        .await?;
    Ok(with_cookie(Json(session), &login::set_cookie(&cookie))?)
}

/// The body in which a stranger shows who it is: a token, or a join code. Until it has arrived anyone may be at the other end.
pub(super) async fn stranger_body<T: DeserializeOwned>(
    state: &HttpState,
    mut request: Request,
    link: &Link,
) -> Result<T, Problem> {
    DefaultBodyLimit::max(LOGIN_BODY_BYTES).apply(&mut request);
    let mut beginning = state.logins.begin(link.origin());
    let read = tokio::time::timeout(LOGIN_DEADLINE, Body::<T>::from_request(request, &()));
    let refused = |text: String| -> Problem {
        ServiceError::new(ErrorCode::Limit, text).retry_after(Duration::from_secs(1)).into()
    };
    tokio::select! {
        biased;
        read = read => match read {
            Ok(read) => read.map(|Body(shown)| shown),
            Err(_) => Err(refused(format!("the request did not arrive within {} s; try again", LOGIN_DEADLINE.as_secs()))),
        },
        () = beginning.refused() => Err(refused("too many logins were begun and not completed; try again".to_owned())),
    }
}

/// Log out
///
/// Ends the login of the cookie. A bearer token has no login to end.
#[utoipa::path(post, path = "/logout", tag = "session", responses((status = 204, description = "Logged out")))]
pub(super) async fn logout(
    State(app): State<Arc<App>>,
    Identity { caller, web, .. }: Identity,
) -> Result<Response, ServiceError> {
    if let Some(web) = web {
        app.blocking(move |app| app.auth.log_out(&caller, &web)).await?;
    }
    with_cookie(StatusCode::NO_CONTENT, &login::clear_cookie())
}

/// The caller's session
#[utoipa::path(get, path = "/session", tag = "session", responses((status = 200, description = "The session", body = Session)))]
pub(super) async fn session(
    State(app): State<Arc<App>>,
    Identity { caller, web, .. }: Identity,
) -> Result<Json<Session>, ServiceError> {
    app.blocking(move |app| Session::of(app, &caller, web.as_ref())).await.map(Json)
}

fn with_cookie(answer: impl IntoResponse, cookie: &str) -> Result<Response, ServiceError> {
    let mut response = answer.into_response();
    response.headers_mut().append(header::SET_COOKIE, http::header_value(cookie)?);
    Ok(response)
}
