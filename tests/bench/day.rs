//! A day of a full host in fast time: `cargo run --release -p xpu-tests --example day [RANKS] [SECONDS]`.
//!
//! A real collector, and simulated ranks that send it one second's summary after the other over its real
//! socket, as fast as it accepts them. Each rank ends and starts again from time to time. A viewer counts
//! these events, and checks whether a frame is missing.

use std::{
    collections::HashMap,
    env, fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use xpu_net::socket;
use xpu_simulation::Simulation;
use xpu_tests::{built, place::Place};
use xpu_wire::{
    codec,
    endpoint::{BasePort, RuntimeDir},
    frame::{Body, Event, Frame, Life, RankInfo, Summary, topic},
    id::{JobName, Pid, Rank, Step},
    unit::Moment,
};
use zmq::{Context, DONTWAIT, Socket};

const BASE: BasePort = BasePort(29_820);

/// Seconds that a rank runs before it ends and starts again.
const LIFE: u64 = 1_000;

/// Number of lines in the table.
const LINES: u64 = 12;

/// Kills the collector when dropped.
struct Collector(Child);

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Worker {
    socket: Socket,
    info: RankInfo,
    number: u64,
    summary: Summary,
}

impl Worker {
    fn say(&mut self, body: Body) {
        let frame = Frame { host: "day".into(), number: self.number, now: Moment::now(), lost: 0, body };
        self.number += 1;
        // Blocks until the collector accepts it, so nothing is lost here, and the collector sets the pace.
        let _ = self.socket.send(codec::encode(&frame), 0);
        while self.socket.recv_bytes(DONTWAIT).is_ok() {}
    }

    fn speak(&mut self, second: u64) {
        if let Some(steps) = &mut self.summary.steps {
            (steps.completed, steps.at) = (Step(second + 1), Moment::now());
        }
        self.say(Body::Summary(self.summary.clone()));
    }

    fn join(&mut self, life: u64) {
        (self.info.started, self.number) = (Moment(1 + life), 0);
        self.say(Body::Hello(self.info.clone()));
    }
}

/// The frames that a viewer received.
#[derive(Default)]
struct Heard {
    joined: u64,
    ended: u64,
    digests: u64,
    missing: u64,
    numbers: HashMap<Vec<u8>, u64>,
}

impl Heard {
    fn take(&mut self, data: &Socket) {
        while let Ok(parts) = data.recv_multipart(DONTWAIT) {
            let [topic, payload] = &parts[..] else { continue };
            let Ok(frame) = codec::decode(payload) else { continue };
            if let Some(last) = self.numbers.insert(topic.clone(), frame.number) {
                self.missing += frame.number.saturating_sub(last + 1);
            }
            match frame.body {
                Body::Event(Event::Joined(_)) => self.joined += 1,
                Body::Event(Event::Life { life: Life::Ended, .. }) => self.ended += 1,
                Body::Digest(_) => self.digests += 1,
                _ => {}
            }
        }
    }
}

fn main() {
    let number =
        |at, otherwise: u64| env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (ranks, seconds) = (number(1, 64) as u32, number(2, 86_400));
    let place = Place::new();
    let mut command = place.command(built::artifact("xpu-collector"));
    command.args(["--no-key", "--idle-exit", "0", "--base-port", &BASE.0.to_string()]);
    let collector = Collector(command.stderr(Stdio::null()).spawn().expect("a collector"));
    let context = Context::new();
    let data = socket::subscriber(&context, None).expect("a ZeroMQ socket");
    data.connect(&format!("tcp://127.0.0.1:{}", BASE.data())).expect("an address");
    let simulation = Simulation::new(7, 1, ranks);
    let job: JobName = simulation.job.clone();
    for topic in [topic::overview(&job), topic::events(&job)] {
        data.set_subscribe(topic.as_bytes()).expect("a SUB");
    }
    let path = RuntimeDir::at(place.path("run")).socket(BASE).expect("a short path");
    let mut workers = workers(&context, &simulation, &path.display().to_string());
    thread::sleep(Duration::from_secs(1));
    let (began, mut heard, mut lives) = (Instant::now(), Heard::default(), 0_u64);
    println!("{:>9} {:>11} {:>10} {:>9} {:>8}", "played s", "summaries", "a second", "RSS MiB", "CPU s");
    for second in 0..seconds {
        for (index, worker) in workers.iter_mut().enumerate() {
            // Ranks start and end one after the other, not all at once.
            if (second + index as u64 * LIFE / u64::from(ranks)).is_multiple_of(LIFE) || second == 0 {
                if second > 0 {
                    worker.say(Body::Goodbye);
                }
                lives += 1;
                worker.join(lives);
            }
            worker.speak(second);
        }
        heard.take(&data);
        if (second + 1).is_multiple_of((seconds / LINES).max(1)) {
            let sent = (second + 1) * u64::from(ranks);
            let (resident, cpu) = figures(collector.0.id());
            let rate = sent as f64 / began.elapsed().as_secs_f64();
            println!("{:>9} {sent:>11} {rate:>10.0} {resident:>9.1} {cpu:>8.1}", second + 1);
        }
    }
    thread::sleep(Duration::from_secs(2));
    heard.take(&data);
    println!(
        "{lives} lives: {} joins heard, {} ends of {}; {} digests, {} frames missing",
        heard.joined,
        heard.ended,
        lives - u64::from(ranks),
        heard.digests,
        heard.missing
    );
}

fn workers(context: &Context, simulation: &Simulation, path: &str) -> Vec<Worker> {
    let ranks: Vec<_> = (0..simulation.world_size()).map(Rank).collect();
    let details = simulation.details(100, ranks);
    details
        .into_iter()
        .filter_map(|frame| match frame.body {
            Body::Detail(detail) => Some(detail),
            _ => None,
        })
        .map(|detail| {
            let socket = socket::worker(context).expect("a ZeroMQ socket");
            socket.connect(&format!("ipc://{path}")).expect("an address");
            let info = RankInfo {
                job: detail.job,
                rank: detail.rank,
                world_size: simulation.world_size(),
                local_rank: None,
                pid: Pid(std::process::id()),
                started: Moment(1),
                program: "day".to_owned(),
                version: "1".to_owned(),
                ledger: None,
            };
            Worker { socket, info, number: 0, summary: detail.summary }
        })
        .collect()
}

/// Resident memory in MiB, and CPU seconds.
fn figures(pid: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let resident = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (resident, (ticks(11) + ticks(12)) / 100.0)
}
