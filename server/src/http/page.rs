//! The page a person sees who opens the address in a browser.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse};

use crate::app::App;

/// Says what this is and how to go on. Nothing in it comes from a request.
pub(super) async fn index(State(app): State<Arc<App>>) -> impl IntoResponse {
    let (version, address) = (env!("CARGO_PKG_VERSION"), app.grpc_address);
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Holdfast</title>\
         <style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}}\
         code{{background:#eee;padding:.1em .3em}}</style>\
         <h1>Holdfast {version}</h1>\
         <p>This is a backup repository. Agents connect to <code>{address}</code>.</p>\
         <p>On a hypervisor, begin with <code>holdfast login --server HOST:{port}</code>.</p>\
         <p>Health: <a href=\"/healthz\">/healthz</a>, <a href=\"/readyz\">/readyz</a>.</p></html>",
        port = address.port(),
    );
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    ([(header::CONTENT_SECURITY_POLICY, policy), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], Html(page))
}
