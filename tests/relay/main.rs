//! Hosts behind relays: a viewer sees the same as with a connection to each host.

mod racks;

use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;
use xpu_tests::{
    built,
    crowd::{self, Crowd},
    host::{self, Host, TRAINS},
    place::Place,
    program::{Outcome, Program, run, until},
    pty::Terminal,
    relay,
};

/// A loopback address of this process.
fn address(last: u8) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{}", 200 + last, low.max(1))
}

fn watched(place: &Place, hosts: &str) -> std::process::Command {
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME").args(["--hosts", hosts]);
    command
}

#[test]
fn many_hosts_are_watched_through_one_address() {
    let (place, crowd) = (Place::new(), Crowd::new(12, 8));
    crowd.start(0..12);
    let near = address(0);
    let _relay = relay::start(&place, &near, &crowd.list(), crowd::BASE.0, None);
    // A relay in front of a relay.
    let far = address(1);
    let _second = relay::start(&place, &far, &near, relay::BASE, None);
    let mut terminal = Terminal::start(watched(&place, &format!("{far}:{}", relay::BASE)), 132, 40);
    terminal.shows("LIVE").shows("96 of 96").hides("hosts down");
    assert_eq!(crowd.tally().refused.load(Relaxed), 0);
    assert_eq!(crowd.tally().details.load(Relaxed), 0, "details are of whom one looks at alone");
    terminal.keys("jjj\r");
    until("the rank's details to be sent", || (crowd.tally().details.load(Relaxed) > 0).then_some(()));
    terminal.keys("\x1b");
    crowd.stop(4..7);
    terminal.shows("3 hosts down").shows("PARTIAL");
    crowd.start(4..7);
    terminal.hides("hosts down").shows("LIVE").shows("96 of 96").keys("q");
    assert!(terminal.end().success());
}

/// A real collector with a key, behind a relay with the same key.
struct Behind {
    host: Host,
    at: String,
    _relay: Program,
    _ranks: [Program; 2],
}

impl Behind {
    fn new() -> Self {
        let host = Host::new();
        let ranks = [0, 1].map(|rank| host.rank(rank, TRAINS));
        let base = host::BASE.parse().expect("a port");
        let relay = relay::start(&host.place, &host.address, &host.address, base, Some(&host.key()));
        let at = format!("{}:{}", host.address, relay::BASE);
        let new = Self { host, at, _relay: relay, _ranks: ranks };
        until("both ranks to train", || (new.status()["steps"]["min"].as_u64()? >= 3).then_some(()));
        new
    }

    fn ask(&self, line: &str) -> Outcome {
        let mut command = self.host.xpu_top(line);
        run(command.args(["--hosts", &self.at, "--key-file"]).arg(self.host.key()))
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ask("status --json --now").stdout).expect("a document")
    }
}

#[test]
fn requests_through_a_relay_are_answered_by_the_ranks() {
    let behind = Behind::new();
    let status = behind.status();
    assert_eq!(status["coverage"]["ranks_seen"], 2, "{status:#}");
    assert_eq!(status["coverage"]["hosts_unreachable"], serde_json::json!([]));

    let file = behind.host.place.path("c.bin");
    let done = behind.ask(&format!("capture --steps 2 --wait 25 -o {}", file.display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}");

    let stacks = behind.ask("stacks --json");
    let stacks: Value = serde_json::from_str(&stacks.stdout).unwrap_or_else(|_| panic!("{stacks:?}"));
    assert!(
        stacks.to_string().contains("communicator") || stacks.to_string().contains("<module>"),
        "{stacks:#}"
    );

    let off = behind.ask("ctl --hook off --wait 25");
    assert_eq!(off.status.code(), Some(0), "{off:?}");
    assert_eq!(behind.status()["coverage"]["ranks_off"], 2);
}

#[test]
fn a_relay_with_a_key_sends_nothing_to_clients_without_it() {
    let behind = Behind::new();
    let mut command = behind.host.xpu_top("status --json --now");
    let refused = run(command.args(["--hosts", &behind.at]));
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let refused: Value = serde_json::from_str(&refused.stdout).expect("a document");
    assert_eq!(refused["coverage"]["ranks_seen"], 0);
    let why = refused["coverage"]["hosts_unreachable"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains("its key differs"), "{why}");
}

#[test]
fn a_relay_requires_a_list_of_hosts() {
    let place = Place::new();
    for (line, wanted) in [
        ("--relay", "--job-hosts"),
        ("--relay --hosts node[3-1]", "is descending"),
        ("--relay --job-hosts /nowhere", "cannot read /nowhere"),
        ("--hosts a", "--relay"),
        ("--relay --hosts a --bind 10.1.2.3 --no-key", "xpu-top keygen"),
    ] {
        let mut command = place.command(built::artifact("xpu-collector"));
        let refused = run(command.env("HOME", place.path("")).args(line.split_whitespace()));
        assert!(!refused.status.success() && refused.stderr.contains(wanted), "{line}: {refused:?}");
    }
}
