//! A process that takes the names of daemons, answers with garbage, and floods the collector.

use std::{fs, os::unix::fs::DirBuilderExt as _, path::Path, process};

use xpu_tests::{
    built,
    program::{Program, until},
};

use super::{Host, beside_dynolog::doctor};

fn start(host: &Host, target: &Path, names: &[&str]) -> Program {
    let mut command = host.place.command("python3");
    command.arg(built::source("kineto/hostile_daemon.py")).arg(target).args(names);
    let mut daemon = Program::start(&mut command);
    until("the daemon", || {
        assert!(daemon.is_running(), "{}", daemon.said());
        daemon.said().contains("ready").then_some(())
    });
    daemon
}

#[test]
fn a_daemon_that_squats_floods_and_answers_garbage_harms_nobody() {
    let name = format!("xpu-top-squatted-{}", process::id());
    let host = Host::with(Some(name.clone()));
    let folder = host.place.path("run").join(format!("kineto-{}", host.base));
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let own = folder.join("dynolog");
    let shared = format!("@{name}");
    let daemon = start(&host, &own, &[own.to_str().unwrap(), &shared]);

    // It has both names. The job starts and trains, and gets garbage.
    let ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    until("the ranks to be answered", || (daemon.said().matches("answered").count() > 5).then_some(()));
    let refused = host.kineto("--steps 2");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let why = format!("ranks 0-1: another process has {} on its host: end it", own.display());
    assert!(refused.stderr.contains(&why), "{refused:?}");
    let said = format!("{} belongs to another process", own.display());
    assert_eq!(host.log().matches(&said).count(), 1, "{}", host.log());
    let (state, found) = doctor(&host);
    assert!(state == "warn" && found.contains(&format!("process {} ", daemon.pid())), "{found}");
    daemon.signal("KILL");
    daemon.end();
    until("the collector to serve", || {
        host.log().contains(&format!("Kineto is served at {}", own.display())).then_some(())
    });

    // It has the shared name, and floods the collector's own socket.
    let collector = host.collector().unwrap();
    let daemon = start(&host, &own, &[&shared]);
    until("the flood", || daemon.said().contains("flooded").then_some(()));
    fs::remove_dir_all(host.out()).unwrap();
    let done = host.kineto("--steps 2");
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let (state, found) = doctor(&host);
    assert!(state == "ok" && found.contains(&format!("process {} ", daemon.pid())), "{found}");
    let log = host.log();
    assert!(log.contains("not a Kineto message: process ") && log.len() < 1 << 14, "{log}");
    assert_eq!(host.collector(), Some(collector), "it is the same process");
    assert!(ranks.into_iter().all(|mut rank| rank.is_running()));
}
