//! The audit log.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::{self, PageRequest};
use holdfast_proto::api::Keyset;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::wire::time;
use crate::app::App;
use crate::auth::peer_text;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{Params, limit};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Number of items to return: 1 to 1000 [default: 100]
    page_size: Option<u32>,
    /// `next_page_token` of the previous page
    page_token: Option<String>,
}

/// An entry of the audit log
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditEntry {
    id: String,
    at: String,
    /// A token's name, an address, or a user of the server's machine
    who: String,
    /// What was done: object and verb
    #[schema(example = "token.revoke")]
    action: String,
    /// Id of the object; of several events, the latest
    object: String,
    /// Of several events, the latest
    detail: String,
    /// How many events of this kind, by the same actor within ten minutes, this entry stands for
    count: u64,
    /// When the last of them happened; the same as `at` for a single one
    last_at: String,
}

/// The audit log, newest first
#[utoipa::path(get, path = "/audit", tag = "access", params(AuditQuery),
    responses((status = 200, description = "A page of the log", body = Keyset<AuditEntry>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<AuditQuery>,
) -> Result<Json<Keyset<AuditEntry>>, ServiceError> {
    let size = limit("page_size", query.page_size, PAGE)?;
    app.blocking(move |app| {
        let token = query.page_token.unwrap_or_default();
        let page = app.catalog().list_audit(PageRequest { size, token: &token })?;
        let entry = catalog::AuditEntry {
            who: caller.token.name,
            action: "audit.read".to_owned(),
            object: "audit log".to_owned(),
            detail: format!("from {}", peer_text(caller.peer)),
        };
        app.auth.audit_log().note(entry, String::new());
        let items = page.items.into_iter().map(|record| AuditEntry {
            id: record.id.to_string(),
            at: time(record.at_ms),
            who: record.entry.who,
            action: record.entry.action,
            object: record.entry.object,
            detail: record.entry.detail,
            count: record.count,
            last_at: time(record.last_ms),
        });
        Ok(Json(Keyset { items: items.collect(), next_page_token: page.next }))
    })
    .await
}
