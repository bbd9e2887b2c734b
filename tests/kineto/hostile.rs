//! Any datagrams on the socket: the collector survives, keeps its memory and descriptors, and serves the
//! ranks during and after the attack.

use std::{fs, time::Instant};

use serde_json::Value;
use xpu_tests::{
    built,
    program::{Program, peak_kib, until},
};

use super::Host;

/// Datagrams of all kinds that the collector accepts.
const DATAGRAMS: u64 = 100_000;

/// The memory that these datagrams may cost, beyond what a trace of the job took before. A leak of 80 bytes
/// per datagram would exceed it.
const MOST_KIB: u64 = 8 << 10;

#[test]
fn a_hundred_thousand_hostile_datagrams_harm_nobody() {
    let host = Host::new();
    let ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let traced = |name: &str| {
        let began = Instant::now();
        let done = host.ask(&format!("kineto --steps 2 -o {}", host.place.path(name).display()));
        assert_eq!(done.status.code(), Some(0), "{name}: {done:?}\n{}", host.log());
        println!("a trace {name}: {:.1} s", began.elapsed().as_secs_f64());
    };
    traced("before");
    let collector = host.collector().unwrap();
    let state = || (peak_kib(collector).unwrap(), descriptors(collector));
    let (quiet_kib, quiet_descriptors) = state();
    let quiet_cpu = cpu_seconds(collector);

    let mut hostile = host.place.command("python3");
    hostile.arg(built::source("kineto/hostile.py")).arg(host.folder()).arg(DATAGRAMS.to_string());
    hostile.args(ranks.iter().map(|rank| rank.pid().to_string()));
    let hostile = Program::start(&mut hostile);
    until("the first of them", || hostile.said().contains("begun").then_some(()));
    traced("meanwhile");
    let done = hostile.end();
    assert!(done.status.success(), "{done:?}");
    let sent: Value = serde_json::from_str(&done.stdout).unwrap();
    let taken: Vec<_> =
        sent["taken"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).collect();
    assert!(taken.iter().sum::<u64>() >= DATAGRAMS && taken.iter().all(|count| *count > 1000), "{sent:#}");
    assert!(sent["answers"].as_u64() > Some(1000), "{sent:#}");

    let cpu = cpu_seconds(collector) - quiet_cpu;
    println!("{:.1} us of a core for each", cpu * 1e6 / taken.iter().sum::<u64>() as f64);
    traced("after");
    assert_eq!(host.collector(), Some(collector), "it is the same process");
    let (kib, _) = state();
    println!("{} datagrams: {} KiB more than {quiet_kib}", taken.iter().sum::<u64>(), kib - quiet_kib);
    assert!(kib - quiet_kib < MOST_KIB, "{quiet_kib} KiB became {kib}");
    // The collector reads files of its ranks every second, so one may be open.
    until("no more descriptors than before", || (state().1 <= quiet_descriptors).then_some(()));
    let log = host.log();
    assert!(
        log.contains("not a Kineto message: process ") && log.len() < 1 << 14,
        "a flood fills no disk: {log}"
    );
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The CPU seconds of all its threads.
fn cpu_seconds(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e9
}
