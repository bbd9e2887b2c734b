//! Traces through a relay: one request reaches the ranks of all hosts, so they agree on the steps.

use std::process;

use serde_json::Value;
use xpu_tests::{
    program::{run, until},
    relay,
};

use super::Host;

/// A loopback address of this process.
fn address() -> String {
    let [_, _, high, low] = process::id().to_be_bytes();
    format!("127.198.{high}.{}", low.max(1))
}

#[test]
fn a_relay_passes_on_requests_for_traces_and_their_parts() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let address = address();
    let _relay = relay::start(&host.place, &address, "127.0.0.1", host.base, Some(&host.key()));
    let hosts = format!("{address}:{}", relay::BASE);
    until("the ranks behind the relay", || {
        let said = run(&mut host.asking_at(&hosts, "status --json --now")).stdout;
        let status: Value = serde_json::from_str(&said).ok()?;
        (status["coverage"]["ranks_seen"] == 2).then_some(())
    });
    let line = format!("kineto --steps 2 -o {}", host.out().display());
    let done = run(&mut host.asking_at(&hosts, &line));
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let manifest = host.manifest();
    assert_eq!(manifest["same_steps"], true, "{manifest:#}");
    for (rank, one) in manifest["ranks"].as_array().unwrap().iter().enumerate() {
        assert!(one["uncompressed_bytes"].as_u64() > Some(1 << 21), "of several parts: {one}");
        assert_eq!(host.trace(rank)["trace_id"], manifest["trace_id"]);
    }

    // The same over HTTP.
    let request = |method: &str, path: &str, body: &str| {
        let (status, answer) = host.http((&address, relay::BASE), method, path, body);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!((200..300).contains(&status), "{path}: {status}: {answer:#}");
        answer
    };
    request("POST", "/api/v1/kineto", "{\"steps\": 2}");
    let done = until("the traces", || {
        let reported = request("GET", "/api/v1/kineto/1", "");
        (reported["state"] != "recording").then_some(reported)
    });
    assert_eq!(done["state"], "done", "{done:#}");
    assert_eq!(done["files"].as_array().map(Vec::len), Some(3), "{done:#}");
    let manifest = request("GET", "/api/v1/kineto/1/manifest.json", "");
    assert_eq!(
        (&manifest["same_steps"], manifest["ranks"].as_array().map(Vec::len)),
        (&true.into(), Some(2))
    );
}
