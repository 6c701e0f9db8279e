//! Whose the stored bytes are, as the last round of reclaim found them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{ATTRIBUTED_GROUPS_MAX, AttributedBy, AttributedGroup as Group};
use holdfast_engine::ids::NamespaceId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::wire::time;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{Params, limit};
use crate::http::words::{self, SHARERS};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AttributionQuery {
    /// What to add up by [default: vm]
    #[param(value_type = Option<words::AttributedBy>)]
    by: Option<String>,
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    /// The largest so many: 1 to 1000 [default: 100]
    limit: Option<u32>,
}

/// What fills the repository
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Attribution {
    /// When it was counted; null: not yet, then everything is 0
    at: Option<String>,
    /// Bytes of data containers that restore points need, which are all attributed; in the token's scope
    live_bytes: u64,
    /// Whether every recipe could be followed; else bytes are missing here
    is_complete: bool,
    /// The largest first; without what was deleted since
    items: Vec<AttributedGroup>,
}

/// The part of a namespace, a VM or a job
#[derive(Debug, Serialize, ToSchema)]
struct AttributedGroup {
    namespace: String,
    /// Of the VM or the job; the namespace's own
    name: String,
    restore_points: u64,
    /// Bytes that nothing else has: freed when all of it is deleted
    exclusive_bytes: u64,
    /// Its part of everything: what several VMs share is divided among them by lot, about evenly
    attributed_bytes: u64,
}

/// What fills the repository
///
/// Exact, as the last round of reclaim counted it.
#[utoipa::path(get, path = "/attribution", tag = "details", params(AttributionQuery),
    responses((status = 200, description = "Whose the stored bytes are", body = Attribution)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<AttributionQuery>,
) -> Result<Json<Attribution>, ServiceError> {
    let most = limit("limit", query.limit, PAGE)?.min(ATTRIBUTED_GROUPS_MAX);
    let by = parse_by(query.by.as_deref().unwrap_or("vm"))?;
    app.blocking(move |app| {
        let namespace = query.namespace.unwrap_or_default();
        let namespaces = caller.namespaces(app.catalog(), &namespace, Action::Report)?;
        let scope = namespaces.as_deref();
        let Some(state) = app.catalog().attribution()? else {
            return Ok(Json(Attribution { at: None, live_bytes: 0, is_complete: true, items: Vec::new() }));
        };
        let live_bytes = match scope {
            None => state.live_bytes,
            Some(_) => live_in(app, scope)?,
        };
        let items = app.catalog().attributed(by, scope, most)?.into_iter().map(item).collect();
        Ok(Json(Attribution {
            at: Some(time(state.at_ms)),
            live_bytes,
            is_complete: state.is_complete,
            items,
        }))
    })
    .await
}

fn parse_by(word: &str) -> Result<AttributedBy, ServiceError> {
    let known = SHARERS.iter().find(|(known, _)| *known == word);
    known.map(|(_, by)| *by).ok_or_else(|| ServiceError::invalid("by: must be namespace, vm or job"))
}

/// What is attributed in these namespaces: they share nothing with others.
fn live_in(app: &App, scope: Option<&[NamespaceId]>) -> Result<u64, ServiceError> {
    let found = app.catalog().attributed(AttributedBy::Namespace, scope, ATTRIBUTED_GROUPS_MAX)?;
    Ok(found.iter().fold(0, |sum, group| sum.saturating_add(group.attributed_bytes)))
}

fn item(group: Group) -> AttributedGroup {
    AttributedGroup {
        namespace: group.namespace_name,
        name: group.name,
        restore_points: group.backups,
        exclusive_bytes: group.exclusive_bytes,
        attributed_bytes: group.attributed_bytes,
    }
}
