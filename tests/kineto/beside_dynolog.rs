//! A dynolog on the host, simulated by `dynolog.py`. The ranks are served by whichever of dynolog and the
//! collector owns the socket's name. The collector reports the owner, and takes the name when dynolog ends.

use std::{fs, path::PathBuf};

use serde_json::Value;
use xpu_tests::{
    built,
    program::{Program, until},
};

use super::Host;

struct Dynolog(Program);

impl Dynolog {
    fn start(host: &Host) -> Self {
        let mut command = host.place.command("python3");
        let dynolog = Program::start(command.arg(built::source("kineto/dynolog.py")).arg(host.folder()));
        until("dynolog", || dynolog.said().contains("ready").then_some(()));
        Self(dynolog)
    }

    /// dynolog serves the ranks: at its request each writes one trace, and no second one.
    fn traces(&mut self, host: &Host, ranks: &[Program]) {
        let each = |line: &str, said: &str| {
            ranks.iter().all(|rank| {
                said.lines().filter(|found| *found == format!("{line} {}", rank.pid())).count() == 1
            })
        };
        until("the ranks to register", || each("registered", &self.0.said()).then_some(()));
        self.0.write_line(host.place.path("by-dynolog.json").to_str().unwrap());
        for rank in ranks {
            let file = host.place.path(&format!("by-dynolog_{}.json", rank.pid()));
            until("its trace", || file.exists().then_some(()));
            let trace: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            assert_eq!(trace["trace_id"], "7");
        }
        assert!(each("configured", &self.0.wrote()), "{}", self.0.wrote());
    }
}

/// The line of `doctor` about the name.
fn doctor(host: &Host) -> (String, String) {
    let said = host.ask("doctor --json").stdout;
    let document: Value = serde_json::from_str(&said).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "kineto").unwrap();
    (check["state"].as_str().unwrap().to_owned(), check["found"].as_str().unwrap().to_owned())
}

fn is_refused(host: &Host, name: &str) {
    let done = host.ask(&format!("kineto --steps 2 -o {}", host.place.path(name).display()));
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("ranks 0-1: another daemon has "), "{done:?}");
}

fn is_traced(host: &Host, name: &str) {
    let done = host.ask(&format!("kineto --steps 2 -o {}", host.place.path(name).display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
}

fn served(host: &Host) -> usize {
    host.log().matches("Kineto is served at").count()
}

#[test]
fn an_earlier_dynolog_keeps_the_ranks_until_it_ends() {
    let host = Host::new();
    let mut dynolog = Dynolog::start(&host);
    let ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    is_refused(&host, "refused");
    dynolog.traces(&host, &ranks);
    assert_eq!(host.log().matches("belongs to another daemon").count(), 1, "said once: {}", host.log());
    let (state, found) = doctor(&host);
    assert!(state == "warn" && found.contains(&format!("process {}", dynolog.0.pid())), "{found}");

    // Like a killed process, it leaves its file behind.
    dynolog.0.signal("KILL");
    until("the collector to take the name", || (served(&host) == 1).then_some(()));
    is_traced(&host, "taken");
    let (state, found) = doctor(&host);
    let collector = host.collector().unwrap();
    assert!(state == "ok" && found.contains(&format!("process {collector}")), "{found}");
}

#[test]
fn a_later_dynolog_gets_the_ranks_and_keeps_its_file() {
    let host = Host::new();
    let ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    is_traced(&host, "before");
    let mut dynolog = Dynolog::start(&host);
    dynolog.traces(&host, &ranks);
    until("the collector to see it", || host.log().contains("taken by another daemon").then_some(()));
    is_refused(&host, "refused");
    assert_eq!(doctor(&host).0, "warn");

    let file: PathBuf = host.folder().join("dynolog");
    let collector = host.collector().unwrap();
    assert!(std::process::Command::new("kill").arg(collector.to_string()).status().unwrap().success());
    until("the collector's end", || host.collector().is_none().then_some(()));
    assert!(file.exists(), "it is dynolog's");
}
