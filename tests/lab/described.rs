//! Compares answers with `/openapi.json`.

use serde_json::Value;

/// Differences between a value and the schema of the answer with this status: fields that are not described,
/// and required fields that are missing.
pub fn differences(document: &Value, method: &str, path: &str, status: &str, answer: &Value) -> Vec<String> {
    let content = &document["paths"][path][method]["responses"][status]["content"]["application/json"];
    let mut found = Vec::new();
    let schema = &content["schema"];
    if schema.is_null() {
        found.push(format!("{method} {path} {status} is not described"));
    }
    compare(document, schema, answer, path, &mut found);
    found
}

fn compare(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let place = name.trim_start_matches('#');
        let of = document.pointer(place);
        if of.is_none() {
            found.push(format!("{at}: no {name}"));
        }
        return compare(document, of.unwrap_or(&Value::Null), value, at, found);
    }
    if let Some(items) = value.as_array() {
        for item in items {
            compare(document, &schema["items"], item, at, found);
        }
    }
    let Some((properties, fields)) = schema["properties"].as_object().zip(value.as_object()) else { return };
    for (name, field) in fields {
        match properties.get(name) {
            Some(of) => compare(document, of, field, &format!("{at}.{name}"), found),
            None => found.push(format!("{at}.{name} is not described")),
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    found.extend(
        required.filter(|name| !fields.contains_key(*name)).map(|name| format!("{at}.{name} is missing")),
    );
}

/// The fields that a description names: words in backquotes.
pub fn named(description: &str) -> impl Iterator<Item = &str> {
    let words = description.split('`').skip(1).step_by(2);
    words.filter(|word| word.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_'))
}
