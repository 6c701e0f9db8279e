//! The API's description for people: one page that shows `/api/v1/openapi.json`. It loads nothing from elsewhere and
//! has no inline script, so it works without Internet access and under the same policy as everything else.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;

const PAGE: &str = include_str!("docs/index.html");
const SCRIPT: &str = include_str!("docs/docs.js");
const STYLE: &str = include_str!("docs/docs.css");

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/api", get(to_page))
        .route("/api/", get(to_page))
        .route("/api/docs", get(to_page))
        .route("/api/docs/", get(async || part("text/html; charset=utf-8", PAGE)))
        .route("/api/docs/docs.js", get(async || part("text/javascript; charset=utf-8", SCRIPT)))
        .route("/api/docs/docs.css", get(async || part("text/css; charset=utf-8", STYLE)))
}

async fn to_page() -> Redirect {
    Redirect::permanent("/api/docs/")
}

fn part(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}
