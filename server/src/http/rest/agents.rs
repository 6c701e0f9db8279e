//! Agents that back up by the clock.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_proto::api::{Agent, AgentReport};

use super::wire::Items;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::Body;

/// Agents that back up by the clock
///
/// As each last reported: when it starts, after each run, and every hour. Agents whose tokens are valid for other namespaces
/// than the caller's are left out, as are those of revoked tokens.
#[utoipa::path(get, path = "/agents", tag = "vms",
    responses((status = 200, description = "The agents, by token and host", body = Items<Agent>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
) -> Result<Json<Items<Agent>>, ServiceError> {
    app.blocking(move |app| Ok(Json(Items::whole(app.catalog().agents(caller.scope().as_deref())?)))).await
}

/// Report an agent
///
/// Takes the place of what the same token reported of this host before.
#[utoipa::path(post, path = "/agents", tag = "vms", request_body = AgentReport,
    responses((status = 200, description = "The agent as it is listed", body = Agent)))]
pub(super) async fn report(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Body(report): Body<AgentReport>,
) -> Result<Json<Agent>, ServiceError> {
    app.blocking(move |app| {
        app.catalog().report_agent(caller.token.id, &report)?;
        let now_ms = app.clock.now_ms();
        Ok(Json(Agent { token: caller.token.name.clone(), seen: now_ms, late: false, report }.at(now_ms)))
    })
    .await
}
