//! NCCL's profiler plugin under `xpu-top run`. NCCL loads the hook, or the user's plugin if there is one,
//! which still gets all events. In both cases each operation counts once.

use std::fs;

use serde_json::Value;
use xpu_tests::{
    built,
    host::{BASE, Host},
    program::{Program, until},
};

const REDUCES: &str = "
from gpu import *
Path(os.environ['RENDEZVOUS'], 'plugin').write_text(os.environ['NCCL_PROFILER_PLUGIN'])
comm = communicator()
ok(process.xpu_top_set_plugin(2))
for _ in range(40): ok(all_reduce(comm, 1 << 20))
sync()
step(1)
hold()
ok(process.ncclCommDestroy(comm))";

/// The plugin that NCCL loads, and the NCCL calls that the collector counts.
fn reduces(own: Option<&str>) -> (Host, String, Value) {
    let host = Host::new();
    let place = |name: &str| host.place.path(name);
    let mut command =
        host.xpu_top(&format!("run --no-collector --no-kineto --base-port {BASE} --job train -- python3 -c"));
    command
        .arg(REDUCES)
        .env("PYTHONPATH", built::source("hook"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RENDEZVOUS", place(""))
        .env("SIMGPU_NCCL_VERSION", "22809")
        .envs([("RANK", "0"), ("WORLD_SIZE", "1")])
        .env("USER_PLUGIN_LOG", place("log"))
        .env("USER_PLUGIN_MASK", "1798");
    if let Some(own) = own {
        let flags = ["-shared", "-fPIC", "-DVERSION=5"];
        built::compile("hook/user_plugin.c", &place(own), &flags);
        command.env("NCCL_PROFILER_PLUGIN", place(own));
    }
    let rank = Program::start(&mut command);
    let calls = until("the calls to be known", || {
        let said = host.ask("status --json --now --rank 0").stdout;
        let status: Value = serde_json::from_str(&said).ok()?;
        let calls = status["ranks"][0]["nccl_calls"].clone();
        (status["ranks"][0]["step"] == 1 && calls.is_object()).then_some(calls)
    });
    let outcome = rank.end();
    assert!(outcome.status.success(), "{outcome:?}");
    let plugin = fs::read_to_string(place("plugin")).expect("it wrote");
    (host, plugin, calls)
}

#[test]
fn run_sets_the_hook_as_nccls_plugin_if_none_is_set() {
    let (_host, plugin, calls) = reduces(None);
    assert!(plugin.ends_with("libxpu_hook.so"), "{plugin}");
    assert_eq!((&calls["counted"], &calls["uncounted"]), (&40.into(), &0.into()), "{calls}");
}

#[test]
fn a_users_plugin_stays_active_and_calls_are_counted_once() {
    let (host, plugin, calls) = reduces(Some("libuser.so"));
    assert_eq!(plugin, host.place.path("libuser.so").to_str().expect("text"));
    assert_eq!((&calls["counted"], &calls["uncounted"]), (&40.into(), &0.into()), "{calls}");
    let heard = fs::read_to_string(host.place.path("log.0")).expect("it wrote");
    let starts = heard.lines().filter(|line| line.starts_with("start")).count();
    assert!(starts >= 40, "{heard}");
}
