//! HTTPS: health for load balancers and service managers, and a first page for people.

mod health;
mod page;
pub mod problem;
mod serve;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use holdfast_proto::ErrorCode;

pub(crate) use serve::serve;

use crate::app::App;
use crate::error::ServiceError;
use crate::metrics;

/// Everything there is to ask for.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::scrape))
        .fallback(not_found)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), metrics::count_request))
        .with_state(app)
}

async fn not_found() -> ServiceError {
    ServiceError::new(ErrorCode::NotFound, "there is nothing at this address")
}
