//! Makes the schemas of the OpenAPI document as exact as the answers. The derived ones leave out types that no
//! handler names, do not say that answers have all of their fields, and repeat the items of a page in full.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::activity::Changed;
use crate::http::problem::ProblemBody;
use crate::http::words::{AttributedBy, GroupBy};

/// Where references to schemas begin.
const SCHEMAS: &str = "#/components/schemas/";

/// Completes the schemas of a document that has all of its paths.
pub(super) fn complete(document: &mut Value) {
    let requests = bodies_of_requests(document);
    let Some(schemas) = document.pointer_mut("/components/schemas") else { return };
    // Refusals, events and parameters, which no body or answer of a handler names.
    add::<ProblemBody>(schemas);
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

/// The schema of a page, which is generic, is derived with its items in full; a reference says the same.
fn refer_to_items(name: &str, schema: &mut Value) {
    if let Some((_, item)) = name.split_once('_')
        && let Some(items) = schema.pointer_mut("/properties/items/items")
    {
        *items = json!({ "$ref": format!("{SCHEMAS}{item}") });
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
    use super::super::document::document;
    use super::*;

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
