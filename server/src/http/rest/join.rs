//! Joining: an agent exchanges the secret of its join code for its token.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use holdfast_engine::ids::TokenId;
use holdfast_proto::api::{Join, Joined};

use super::session::stranger_body;
use crate::activity::Change;
use crate::auth::Authenticator;
use crate::error::ServiceError;
use crate::http::problem::Problem;
use crate::http::{HttpState, access};

/// Redeem a join code
///
/// Answers with the token that the code stands for. The code is spent by that; the same agent, by its key, gets the same
/// answer again as long as the code would have been valid. Agents ask this on their own port.
#[utoipa::path(post, path = "/join", tag = "access", request_body = Join,
    responses((status = 200, description = "The token, which is kept nowhere else", body = Joined)))]
pub(super) async fn join(State(state): State<HttpState>, request: Request) -> Result<Json<Joined>, Problem> {
    let link = Arc::clone(access::link(request.extensions())?);
    let shown = stranger_body::<Join>(&state, request, &link).await?.read();
    let shown =
        shown.map_err(|name| ServiceError::invalid(format!("{name}: it is not 64 hexadecimal digits")))?;
    let (token, peer) = (TokenId::from_bytes(shown.0.token), Some(link.peer()));
    let redeem = move |auth: &Authenticator| auth.redeem(&shown, peer);
    let (_, joined) = state.app.admit("http", &link, Some(Some(token)), redeem, |(token, _)| *token).await?;
    state.app.activity.note(Change::Tokens);
    Ok(Json(joined))
}
