//! Three racks with four hosts each, in separate network namespaces, with a relay per rack: cut off, slow,
//! restarted.
//!
//! ```text
//! login ──10.78.R.0/30── rack R (relay, bridge) ──10.77.R.0/24── its hosts
//! ```

use std::process::{Command, id};

use serde_json::Value;
use xpu_tests::{
    built,
    host::{BASE as HOSTS_BASE, TRAINS},
    place::Place,
    program::{Program, run, until},
    pty::Terminal,
    relay,
    skip::{Beyond, skipped_beyond_ci},
};

const RACKS: usize = 3;
const HOSTS: usize = 4;

/// Network namespaces, removed when dropped.
struct Net {
    prefix: String,
}

impl Net {
    /// `None` if this user may not make network namespaces.
    fn new() -> Option<Self> {
        let new = Self { prefix: format!("xt{}", id()) };
        if !ip(&["netns", "add", &new.login()]) {
            return None;
        }
        for rack in 0..RACKS {
            let at = new.rack(rack);
            Net::add(&at);
            Net::does(&at, "link add br0 type bridge");
            Net::does(&at, &format!("addr add 10.77.{rack}.1/24 dev br0"));
            Net::does(&at, "link set br0 up");
            Net::join(&new.login(), &format!("rack{rack}"), &at, "wan");
            Net::does(&at, &format!("addr add 10.78.{rack}.1/30 dev wan"));
            Net::does(&new.login(), &format!("addr add 10.78.{rack}.2/30 dev rack{rack}"));
            for host in 0..HOSTS {
                let there = new.host(rack, host);
                Net::add(&there);
                Net::join(&at, &format!("lan{host}"), &there, "eth");
                Net::does(&at, &format!("link set lan{host} master br0"));
                Net::does(&there, &format!("addr add {}/24 dev eth", address(rack, host)));
            }
        }
        Some(new)
    }

    fn login(&self) -> String {
        format!("{}l", self.prefix)
    }

    fn rack(&self, rack: usize) -> String {
        format!("{}r{rack}", self.prefix)
    }

    fn host(&self, rack: usize, host: usize) -> String {
        format!("{}r{rack}h{host}", self.prefix)
    }

    fn add(name: &str) {
        assert!(ip(&["netns", "add", name]), "a namespace");
        Net::does(name, "link set lo up");
    }

    fn does(name: &str, line: &str) {
        let words: Vec<_> = ["-n", name].into_iter().chain(line.split(' ')).collect();
        assert!(ip(&words), "ip {words:?}");
    }

    fn join(one: &str, as_one: &str, other: &str, as_other: &str) {
        Net::does(one, &format!("link add {as_one} type veth peer name {as_other} netns {other}"));
        Net::does(one, &format!("link set {as_one} up"));
        Net::does(other, &format!("link set {as_other} up"));
    }

    /// The command, run in that namespace.
    fn inside(name: &str, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", name]).arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(variable, value),
                None => inside.env_remove(variable),
            };
        }
        inside
    }

    /// Limits the rack's traffic to the login host to this many kilobits a second, or removes the limit.
    fn limit(&self, rack: usize, kilobits: Option<u32>) {
        let at = self.rack(rack);
        let words = match kilobits {
            Some(rate) => format!("qdisc add dev wan root tbf rate {rate}kbit burst 2kb latency 2s"),
            None => "qdisc del dev wan root".to_owned(),
        };
        let words: Vec<_> = ["-n", &at].into_iter().chain(words.split(' ')).collect();
        assert!(
            Command::new("tc").args(&words).status().is_ok_and(|status| status.success()),
            "tc {words:?}"
        );
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for rack in 0..RACKS {
            for host in 0..HOSTS {
                ip(&["netns", "del", &self.host(rack, host)]);
            }
            ip(&["netns", "del", &self.rack(rack)]);
        }
        ip(&["netns", "del", &self.login()]);
    }
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).output().is_ok_and(|done| done.status.success())
}

fn address(rack: usize, host: usize) -> String {
    format!("10.77.{rack}.{}", 10 + host)
}

struct Cluster {
    // Dropped before the net.
    collectors: Vec<Program>,
    ranks: Vec<Program>,
    relays: Vec<Option<Program>>,
    place: Place,
    net: Net,
}

impl Cluster {
    fn new(net: Net) -> Self {
        let place = Place::new();
        let mut keygen = place.command(built::artifact("xpu-top"));
        assert!(run(keygen.args(["keygen", "-o"]).arg(place.path("key"))).status.success());
        let mut new = Self { collectors: Vec::new(), ranks: Vec::new(), relays: Vec::new(), place, net };
        for (rack, host) in (0..RACKS).flat_map(|rack| (0..HOSTS).map(move |host| (rack, host))) {
            new.start_host(rack, host);
        }
        for rack in 0..RACKS {
            new.relays.push(None);
            new.start_relay(rack);
        }
        new
    }

    fn start_host(&mut self, rack: usize, host: usize) {
        let run = self.place.path("run").join(format!("{rack}-{host}"));
        let mut collector = self.place.command(built::artifact("xpu-collector"));
        collector.env("XPU_TOP_RUNTIME_DIR", &run);
        collector.args(["--base-port", HOSTS_BASE, "--bind", &address(rack, host)]);
        collector.args(["--host-name", &format!("r{rack}h{host}"), "--key-file"]).arg(self.place.path("key"));
        self.collectors.push(Program::start(&mut Net::inside(&self.net.host(rack, host), &collector)));
        let socket = run.join(format!("collector-{HOSTS_BASE}.sock"));
        until("the collector to listen", || socket.exists().then_some(()));
        let mut rank = self.place.script(&format!("from gpu import *\n{TRAINS}"));
        rank.env("XPU_TOP_SOCKET", socket).env("XPU_TOP_JOB", "train");
        rank.env("RENDEZVOUS", self.place.path("")).env("SIMGPU_DEVICES", (RACKS * HOSTS).to_string());
        rank.env("RANK", (rack * HOSTS + host).to_string()).env("WORLD_SIZE", (RACKS * HOSTS).to_string());
        self.ranks.push(Program::start(&mut rank));
    }

    fn start_relay(&mut self, rack: usize) {
        let hosts = format!("10.77.{rack}.[10-{}]", 10 + HOSTS - 1);
        let base = HOSTS_BASE.parse().expect("a port");
        let key = self.place.path("key");
        let relay = relay::command(&self.place, &format!("10.78.{rack}.1"), &hosts, base, Some(&key));
        self.relays[rack] = Some(Program::start(&mut Net::inside(&self.net.rack(rack), &relay)));
    }

    fn kill_relay(&mut self, rack: usize) {
        if let Some(relay) = self.relays[rack].take() {
            relay.signal("KILL");
            relay.end();
        }
    }

    /// `xpu-top` on the login host, connected to all relays.
    fn xpu_top(&self, line: &str) -> Command {
        let relays: Vec<_> = (0..RACKS).map(|rack| format!("10.78.{rack}.1:{}", relay::BASE)).collect();
        let mut command = self.place.command(built::artifact("xpu-top"));
        command.env("HOME", self.place.path("")).env_remove("XDG_CONFIG_HOME");
        command.args(line.split_whitespace()).args(["--hosts", &relays.join(","), "--key-file"]);
        command.arg(self.place.path("key"));
        Net::inside(&self.net.login(), &command)
    }

    fn status(&self) -> Value {
        let done = run(&mut self.xpu_top("status --json --now"));
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    }

    /// Waits for this number of visible ranks and of unreachable hosts.
    fn sees(&self, what: &str, ranks: u64, unreachable: usize) -> Value {
        until(what, || {
            let status = self.status();
            let down = status["coverage"]["hosts_unreachable"].as_array()?.len();
            (status["coverage"]["ranks_seen"] == ranks && down == unreachable).then_some(status)
        })
    }
}

#[test]
fn an_unreachable_slow_or_restarted_rack_does_not_affect_the_others() {
    let Some(net) = Net::new() else {
        skipped_beyond_ci(Beyond::NetworkNamespaces, "root and iproute2 are needed (`ip netns add`)");
        return;
    };
    let mut cluster = Cluster::new(net);
    cluster.sees("all twelve", 12, 0);
    let mut terminal = Terminal::start(cluster.xpu_top(""), 132, 40);
    terminal.shows("12 of 12").shows("LIVE").hides("hosts down").hides("host down");

    // One host of a rack is cut off, and its relay reports it.
    let (login, racks) = (cluster.net.login(), [0, 1, 2].map(|rack| cluster.net.rack(rack)));
    Net::does(&racks[2], "link set lan3 down");
    terminal.shows("1 host down").shows("PARTIAL");
    let status = cluster.sees("eleven", 11, 1);
    let gone = &status["coverage"]["hosts_unreachable"][0];
    assert_eq!(gone["host"], format!("{}:{HOSTS_BASE}", address(2, 3)), "{status:#}");
    Net::does(&racks[2], "link set lan3 up");
    terminal.hides("host down").shows("LIVE");

    // A whole rack is cut off: its relay is unreachable, so its hosts are unknown.
    Net::does(&login, "link set rack1 down");
    terminal.shows("5 hosts down").shows("PARTIAL");
    let before = cluster.sees("eight", 8, 1)["steps"]["max"].clone();
    until("the others to go on", || {
        (cluster.status()["steps"]["max"].as_u64() > before.as_u64()).then_some(())
    });
    Net::does(&login, "link set rack1 up");
    terminal.hides("hosts down").shows("LIVE");

    // The rack's connection carries a tenth of its data.
    cluster.net.limit(0, Some(16));
    until("the others to be heard all the same", || {
        let ranks = cluster.status()["ranks"].clone();
        let heard =
            |rank: &Value| rank["rank"].as_u64().is_some_and(|rank| rank >= 4) && rank["state"] == "ok";
        (ranks.as_array()?.iter().filter(|rank| heard(rank)).count() == 8).then_some(())
    });
    cluster.net.limit(0, None);
    terminal.hides("hosts down").shows("LIVE").shows("12 of 12");

    cluster.kill_relay(2);
    terminal.shows("5 hosts down");
    cluster.start_relay(2);
    terminal.hides("hosts down").shows("LIVE").shows("12 of 12").keys("q");
    assert!(terminal.end().success());
    cluster.sees("all twelve again", 12, 0);
}
