//! A dynolog on the host, simulated by `dynolog.py`. It serves its own programs while the collector serves those
//! of `xpu-top run` in another folder. Where both want one name, whichever has it serves the ranks. The collector
//! reports the owner, and takes the name when dynolog ends.

use std::{fs, path::PathBuf, process};

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
        command.arg(built::source("kineto/dynolog.py"));
        match &host.name {
            Some(name) => command.arg(format!("@{name}")),
            None => command.arg(host.folder()),
        };
        let mut dynolog = Program::start(&mut command);
        until("dynolog", || {
            assert!(dynolog.is_running(), "another daemon has its name: {}", dynolog.said());
            dynolog.said().contains("ready").then_some(())
        });
        Self(dynolog)
    }

    /// dynolog serves the ranks: at its request each writes one trace, and no second one.
    fn traces(&mut self, host: &Host, ranks: &[Program]) {
        self.requests(host, ranks);
        self.has_traced(host, ranks);
    }

    fn requests(&mut self, host: &Host, ranks: &[Program]) {
        until("the ranks to register", || Self::says(&self.0.said(), "registered", ranks).then_some(()));
        self.0.write_line(host.place.path("by-dynolog.json").to_str().unwrap());
    }

    /// Whether it has printed this line once for each of the ranks.
    fn says(said: &str, line: &str, ranks: &[Program]) -> bool {
        ranks
            .iter()
            .all(|rank| said.lines().filter(|found| *found == format!("{line} {}", rank.pid())).count() == 1)
    }

    fn has_traced(&self, host: &Host, ranks: &[Program]) {
        for rank in ranks {
            let file = host.place.path(&format!("by-dynolog_{}.json", rank.pid()));
            until("its trace", || file.exists().then_some(()));
            let trace: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            assert_eq!(trace["trace_id"], "7");
        }
        assert!(Self::says(&self.0.wrote(), "configured", ranks), "{}", self.0.wrote());
    }
}

/// The line of `doctor` about the name.
pub(super) fn doctor(host: &Host) -> (String, String) {
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

/// A collector whose abstract shared name is not dynolog's real one.
fn host_of(test: &str) -> Host {
    Host::with(Some(format!("xpu-top-beside-{test}-{}", process::id())))
}

/// Starts two ranks of a job that dynolog serves: `xpu-top run` leaves them alone.
fn job_of_dynolog(host: &Host) -> [Program; 2] {
    let meet = host.place.path("meet-of-dynolog");
    fs::create_dir(&meet).unwrap();
    let set = [("KINETO_USE_DAEMON", "1"), ("RENDEZVOUS", meet.to_str().unwrap())];
    let ranks = [0, 1].map(|rank| host.run_of("theirs", rank, &set, &[], "kineto = Kineto()\ntrain()"));
    host.wait_for_steps_of("theirs");
    ranks
}

/// Both are asked for a trace before either has given one.
fn both_trace(host: &Host, dynolog: &mut Dynolog, theirs: &[Program], ours: &[Program]) {
    let line = format!("kineto --job train --steps 2 --start-in 5s -o {}", host.out().display());
    let asking = Program::start(&mut host.asking(&line));
    until("the collector's request", || asking.said().contains("2 of 2 ranks will trace").then_some(()));
    dynolog.requests(host, theirs);
    let done = asking.end();
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    dynolog.has_traced(host, theirs);
    let manifest = host.manifest();
    for (rank, one) in manifest["ranks"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&one["status"], &one["pid"]), (&"written".into(), &ours[rank].pid().into()));
        assert_ne!(host.trace(rank)["trace_id"], "7", "it is dynolog's request");
    }
}

#[test]
fn dynolog_and_the_collector_trace_their_own_ranks_at_once() {
    let host = host_of("both");
    let mut dynolog = Dynolog::start(&host);
    let theirs = job_of_dynolog(&host);
    let ours = host.job(["kineto = Kineto()\ntrain()"; 2]);
    both_trace(&host, &mut dynolog, &theirs, &ours);
    let done = host.ask(&format!("kineto --job theirs --steps 2 -o {}", host.place.path("no").display()));
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let name = host.name.as_deref().unwrap();
    assert!(done.stderr.contains(&format!("another daemon has @{name} on its host")), "{done:?}");
    let (state, found) = doctor(&host);
    assert!(state == "ok" && found.contains(&format!("process {} ", dynolog.0.pid())), "{found}");
}

/// The collector's own jobs do not need the name. dynolog tries to bind it once, at its start.
#[test]
fn a_dynolog_that_starts_later_or_again_gets_the_name() {
    let host = host_of("later");
    let ours = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let (state, found) = doctor(&host);
    assert!(state == "ok" && found.contains("is free"), "{found}");
    let first = Dynolog::start(&host);
    first.0.signal("KILL");
    first.0.end();
    let mut dynolog = Dynolog::start(&host);
    let theirs = job_of_dynolog(&host);
    both_trace(&host, &mut dynolog, &theirs, &ours);
}

/// Without a dynolog, the collector takes the name for ranks that ask there, and gives it up when they end.
#[test]
fn a_rank_that_asks_at_the_shared_name_is_served_there_and_a_later_dynolog_gets_it() {
    let host = host_of("needed");
    let _ours = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let name = host.name.clone().unwrap();
    assert!(!host.log().contains(&format!("served at @{name}")), "{}", host.log());
    let theirs = job_of_dynolog(&host);
    let done = host.ask(&format!("kineto --job theirs --steps 2 -o {}", host.place.path("theirs").display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let (state, found) = doctor(&host);
    assert!(state == "ok" && found.contains("a dynolog that starts before then"), "{found}");
    drop(theirs);
    until("the name to be free", || host.log().contains(&format!("@{name} is free again")).then_some(()));
    Dynolog::start(&host);
}
