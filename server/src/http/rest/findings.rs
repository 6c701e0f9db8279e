//! Runs out of line with the history of their VM or job.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_proto::api::Finding;

use super::filter::detail_query;
use super::wire::Items;
use crate::app::App;
use crate::error::ServiceError;
use crate::findings;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{Params, limit};

detail_query!(FindingsQuery {
    /// Number of items to return: 1 to 1000 [default: 100]
    limit: Option<u32>,
});

/// Runs out of line with the history of their VM or job, the worst first
///
/// First what stored more than usual, by how much; then first backups, copies and what was read again. Of runs in a row one
/// item tells; where the same is found of at least three VMs of a job in one run, one item tells of all. Only sizes are
/// compared. A VM needs a week of runs for it.
#[utoipa::path(get, path = "/findings", tag = "details", params(FindingsQuery),
    responses((status = 200, description = "The worst", body = Items<Finding>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(mut query): Params<FindingsQuery>,
) -> Result<Json<Items<Finding>>, ServiceError> {
    let (filter, limit) = (query.filter(), limit("limit", query.limit, PAGE)?);
    app.blocking(move |app| {
        let filter = filter.resolve(app, &caller)?;
        let mut items = findings::list(app.catalog(), &filter, app.clock.now_ms())?;
        let total = items.len() as u64;
        items.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Json(Items { items, total, offset: 0 }))
    })
    .await
}
