//! The OpenAPI document: paths, parameters and bodies come from the handlers, roles and refusals from the
//! table that is enforced ([`crate::http::access`]), so neither can be forgotten or differ.
//!
//! `web/openapi.json` is a copy of it, held to it by a test and rewritten by `cargo xtask openapi`: the web UI's
//! types are generated from the copy, so the UI is built without building the server first.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use holdfast_engine::catalog::token::{Action, Role};
use holdfast_proto::api::{self, PREFIX};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{Info, OpenApi, OpenApiBuilder};

use crate::auth::Access;
use crate::auth::login::{self, TOKEN_HEADER};
use crate::error::ServiceError;
use crate::http::access::{Endpoint, endpoint};
use crate::http::rest::activity::Changed;
use crate::http::{self, AttributedBy, GroupBy};

const ABOUT: &str = "What a Holdfast repository contains, what it costs, and who may use it. Bytes are integers, times \
    are RFC 3339 in UTC, days are YYYY-MM-DD; a value that does not exist is null. Namespaces outside a token's scope \
    look as if they did not exist. An unknown parameter is refused, with a list of the known ones.";

/// The beginning of the document; routes add themselves.
pub(super) fn beginning() -> OpenApi {
    let mut info = Info::new("Holdfast REST API", env!("CARGO_PKG_VERSION"));
    info.description = Some(ABOUT.to_owned());
    OpenApiBuilder::new().info(info).build()
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(super) async fn openapi() -> Result<Response, ServiceError> {
    static TEXT: LazyLock<Result<String, String>> =
        LazyLock::new(|| document().map(|document| document.to_string()).map_err(|error| error.to_string()));
    let text = TEXT.as_ref().map_err(|error| ServiceError::defect(format!("the API's document: {error}")))?;
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, text.as_str()).into_response())
}

/// The whole document.
pub(super) fn document() -> Result<Value, serde_json::Error> {
    let mut document = serde_json::to_value(super::routes().into_openapi())?;
    let endpoints = super::endpoints();
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        for (path, methods) in paths {
            let below = path.strip_prefix(PREFIX).unwrap_or(path);
            for (method, operation) in methods.as_object_mut().into_iter().flatten() {
                if let (Some(endpoint), Some(operation)) =
                    (endpoint(endpoints, &method.to_uppercase(), below), operation.as_object_mut())
                {
                    complete(operation, endpoint);
                }
            }
        }
    }
    complete_schemas(&mut document);
    let components = entry(&mut document, "components");
    let schemes = json!({
        "bearer": { "type": "http", "scheme": "bearer", "description": "A token: `Authorization: Bearer hf_…`" },
        "cookie": {
            "type": "apiKey", "in": "cookie", "name": login::COOKIE_NAME,
            "description": format!("From POST {PREFIX}/login. Requests other than GET and HEAD also need the header {TOKEN_HEADER}."),
        },
    });
    components["securitySchemes"] = schemes;
    Ok(document)
}

/// Adds what the table knows.
fn complete(operation: &mut Map<String, Value>, endpoint: &Endpoint) {
    let (roles, who): (Vec<&str>, String) = match endpoint.access {
        Access::Open => (Vec::new(), "No token is needed.".to_owned()),
        Access::Any => (roles(None), "Any valid token.".to_owned()),
        Access::May(action) | Access::Whole(action) | Access::EveryVm(action) => {
            operation.insert("x-action".to_owned(), http::action(action).into());
            let roles = roles(Some(action));
            let whole = match endpoint.access {
                Access::Whole(_) => "; only tokens that are valid for every namespace",
                Access::EveryVm(_) => "; only tokens that are valid for every namespace and VM",
                _ => "",
            };
            let who = format!("Roles: {}{whole}.", roles.join(", "));
            (roles, who)
        }
    };
    // Handlers of different resources share names.
    let resource = endpoint.path.replace(['{', '}'], "").replace(['/', '.'], "_");
    operation
        .insert("operationId".to_owned(), format!("{}{resource}", endpoint.method.to_lowercase()).into());
    let description = match operation.get("description").and_then(Value::as_str) {
        Some(description) => format!("{description} {who}").trim().to_owned(),
        None => who,
    };
    operation.insert("description".to_owned(), description.into());
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

/// The refusals that are possible.
fn refusals(endpoint: &Endpoint) -> Vec<(&'static str, &'static str)> {
    let mut refusals = vec![
        ("400", "The request is invalid; `detail` says why"),
        ("500", "An internal error, or an I/O error; the server's log says more"),
        ("503", "Busy or shutting down; try again"),
    ];
    let named = endpoint.path.contains('{');
    if endpoint.access != Access::Open || endpoint.method == "POST" {
        refusals.push(("401", "No valid token, or the login has ended"));
        refusals.push(("403", "The token's role or scope does not allow it, or the CSRF token is missing"));
    }
    if named || endpoint.method == "GET" && matches!(endpoint.access, Access::May(_)) {
        refusals.push(("404", "The named object does not exist, or is not in the token's scope"));
    }
    if endpoint.method == "POST" {
        refusals.push(("413", "The body is longer than 128 KiB"));
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

/// Prefix of references to schemas.
const SCHEMAS: &str = "#/components/schemas/";

/// Completes the schemas of a document that has all of its paths, so that they are as exact as the answers. The derived ones
/// leave out types that no handler names, do not say that answers have all of their fields, and repeat the items of a page in
/// full.
pub(super) fn complete_schemas(document: &mut Value) {
    let requests = bodies_of_requests(document);
    let Some(schemas) = document.pointer_mut("/components/schemas") else { return };
    // Refusals, events and parameters, which no body or answer of a handler names.
    add::<api::Problem>(schemas);
    add::<Changed>(schemas);
    add::<AttributedBy>(schemas);
    add::<GroupBy>(schemas);
    let Some(schemas) = schemas.as_object_mut() else { return };
    for (name, schema) in schemas.iter_mut() {
        refer_to_items(name, schema);
        if !requests.contains(name) {
            require_fields(schema);
        }
    }
}

/// A schema and those it refers to.
fn add<T: ToSchema>(schemas: &mut Value) {
    let mut found = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut found);
    for (name, schema) in found {
        // A schema always has a JSON form.
        schemas[name] = serde_json::to_value(schema).unwrap_or_default();
    }
}

fn bodies_of_requests(document: &Value) -> Vec<String> {
    let paths = document["paths"].as_object().into_iter().flat_map(Map::values);
    let operations = paths.filter_map(Value::as_object).flat_map(Map::values);
    let bodies = operations.filter_map(|operation| {
        operation
            .pointer("/requestBody/content/application~1json/schema/$ref")?
            .as_str()?
            .strip_prefix(SCHEMAS)
    });
    bodies.map(str::to_owned).collect()
}

/// The schema of a page or a line, which are generic, is derived with its items in full; a reference says the same.
fn refer_to_items(name: &str, schema: &mut Value) {
    let Some((_, item)) = name.split_once('_') else { return };
    for place in ["/properties/items/items", "/oneOf/0/properties/item"] {
        if let Some(items) = schema.pointer_mut(place) {
            *items = json!({ "$ref": format!("{SCHEMAS}{item}") });
        }
    }
}

/// Answers have all of their fields, null where there is no value; only the body of a request may leave fields
/// out. Derived schemas make no difference between the two: a field that may be null may be absent.
fn require_fields(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            if let Some(properties) = keywords.get("properties").and_then(Value::as_object) {
                let names = json!(properties.keys().collect::<Vec<_>>());
                keywords.insert("required".to_owned(), names);
            }
            keywords.values_mut().for_each(require_fields);
        }
        Value::Array(parts) => parts.iter_mut().for_each(require_fields),
        _ => {}
    }
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
        let text = format!("{:#}\n", document().unwrap());
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

    #[test]
    fn only_bodies_of_requests_have_fields_that_may_be_absent() {
        let document = document().unwrap();
        let required = |name: &str| document["components"]["schemas"][name]["required"].clone();
        assert_eq!(required("CreateToken"), json!(["name", "role"]));
        assert_eq!(required("LatestBackup"), json!(["finished", "id", "job", "missing_disks", "started"]));
        let token = required("TokenRecord");
        assert!(token.as_array().unwrap().contains(&json!("revoked")), "{token}");
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document = document().unwrap();
        let text = document.to_string();
        let names: Vec<&str> =
            text.split(&format!("\"{SCHEMAS}")).skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(names.len() > 50, "{names:?}");
        for name in names {
            assert!(document["components"]["schemas"][name].is_object(), "there is no schema {name}");
        }
    }
}
