//! The memory of a collector with a day of 64 ranks, and the time to send that history.

use std::{
    fs,
    time::{Duration, Instant},
};

use xpu_net::socket;
use xpu_simulation::Simulation;
use xpu_tests::{
    built, past,
    place::Place,
    program::{Program, until},
};
use xpu_wire::{
    codec,
    endpoint::RuntimeDir,
    frame::{Body, Frame, RankInfo, Request},
    id::{Pid, Rank},
    unit::Moment,
};

use crate::{
    job::free_ports,
    table::{Row, Table},
};

const RANKS: u32 = 64;
const DAY: u64 = 86_400;

/// MiB in memory and on disk, and seconds until a viewer has all of it.
const MEMORY: f64 = 96.0;
const DISK: f64 = 96.0;
const SENT: f64 = 2.0;

pub(crate) fn cost(table: &mut Table) {
    let (place, base) = (Place::bare(), free_ports());
    let mut simulation = Simulation::new(7, 1, RANKS);
    let now = Moment::now();
    simulation.started = Moment(now.0 - (DAY + 600) * 1_000_000_000);
    past::leave(&place.path("run"), base, now, DAY + 600, |ago| {
        simulation.digests(DAY + 600 - ago).remove(0)
    });
    let mut command = place.command(built::artifact("xpu-collector"));
    command.env("HOME", place.path("")).args(["--no-key", "--base-port", &base.0.to_string()]);
    let collector = Program::start(&mut command);
    let context = zmq::Context::new();
    let worker = socket::worker(&context).expect("a ZeroMQ socket");
    let path = RuntimeDir::at(place.path("run")).socket(base).expect("a short path");
    worker.connect(&format!("ipc://{}", path.display())).expect("an address");
    let hello = RankInfo {
        job: simulation.job.clone(),
        rank: Rank(0),
        world_size: RANKS,
        local_rank: None,
        pid: Pid(std::process::id()),
        started: Moment(1),
        program: "bench".to_owned(),
        version: "1".to_owned(),
        ledger: None,
    };
    worker.send(encoded(Body::Hello(hello)), 0).expect("a collector");
    let control = socket::control_client(&context, None).expect("a ZeroMQ socket");
    control.connect(&format!("tcp://127.0.0.1:{}", base.control())).expect("an address");
    control.set_rcvtimeo(5000).expect("any time will do");
    until("the job to be known", || {
        let (frames, _) = ask(&control, Duration::from_secs(DAY));
        (frames > 2000).then_some(())
    });
    let began = Instant::now();
    let (frames, bytes) = ask(&control, Duration::from_secs(DAY));
    let took = began.elapsed().as_secs_f64();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let files = fs::read_dir(place.path("run")).expect("a folder").flatten();
    let disk: u64 = files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum();
    let resident = resident(&collector);
    let note = format!("{frames} digests of the host, {:.0} MiB as they are sent", mib(bytes));
    table.row(Row::new("a day of 64 ranks: collector's memory", mib(resident), "MiB").at_most(MEMORY));
    table.row(Row::new("a day of 64 ranks: on disk", mib(disk), "MiB").at_most(DISK));
    table.row(Row::new("a day of 64 ranks: sent to a viewer", took, "s").at_most(SENT).note(note));
}

fn encoded(body: Body) -> Vec<u8> {
    codec::encode(&Frame { host: "bench".into(), number: 0, now: Moment::now(), lost: 0, body })
}

/// The frames and bytes of a history of this length.
fn ask(control: &zmq::Socket, length: Duration) -> (usize, u64) {
    control.send(encoded(Body::Request(Request::History { length: length.into() })), 0).expect("a collector");
    let (mut frames, mut bytes) = (0, 0);
    while let Ok(payload) = control.recv_bytes(0) {
        let Ok(Frame { body: Body::History(part), .. }) = codec::decode(&payload) else { continue };
        frames += part.frames.split().count();
        bytes += part.frames.len() as u64;
        if !part.more {
            break;
        }
    }
    (frames, bytes)
}

fn resident(collector: &Program) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", collector.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}
