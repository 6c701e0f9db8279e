//! The OpenAPI document: paths, parameters and bodies come from the handlers, roles and refusals from the
//! table that is enforced ([`crate::http::access`]), so neither can be forgotten or differ.
//!
//! `web/openapi.json` is a copy of it, held to it by a test and rewritten by `cargo xtask openapi`: the web UI's
//! types are generated from the copy, so the UI is built without building the server first.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use holdfast_engine::catalog::token::{Action, Role};
use serde_json::{Map, Value, json};
use utoipa::openapi::{Info, OpenApi, OpenApiBuilder};

use super::session::word;
use crate::http::access::{Access, CSRF_HEADER, Endpoint, PREFIX, endpoint};
use crate::http::cookie;

const ABOUT: &str = "What is in a Holdfast repository, what it cost, and who may use it. Bytes are integers, times \
    RFC 3339 in UTC, days YYYY-MM-DD; absent values are null. Namespaces outside a token's scope look as if they did \
    not exist. A request with an unknown parameter is refused; the error lists the known ones.";

/// What the document begins with; routes add themselves.
pub(super) fn beginning() -> OpenApi {
    let mut info = Info::new("Holdfast REST API", env!("CARGO_PKG_VERSION"));
    info.description = Some(ABOUT.to_owned());
    OpenApiBuilder::new().info(info).build()
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(super) async fn openapi() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    (headers, text.as_str()).into_response()
}

/// The whole document.
pub(crate) fn document() -> Value {
    // Its types always have a JSON form; an empty document would fail the test of this module.
    let mut document = serde_json::to_value(super::routes().into_openapi()).unwrap_or_default();
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        for (path, methods) in paths {
            let below = path.strip_prefix(PREFIX).unwrap_or(path);
            for (method, operation) in methods.as_object_mut().into_iter().flatten() {
                if let (Some(endpoint), Some(operation)) =
                    (endpoint(&method.to_uppercase(), below), operation.as_object_mut())
                {
                    complete(operation, endpoint);
                }
            }
        }
    }
    super::schemas::complete(&mut document);
    let components = entry(&mut document, "components");
    let schemes = json!({
        "bearer": { "type": "http", "scheme": "bearer", "description": "A token: `Authorization: Bearer hf_…`" },
        "cookie": {
            "type": "apiKey", "in": "cookie", "name": cookie::NAME,
            "description": format!("From POST {PREFIX}/login. Requests other than GET and HEAD also need the header {CSRF_HEADER}."),
        },
    });
    components["securitySchemes"] = schemes;
    document
}

/// Adds what the table knows.
fn complete(operation: &mut Map<String, Value>, endpoint: &Endpoint) {
    let (roles, who): (Vec<&str>, String) = match endpoint.access {
        Access::Open => (Vec::new(), "No token is needed.".to_owned()),
        Access::Any => (roles(None), "Any valid token.".to_owned()),
        Access::May(action) | Access::Whole(action) => {
            operation.insert("x-action".to_owned(), word(action).into());
            let roles = roles(Some(action));
            let whole =
                if matches!(endpoint.access, Access::Whole(_)) { ", for every namespace" } else { "" };
            let who = format!("Roles: {}{whole}.", roles.join(", "));
            (roles, who)
        }
    };
    // Handlers of different resources share names.
    let words = endpoint.path.replace(['{', '}'], "").replace(['/', '.'], "_");
    operation.insert("operationId".to_owned(), format!("{}{words}", endpoint.method.to_lowercase()).into());
    let description = operation.entry("description").or_insert_with(|| "".into());
    *description = format!("{} {who}", description.as_str().unwrap_or_default()).trim().into();
    let open = endpoint.access == Access::Open;
    operation.insert(
        "security".to_owned(),
        if open { json!([]) } else { json!([{ "bearer": [] }, { "cookie": [] }]) },
    );
    operation.insert("x-roles".to_owned(), roles.into());
    let responses = operation.entry("responses").or_insert_with(|| json!({}));
    for (status, description) in refusals(endpoint) {
        if responses.get(status).is_none() {
            responses[status] = json!({
                "description": description,
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            });
        }
    }
}

fn roles(action: Option<Action>) -> Vec<&'static str> {
    let may = |role: &Role| action.is_none_or(|action| role.may(action));
    Role::ALL.into_iter().filter(may).map(Role::as_str).collect()
}

/// What it can be refused with.
fn refusals(endpoint: &Endpoint) -> Vec<(&'static str, &'static str)> {
    let mut refusals = vec![
        ("400", "The request is invalid; `detail` says why"),
        ("500", "A defect, or an I/O error; the server's log says more"),
        ("503", "Busy or shutting down; try again"),
    ];
    let named = endpoint.path.contains('{');
    if endpoint.access != Access::Open || endpoint.path == "/login" {
        refusals.push(("401", "No valid token, or the login has ended"));
        refusals.push(("403", "The token's role or scope does not allow it, or the CSRF token is missing"));
    }
    if named || endpoint.method == "GET" && matches!(endpoint.access, Access::May(_)) {
        refusals.push(("404", "The named object does not exist, or this token does not cover it"));
    }
    if endpoint.method == "POST" {
        refusals.push(("413", "The body is longer than 64 KiB"));
        refusals.push(("415", "The body is not JSON"));
    }
    refusals
}

fn entry<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    if value.get(key).is_none() {
        value[key] = json!({});
    }
    &mut value[key]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The copy that the web UI's types are generated from.
    const COPY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/openapi.json");

    /// Set by `cargo xtask openapi`: write the copy instead of comparing with it.
    const WRITE: &str = "HOLDFAST_WRITE_OPENAPI";

    #[test]
    fn the_copy_for_the_web_ui_is_current() {
        let text = format!("{:#}\n", document());
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(COPY, text).unwrap();
            return;
        }
        let copy = std::fs::read_to_string(COPY).unwrap();
        assert!(
            copy == text,
            "web/openapi.json differs from what the server serves; run `cargo xtask openapi`"
        );
    }
}
