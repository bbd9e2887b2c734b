//! The API as an `OpenAPI` document, and as a page made from it. The document is not generated: a test
//! requests every path in it.

use std::fmt::Write as _;

use axum::{
    http::header,
    response::{Html, IntoResponse, Response},
};
use serde_json::Value;

const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// A page without scripts; its styles are within it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// The page has no scripts and no external resources.
pub(super) async fn page() -> Response {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(html())).into_response()
}

fn html() -> String {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap_or_default();
    let mut page = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><title>xpu-top</title><style>\
         body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#1b1f24;background:#fff}\
         h2{font:600 15px monospace;margin:1.6em 0 0}b{display:inline-block;min-width:3.5em;color:#0550ae}\
         pre{background:#f3f4f6;padding:.6em;overflow-x:auto}p{margin:.2em 0}code{background:#f3f4f6}\
         </style><h1>xpu-top</h1>",
    );
    let _ = write!(page, "<p>{}</p>", escaped(text(&document["info"]["description"])));
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let method = method.to_uppercase();
            let _ = write!(page, "<h2><b>{method}</b> {}</h2>", escaped(path));
            let _ = write!(page, "<p>{}</p>", escaped(text(&operation["summary"])));
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let (name, what) = (text(&parameter["name"]), text(&parameter["description"]));
                let _ = write!(page, "<p><code>{}</code> {}</p>", escaped(name), escaped(what));
            }
            let body = &operation["requestBody"]["content"]["application/json"];
            for (name, of) in body["schema"]["properties"].as_object().into_iter().flatten() {
                let (kind, what) = (text(&of["type"]), text(&of["description"]));
                let _ = write!(page, "<p><code>{}</code> ({kind}) {}</p>", escaped(name), escaped(what));
            }
            if let Some(example) = body.get("example") {
                let example = escaped(&example.to_string());
                let _ = write!(
                    page,
                    "<pre>curl -X {method} -H 'Content-Type: application/json' -d '{example}' http://HOST:18889{}</pre>",
                    escaped(path)
                );
            }
        }
    }
    page + "</html>\n"
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_path_and_needs_nothing_from_elsewhere() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let page = html();
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(page.contains(path), "{path}");
        }
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("https:"), "{page}");
    }
}
