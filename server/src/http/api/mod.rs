//! The REST API, one file a resource, and its OpenAPI document, which is made from the handlers.

mod audit;
mod document;
mod server;
mod session;
mod tokens;
mod wire;

use std::sync::Arc;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::PREFIX;
use crate::app::App;

/// Every route of the API.
pub(super) fn router() -> Router<Arc<App>> {
    routes().split_for_parts().0
}

fn routes() -> OpenApiRouter<Arc<App>> {
    let api = OpenApiRouter::new()
        .routes(routes!(document::openapi))
        .routes(routes!(session::login))
        .routes(routes!(session::logout))
        .routes(routes!(session::session))
        .routes(routes!(server::server))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(audit::list));
    OpenApiRouter::with_openapi(document::beginning()).nest(PREFIX, api)
}
