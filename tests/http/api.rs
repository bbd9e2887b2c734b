//! `/api/v1` for a job that trains.

use std::fs;

use serde_json::{Value, json};
use xpu_tests::{
    built, described,
    program::{run, until},
};

use crate::{client::Client, job::Demo};

#[test]
fn a_job_is_read_and_queried_over_http() {
    let demo = Demo::start("--ranks 2 --nodes 1", &[]);
    let client = demo.client(1);
    every_path_of_the_document_is_there(&client);
    answers_have_the_fields_that_the_document_names(&client);
    what_is_known(&demo, &client);
    bad_requests_reach_no_rank(&client);
    stacks(&client);
    hook(&demo, &client);
    capture(&demo, &client);
}

fn every_path_of_the_document_is_there(client: &Client) {
    let document = client.get("/openapi.json").json();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        if path.starts_with("/HostingService") {
            assert_eq!(client.get(path).status, 404, "only with --compat");
            continue;
        }
        // The stream of events has its own test, because it does not end soon.
        let methods_asked: &[&str] = if path == "/api/v1/events" {
            &["post", "put", "delete"]
        } else {
            &["get", "post", "put", "delete"]
        };
        for method in methods_asked {
            let answer = client.ask(&method.to_uppercase(), path, Some("no JSON"));
            let is_said = methods.get(*method).is_some();
            assert_eq!(is_said, answer.status != 405, "{method} {path}: {answer:?}");
            assert!(
                !is_said
                    || answer.body.is_empty()
                    || ["/", "/api"].contains(&path.as_str())
                    || !answer.body.contains("not found"),
                "{method} {path}: {answer:?}"
            );
        }
    }
    assert!(client.get("/api").body.contains("/api/v1/capture"));
}

fn answers_have_the_fields_that_the_document_names(client: &Client) {
    let document = client.get("/openapi.json").json();
    let mut compared = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let of = &methods["get"]["responses"]["200"];
        let is_json = !of["content"]["application/json"].is_null();
        // Paths with parameters, those of another server, and those of a recording are left out.
        if !is_json
            || path.contains('{')
            || ["/HostingService", "/api/v1/replay"].iter().any(|of| path.starts_with(of))
        {
            continue;
        }
        let answer = client.get(path).json();
        for name in described::named(of["description"].as_str().expect("a description")) {
            assert!(answer.get(name).is_some(), "{path}: no {name} in {answer:#}");
            compared += 1;
        }
        let differences = described::differences(&document, "get", path, "200", &answer);
        assert_eq!(differences, [""; 0], "{path}");
    }
    assert!(compared >= 6, "{compared} fields were compared");
}

fn what_is_known(demo: &Demo, client: &Client) {
    let jobs = client.get("/api/v1/jobs").json();
    assert_eq!((&jobs["jobs"][0]["job"], &jobs["jobs"][0]["world_size"]), (&json!("demo"), &json!(2)));
    let here = client.get("/api/v1/jobs/demo").json();
    let there = demo.status().expect("a document");
    let names = |value: &Value| value.as_object().map(|of| of.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(&here), names(&there));
    assert_eq!(here["ranks"][1]["pid"], there["ranks"][1]["pid"]);
    let ranks = client.get("/api/v1/ranks?job=demo").json();
    assert!(
        ranks["ranks"].as_array().is_some_and(|ranks| ranks.len() == 2 && ranks[0].get("gemms").is_none())
    );
    let rank = client.get("/api/v1/ranks?rank=1").json();
    assert!(rank["ranks"][0]["gemms"].as_array().is_some_and(|shapes| !shapes.is_empty()), "{rank:#}");
    assert_eq!(client.get("/api/v1/findings").json()["findings"], json!([]));
}

fn bad_requests_reach_no_rank(client: &Client) {
    let (hook, stacks, capture) = ("/api/v1/hook", "/api/v1/stacks", "/api/v1/capture");
    for (path, body, status) in [
        (hook, json!({}), 422),
        (hook, json!({ "on": "yes" }), 422),
        (hook, json!({ "on": false, "job": "another" }), 404),
        (hook, json!({ "on": false, "jbo": "demo" }), 422),
        (stacks, json!({ "ranks": [77] }), 404),
        (stacks, json!({ "ranks": vec![0; 5000] }), 400),
        (capture, json!({ "steps": 0 }), 400),
        (capture, json!({ "steps": 100_000 }), 400),
        (capture, json!({}), 400),
        (capture, json!({ "steps": 1, "for_ms": 500 }), 400),
        (capture, json!({ "for_ms": 0 }), 400),
        (capture, json!({ "for_ms": 500, "before": 3 }), 400),
        (capture, json!({ "steps": 1, "path": "/etc/passwd" }), 422),
        (capture, json!({ "steps": 1, "ranks": [9] }), 404),
    ] {
        let answer = client.post(path, &body);
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert!(answer.json()["next"].as_str().is_some_and(|next| !next.is_empty()), "{answer:?}");
    }
    for (path, status) in [
        ("/api/v1/jobs/another", 404),
        ("/api/v1/ranks?rank=77", 404),
        ("/api/v1/ranks?rank=one", 400),
        ("/api/v1/capture/1/../../../etc/passwd", 404),
        ("/api/v1/capture/%2e%2e", 404),
        ("/api/v1/capture/7/file", 404),
    ] {
        let answer = client.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.json()["next"].is_string(), "{answer:?}");
    }
    let plain = client.send(&format!(
        "POST {hook} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{{\"on\":false}}"
    ));
    assert_eq!(plain.status, 415, "what a web page can send: {plain:?}");
    let rebound = client.send("GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_eq!(rebound.status, 403, "{rebound:?}");
    let two = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let two = client.send(two);
    assert!(two.status == 400 && two.body.contains("more than one Host header"), "{two:?}");
    let ranks = client.get("/api/v1/ranks").json();
    assert!(ranks["ranks"].as_array().is_some_and(|ranks| ranks.iter().all(|rank| rank["enabled"] == true)));
    assert_eq!(client.get(capture).json()["captures"], json!([]));
}

fn stacks(client: &Client) {
    let read = client.post("/api/v1/stacks", &json!({ "ranks": [1] })).json();
    assert_eq!((&read["ranks"][0]["rank"], &read["no_answer"]), (&json!(1), &json!([])), "{read:#}");
    assert!(read["folded"].as_str().is_some_and(|folded| folded.contains('@')), "{read:#}");
}

fn hook(demo: &Demo, client: &Client) {
    for on in [false, true] {
        let reported = client.post("/api/v1/hook", &json!({ "job": "demo", "on": on })).json();
        assert_eq!(reported, json!({ "job": "demo", "on": on, "ranks": [0, 1] }));
        until("the hooks to follow", || {
            let status = demo.status()?;
            status["ranks"].as_array()?.iter().all(|rank| rank["enabled"] == on).then_some(())
        });
    }
}

fn capture(demo: &Demo, client: &Client) {
    let report = captured(demo, client, &json!({ "steps": 2, "light": true }));
    let page = client.get("/api/v1/capture/1/report");
    assert!(page.status == 200 && page.head.contains("text/plain"), "{page:?}");
    assert!(page.body.contains("step") && page.body.contains("GEMM"), "{page:?}");
    assert_eq!(client.get("/api/v1/capture/99/report").status, 404);
    let functions = client.get("/api/v1/capture/1/functions").json();
    assert_eq!(functions, report["behaviour"], "as the command prints them");
    assert!(functions["functions"][0]["name"].is_string(), "{functions:#}");
    let document = client.get("/openapi.json").json();
    let path = "/api/v1/capture/{id}/functions";
    assert_eq!(described::differences(&document, "get", path, "200", &functions), [""; 0]);
    assert_eq!(client.get("/api/v1/capture/99/functions").status, 404);
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(2), "{report:#}");
    assert_eq!(report["ranks"].as_array().map(Vec::len), Some(2));
    let of_time = captured(demo, client, &json!({ "for_ms": 200, "light": true, "no_watch": true }));
    assert_eq!(of_time["window"]["length_ns"], 200_000_000, "{of_time:#}");
    assert_eq!(of_time["ranks"].as_array().map(Vec::len), Some(2));
}

/// Requests a capture, and returns its report.
fn captured(demo: &Demo, client: &Client, wanted: &Value) -> Value {
    let document = client.get("/openapi.json").json();
    let begun = client.post("/api/v1/capture", wanted);
    let is_described = |method, path, status, answer: &Value| {
        let differences = described::differences(&document, method, path, status, answer);
        assert_eq!(differences, [""; 0], "{answer:#}");
    };
    is_described("post", "/api/v1/capture", "202", &begun.json());
    assert_eq!((begun.status, &begun.json()["state"]), (202, &json!("recording")), "{begun:?}");
    for (what, value) in wanted.as_object().expect("an object") {
        let said = &begun.json()[what];
        assert!(said.is_null() || said == value, "{what}: {begun:?}");
    }
    let busy = client.post("/api/v1/capture", &json!({ "steps": 2 }));
    assert_eq!(busy.status, 409, "{busy:?}");
    let id = begun.json()["id"].clone();
    let done = until("the capture", || {
        let reported = client.get(&format!("/api/v1/capture/{id}")).json();
        (reported["state"] != "recording").then_some(reported)
    });
    assert_eq!(done["state"], "done", "{done:#}");
    is_described("get", "/api/v1/capture/{id}", "200", &done);
    is_described("get", "/api/v1/capture", "200", &client.get("/api/v1/capture").json());
    // Only a capture of steps watches the job. The text must not name a key, because an HTTP client has no
    // keyboard.
    let said = done["said"].to_string();
    assert_eq!(said.contains("some seconds longer"), wanted["no_watch"].is_null(), "{said}");
    assert!(!said.contains("Ctrl-C"), "{said}");
    let file = demo.place.path("fetched.xpu");
    fs::write(&file, fetch(client, done["file"].as_str().expect("a path"))).expect("a file");
    let mut report = demo.place.command(built::artifact("xpu-top"));
    serde_json::from_str(&run(report.args(["report", "--json"]).arg(&file)).stdout).expect("a report")
}

/// The body in bytes, because it is not text.
fn fetch(client: &Client, path: &str) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    let mut bytes = until("the server to take a request", || {
        let mut stream = client.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it is sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        Some(bytes).filter(|bytes| !bytes.starts_with(b"HTTP/1.1 429"))
    });
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    assert!(bytes.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&bytes[..end]));
    bytes.split_off(end)
}
