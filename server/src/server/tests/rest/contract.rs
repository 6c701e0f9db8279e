//! Holds every JSON answer that a test gets against `web/openapi.json`, from which the web UI's types are generated:
//! exactly the documented fields, each of its documented type, and words that are among those listed.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use holdfast_proto::api::LINES;
use serde_json::{Value, json};

/// The document that the web UI is built with.
fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/openapi.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    })
}

/// An answer to a request of the API. Anything else passes.
pub(super) fn check_answer((method, path): (&str, &str), status: u16, kind: &str, body: &[u8]) {
    let Some(operation) = operation(path) else { return };
    let content = &operation[method.to_lowercase()]["responses"][status.to_string()]["content"];
    if content.is_null() || kind.is_empty() {
        return;
    }
    // Without its parameters.
    let kind = kind.split(';').next().unwrap_or_default();
    let schema = &content[kind]["schema"];
    assert!(!schema.is_null(), "{method} {path} answered {status} as {kind}, which is not documented");
    if !matches!(kind, "application/json" | LINES) {
        return;
    }
    let values = match kind {
        LINES => body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect(),
        _ => vec![body],
    };
    for value in values {
        let value = serde_json::from_slice(value).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        fits(schema, &value).unwrap_or_else(|error| panic!("{method} {path} answered {status}: {error}"));
    }
}

/// The data of an event.
pub(super) fn check_value(schema: &str, value: &Value) {
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    fits(&schema, value).unwrap();
}

/// The path as documented; one without parameters before one with them.
fn operation(path: &str) -> Option<&'static Value> {
    let asked: Vec<&str> = path.split('?').next()?.split('/').collect();
    let matches = |documented: &str| {
        let parts: Vec<&str> = documented.split('/').collect();
        parts.len() == asked.len() && parts.iter().zip(&asked).all(|(a, b)| a.starts_with('{') || a == b)
    };
    let found = document()["paths"].as_object()?.iter().filter(|(documented, _)| matches(documented));
    found.min_by_key(|(documented, _)| documented.matches('{').count()).map(|(_, operation)| operation)
}

/// The schema itself, or the one it refers to.
fn resolved(schema: &Value) -> &Value {
    let Some(name) = schema["$ref"].as_str() else { return schema };
    document().pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("there is no schema {name}"))
}

fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolved(schema);
    if let Some(choices) = schema["oneOf"].as_array() {
        let fitting = choices.iter().filter(|choice| fits(choice, value).is_ok()).count();
        return if fitting == 1 { Ok(()) } else { Err(format!("{fitting} of {choices:?} fit {value}")) };
    }
    let mut fields = BTreeMap::new();
    collect_fields(schema, &mut fields);
    if !fields.is_empty() {
        return fits_fields(&fields, value);
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Err(format!("{value} is not among {words:?}"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let fits_type = types.contains(&type_of(value)) || value.is_u64() && types.contains(&"number");
    if !fits_type {
        return Err(format!("{value} is not of type {types:?}"));
    }
    let mut items = value.as_array().into_iter().flatten();
    items.try_for_each(|item| fits(&schema["items"], item))
}

/// Name to schema, those of all parts.
fn collect_fields<'a>(schema: &'a Value, fields: &mut BTreeMap<&'a str, &'a Value>) {
    let schema = resolved(schema);
    for part in schema["allOf"].as_array().into_iter().flatten() {
        collect_fields(part, fields);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        fields.insert(name, field);
    }
}

fn fits_fields(fields: &BTreeMap<&str, &Value>, value: &Value) -> Result<(), String> {
    let object = value.as_object().ok_or_else(|| format!("{value} is no object"))?;
    if !fields.keys().copied().eq(object.keys().map(String::as_str)) {
        let (documented, found): (Vec<_>, Vec<_>) = (fields.keys().collect(), object.keys().collect());
        return Err(format!("the fields {documented:?} are documented, {found:?} were sent"));
    }
    let mut pairs = fields.values().zip(object);
    pairs.try_for_each(|(schema, (name, value))| {
        fits(schema, value).map_err(|error| format!("{name}: {error}"))
    })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[test]
fn what_is_not_documented_is_found() {
    let ok = json!({ "title": "Bad Request", "status": 400, "code": "invalid", "detail": "why" });
    check_value("Problem", &ok);
    for (field, wrong) in
        [("status", json!("400")), ("code", json!("new-code")), ("detail", Value::Null), ("more", json!(1))]
    {
        let mut problem = ok.clone();
        problem[field] = wrong;
        fits(&json!({ "$ref": "#/components/schemas/Problem" }), &problem).unwrap_err();
    }
    let mut short = ok;
    short.as_object_mut().unwrap().remove("detail");
    fits(&json!({ "$ref": "#/components/schemas/Problem" }), &short).unwrap_err();
    assert!(
        operation("/api/v1/details/totals?by=vm").unwrap()["get"]["summary"]
            .as_str()
            .unwrap()
            .contains("per run")
    );
    assert!(operation("/healthz").is_none());
}
