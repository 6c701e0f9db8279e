//! Access tokens.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_engine::catalog::TokenRecord;
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::wire::{Items, maybe_time, time};
use crate::activity::Change;
use crate::app::App;
use crate::auth::join;
use crate::auth::tokens::{self, NewToken};
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::{At, Body, id};
use crate::http::{self, HttpState};

/// An access token, without its secret
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TokenRecord)]
pub(super) struct Token {
    id: String,
    name: String,
    #[schema(value_type = http::Role, example = "backup")]
    role: &'static str,
    /// Empty: all
    namespaces: Vec<String>,
    /// VMs that it backs up first become this owner's; it backs up no VM of another
    owner: String,
    /// VM names it is valid for, with * and ? as wildcards; empty: all
    vm_patterns: Vec<String>,
    created: String,
    /// null: never
    expires: Option<String>,
    /// null: not revoked
    revoked: Option<String>,
    /// Since when it waits for an admin to enable it, as every token of a recovered server does; null: it does not
    disabled: Option<String>,
    /// Until when its join code can be redeemed, and it cannot be used; null: it has none, or it was redeemed
    joining_until: Option<String>,
    /// Accurate to a minute; null: never
    last_used: Option<String>,
    /// Whether this request was made with it
    current: bool,
}

impl Token {
    /// Blocks.
    fn of(app: &App, token: &TokenRecord, caller: TokenId) -> Result<Self, ServiceError> {
        Ok(Self {
            id: token.id.to_string(),
            name: token.name.clone(),
            role: token.role.as_str(),
            namespaces: tokens::namespace_names(app.catalog(), token)?,
            owner: token.owner.clone(),
            vm_patterns: token.vm_patterns.clone(),
            created: time(token.created_ms),
            expires: maybe_time(token.expires_ms),
            revoked: maybe_time(token.revoked_ms),
            disabled: maybe_time(token.disabled_ms),
            joining_until: maybe_time(token.joining_until_ms()),
            last_used: maybe_time(token.last_used_ms),
            current: token.id == caller,
        })
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateToken {
    /// Name of the token; unique among tokens that are not revoked
    name: String,
    /// backup, restore, operator or admin
    #[schema(value_type = http::Role)]
    role: String,
    /// Created if they do not exist; empty: all
    #[serde(default)]
    namespaces: Vec<String>,
    /// Owner of the VMs it backs up; null: an owner called as the token
    #[serde(default)]
    owner: Option<String>,
    /// VM names it is valid for, with * and ? as wildcards; empty: all
    #[serde(default)]
    vm_patterns: Vec<String>,
    /// How long it is valid, such as 90d or 12h; null: it never expires
    #[serde(default)]
    expires_in: Option<String>,
    /// Make a join code for an agent, which redeems it for the token within 15 minutes; for the roles backup and restore
    #[serde(default)]
    join: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct CreatedToken {
    /// The token's text, which is shown only once; null: it is for a join code
    token: Option<String>,
    /// The join code, for `holdfast agent join`, which is shown only once; null: the token needs none
    join_code: Option<String>,
    record: Token,
}

/// Tokens, oldest first, revoked ones included
#[utoipa::path(get, path = "/tokens", tag = "access", responses((status = 200, description = "The tokens", body = Items<Token>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    identity: Identity,
) -> Result<Json<Items<Token>>, ServiceError> {
    app.blocking(move |app| {
        let current = identity.caller.token.id;
        let tokens = app.catalog().list_tokens()?;
        let items =
            tokens.iter().map(|token| Token::of(app, token, current)).collect::<Result<Vec<_>, _>>()?;
        Ok(Json(Items::whole(items)))
    })
    .await
}

/// Create a token
#[utoipa::path(post, path = "/tokens", tag = "access", request_body = CreateToken,
    responses((status = 201, description = "The token; its text cannot be shown again", body = CreatedToken)))]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    identity: Identity,
    Body(wanted): Body<CreateToken>,
) -> Result<(StatusCode, Json<CreatedToken>), ServiceError> {
    app.blocking(move |app| {
        let caller = &identity.caller.token;
        let role = wanted.role.parse().map_err(|error| ServiceError::invalid(format!("role: {error}")))?;
        let expires_in = wanted.expires_in.filter(|text| !text.is_empty());
        let expires_in = expires_in
            .map(|text| humantime::parse_duration(&text))
            .transpose()
            .map_err(|error| ServiceError::invalid(format!("expires_in: {error}; examples: 90d, 12h")))?;
        let owner = wanted.owner.as_deref().filter(|owner| !owner.is_empty());
        let (name, namespaces, vm_patterns) = (&wanted.name, &wanted.namespaces, &wanted.vm_patterns);
        let new = NewToken { name, role, namespaces, owner, vm_patterns, expires_in };
        let (catalog, clock, who) = (app.catalog(), &*app.clock, &caller.name);
        let (token, join_code, record) = if wanted.join {
            let reached = (app.addresses.advertised.clone(), app.addresses.certificate.fingerprint());
            let (code, record) = join::create(catalog, clock, who, &new, reached)?;
            (None, Some(code.to_string()), record)
        } else {
            let (text, record) = tokens::create(catalog, clock, who, &new)?;
            (Some(text.as_str().to_owned()), None, record)
        };
        app.activity.note(Change::Tokens);
        let record = Token::of(app, &record, caller.id)?;
        Ok((StatusCode::CREATED, Json(CreatedToken { token, join_code, record })))
    })
    .await
}

/// Revoke a token
///
/// It ends at once and for good, as do its logins and, within seconds, its streams. The last working admin token
/// cannot be revoked here, only with `holdfast-server token revoke`.
#[utoipa::path(delete, path = "/tokens/{id}", tag = "access", params(("id" = String, Path, description = "The token's id")),
    responses((status = 204, description = "Revoked, now or earlier")))]
pub(super) async fn revoke(
    State(state): State<HttpState>,
    identity: Identity,
    At(text): At<String>,
) -> Result<StatusCode, ServiceError> {
    state
        .blocking(move |state| {
            let app = &state.app;
            // One at a time: otherwise two admins could revoke each other's tokens, the last two.
            let _turn = state.revoking.lock();
            let token = tokens::find(app.catalog(), id("token", &text)?)?;
            if tokens::is_last_admin(app.catalog(), app.clock.now_ms(), &token)? {
                return Err(ServiceError::new(
                    ErrorCode::Forbidden,
                    "this is the last usable admin token; create another one before you revoke it",
                ));
            }
            if token.revoked_ms.is_none() {
                tokens::revoke(app.catalog(), &identity.caller.token.name, &token)?;
                app.activity.note(Change::Tokens);
            }
            Ok(StatusCode::NO_CONTENT)
        })
        .await
}
