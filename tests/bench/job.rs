//! The cost of watching a job with eight ranks: its collector, the hooks' threads, the wire.

use std::{
    fs,
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

use xpu_net::socket;
use xpu_tests::{
    built,
    place::Place,
    program::{Program, until},
};
use xpu_wire::endpoint::BasePort;

use crate::table::{Row, Table};

const RANKS: u32 = 8;
const WATCHED: Duration = Duration::from_secs(10);

/// Percent of a core; and bytes per rank and second.
const COLLECTOR_PERCENT: f64 = 1.0;
const OVERVIEW_BYTES: f64 = 1024.0;

pub(crate) fn cost(table: &mut Table) {
    let place = Place::new();
    let base = free_ports();
    let collector = Program::start(
        place
            .command(built::artifact("xpu-collector"))
            .env("HOME", place.path(""))
            .args(["--base-port", &base.0.to_string(), "--no-key", "--runtime-dir"])
            .arg(place.path("run")),
    );
    let path = place.path(&format!("run/collector-{}.sock", base.0));
    until("the collector's socket", || path.exists().then_some(()));
    let ranks: Vec<Program> =
        (0..RANKS).map(|rank| Program::start(&mut worker(&place, rank, &path))).collect();

    let context = zmq::Context::new();
    let subscriber = socket::subscriber(&context, None).expect("a ZeroMQ socket");
    subscriber.connect(&format!("tcp://127.0.0.1:{}", base.data())).expect("an address");
    subscriber.set_subscribe(b"bench/o").expect("any topic will do");
    subscriber.set_rcvtimeo(100).expect("any time will do");
    until("all ranks to be at work", || {
        let _ = subscriber.recv_multipart(0);
        ranks.iter().all(|rank| rank.hook_threads() > 0).then_some(())
    });
    drain(&subscriber, Duration::from_secs(3));

    let before = (cpu(&collector, |_| true), hooks(&ranks));
    let begun = Instant::now();
    let bytes = drain(&subscriber, WATCHED);
    let seconds = begun.elapsed().as_secs_f64();
    let after = (cpu(&collector, |_| true), hooks(&ranks));
    let percent = |from: f64, to: f64| (to - from) / seconds * 100.0;
    table.row(
        Row::new("collector, 8 ranks: of a core", percent(before.0, after.0), "%").at_most(COLLECTOR_PERCENT),
    );
    let hooks = percent(before.1, after.1) / f64::from(RANKS);
    table.row(Row::new("hook's thread of a rank: of a core", hooks, "%"));
    let overview = bytes as f64 / f64::from(RANKS) / seconds;
    table.row(Row::new("overview on the wire, a rank and second", overview, "B").at_most(OVERVIEW_BYTES));
}

fn worker(place: &Place, rank: u32, collector: &std::path::Path) -> Command {
    let mut command = place.watched("python3");
    command
        .arg(built::source("../cli/src/command/demo/worker.py"))
        .args(["--rendezvous".as_ref(), place.path("").as_os_str()])
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", RANKS.to_string())
        .env("XPU_TOP_JOB", "bench")
        .env("XPU_TOP_SOCKET", collector);
    command
}

/// The number of bytes that arrive in this time.
fn drain(subscriber: &zmq::Socket, time: Duration) -> usize {
    let begun = Instant::now();
    let mut bytes = 0;
    while begun.elapsed() < time {
        bytes += subscriber.recv_multipart(0).map_or(0, |parts| parts.iter().map(Vec::len).sum());
    }
    bytes
}

fn hooks(ranks: &[Program]) -> f64 {
    ranks.iter().map(|rank| cpu(rank, |name| name.starts_with("xpu-top") || name.starts_with("ZMQ"))).sum()
}

/// The CPU seconds of the threads whose names `of` accepts.
fn cpu(program: &Program, of: impl Fn(&str) -> bool) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).expect("it runs").flatten();
    let ours = tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| of(&name)));
    let nanoseconds = ours.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}

pub(crate) fn free_ports() -> BasePort {
    until("three free ports", || {
        let bind = |port| TcpListener::bind(("127.0.0.1", port));
        let first = bind(0).ok()?;
        let base = BasePort::new(first.local_addr().ok()?.port())?;
        (bind(base.data()).is_ok() && bind(base.control()).is_ok()).then_some(base)
    })
}
