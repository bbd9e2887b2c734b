//! The memory of a collector and of a screen that receive many shapes: eight ranks with four thousand shapes
//! each. The pages are read every three seconds.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use xpu_client::arrival::Arrival;
use xpu_net::socket;
use xpu_simulation::Simulation;
use xpu_tests::{Lab, built, place::Place, program::Program};
use xpu_tui::{action::Action, update::update};
use xpu_wire::{
    codec,
    endpoint::{BasePort, RuntimeDir},
    frame::{Body, Frame, RankInfo, Summary},
    id::{Pid, Rank},
    unit::Moment,
};
use zmq::{Context, DONTWAIT};

use crate::{
    job, publish,
    table::{Row, Table},
};

const RANKS: u32 = 8;
const SHAPES: u64 = 4_000;

/// How many seconds the ranks send, and the seconds between two reads of the pages.
const SECONDS: u64 = 30;
const EVERY: u64 = 3;

/// Many times what eight ranks with forty shapes need, and still little for a host.
const MEMORY_MIB: f64 = 256.0;

/// The argument that starts the process with a screen.
pub(crate) const SCREEN: &str = "screen-shapes";

pub(crate) fn cost(table: &mut Table) {
    let (peak, page) = collector();
    let what = |of: &str| format!("{of}, 8 ranks x {SHAPES} shapes: memory");
    table.row(
        Row::new(what("collector"), peak, "MiB")
            .at_most(MEMORY_MIB)
            .note(format!("/metrics every {EVERY} s: {:.1} MiB", page as f64 / f64::from(1 << 20))),
    );
    let itself = env::current_exe().expect("Linux provides the program's path");
    let reported = Command::new(itself).arg(SCREEN).output().expect("it ran a moment ago");
    let reported = String::from_utf8_lossy(&reported.stdout).trim().parse().expect("a number");
    table.row(Row::new(what("screen, page 3"), reported, "MiB").at_most(MEMORY_MIB));
}

/// The collector's peak memory in MiB, and the bytes of its last page.
fn collector() -> (f64, usize) {
    let (place, base) = (Place::new(), job::free_ports());
    let mut command = place.command(built::artifact("xpu-collector"));
    command.env("HOME", place.path(""));
    command.args(["--no-key", "--idle-exit", "0", "--base-port", &base.0.to_string()]);
    let collector = Program::start(&mut command);
    let path = RuntimeDir::at(place.path("run")).socket(base).expect("a short path");
    let (context, simulation) = (Context::new(), Simulation::new(7, 1, RANKS));
    let mut workers: Vec<_> = details(&simulation, 0)
        .map(|(rank, _)| {
            let socket = socket::worker(&context).expect("a ZeroMQ socket");
            socket.connect(&format!("ipc://{}", path.display())).expect("an address");
            let info = RankInfo {
                job: simulation.job.clone(),
                rank,
                world_size: RANKS,
                local_rank: None,
                pid: Pid(std::process::id()),
                started: Moment(1),
                program: "bench".to_owned(),
                version: "1".to_owned(),
                ledger: None,
            };
            (socket, Body::Hello(info))
        })
        .collect();
    let mut page = String::new();
    for second in 0..SECONDS {
        let began = Instant::now();
        for ((socket, hello), (_, summary)) in workers.iter_mut().zip(details(&simulation, second)) {
            let first = (second == 0).then(|| hello.clone());
            for (at, body) in first.into_iter().chain([Body::Summary(summary)]).enumerate() {
                let number = second + u64::from(second > 0) + at as u64;
                let frame = Frame { host: "bench".into(), number, now: Moment::now(), lost: 0, body };
                socket.send(codec::encode(&frame), 0).expect("the collector takes it");
            }
            while socket.recv_bytes(DONTWAIT).is_ok() {}
        }
        if second % EVERY == EVERY - 1 {
            page = read_page(base);
        }
        thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
    }
    // The first read of the page only makes the collector collect GEMMs. The last page has them.
    let gemms = page.lines().filter(|line| line.starts_with("xpu_top_gemms_total{"));
    assert_eq!(gemms.count(), RANKS as usize, "the pages tell of every rank's GEMMs");
    let status = fs::read_to_string(format!("/proc/{}/status", collector.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    (line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0, page.len())
}

fn read_page(base: BasePort) -> String {
    let mut page = Vec::new();
    let mut stream = TcpStream::connect(("127.0.0.1", base.http())).expect("it listens");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    stream.read_to_end(&mut page).expect("it answers");
    let page = String::from_utf8_lossy(&page).into_owned();
    assert!(page.starts_with("HTTP/1.1 200"), "{page:.200}");
    page
}

/// The details of each rank in one second.
fn details(simulation: &Simulation, second: u64) -> impl Iterator<Item = (Rank, Summary)> {
    simulation.details(second, (0..RANKS).map(Rank)).into_iter().filter_map(|frame| {
        let Body::Detail(mut detail) = frame.body else { return None };
        detail.summary.gemms = (1..=SHAPES).map(publish::gemm).collect();
        Some((detail.rank, detail.summary))
    })
}

/// Receives these details for twenty seconds with the page of GEMMs open, and prints the resident memory.
pub(crate) fn watch() {
    let simulation = Simulation::new(7, 1, RANKS);
    let mut lab = Lab::new(simulation.clone());
    lab.keys("3");
    for second in 1_900..1_920 {
        for mut frame in simulation.details(second, (0..RANKS).map(Rank)) {
            if let Body::Detail(detail) = &mut frame.body {
                detail.summary.gemms = (1..=SHAPES).map(publish::gemm).collect();
            }
            // Encodes and decodes, as on the wire.
            let frame = codec::decode(&codec::encode(&frame)).expect("it was encoded just now");
            update(lab.app(), Action::Arrive(Arrival::Frame(Box::new(frame))));
        }
        lab.screen(132, 40);
    }
    println!("{}", crate::screen::resident_mib());
}
