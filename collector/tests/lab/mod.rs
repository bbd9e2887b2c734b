//! A collector for each test, with workers and viewers that use real sockets.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::id,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use xpu_collector::{Collector, Config};
use xpu_model::peak::Peaks;
use xpu_net::{key::Key, socket};
use xpu_wire::{
    codec,
    endpoint::{BasePort, RuntimeDir},
    frame::{Body, Frame, RankInfo, Request, StepSource, Steps, Summary, TimedBy, Work},
    histogram::Histogram,
    id::{Pid, Rank, Step},
    unit::{Moment, Nanoseconds},
};
use zmq::{Context, DONTWAIT, Socket};

/// Longest wait, long enough for a loaded machine. A test that passes takes a fraction of it.
const DEADLINE: Duration = Duration::from_secs(20);

/// Calls `look` until it returns `Some`.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) struct Lab {
    pub(crate) config: Config,
    context: Context,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Lab {
    /// Every lab has its own loopback address, so its ports are free.
    pub(crate) fn new(key: Option<Key>) -> Self {
        static LABS: AtomicU32 = AtomicU32::new(0);
        let lab = LABS.fetch_add(1, Relaxed);
        let [_, _, high, low] = id().to_be_bytes();
        let address = Ipv4Addr::new(127, 100 + (lab % 100) as u8, high, low.max(1));
        let dir = std::env::temp_dir().join(format!("xpu-top-lab-{}-{lab}", id()));
        let config = Config {
            address: IpAddr::V4(address),
            base: BasePort(29_400),
            host: format!("lab-{lab}").into(),
            runtime: RuntimeDir::at(dir),
            key,
            kineto: xpu_collector::KinetoName::Off,
            idle_exit: None,
            runs: None,
            samples: false,
            reader: env!("CARGO_BIN_EXE_xpu-collector").into(),
            peaks: Peaks::default(),
        };
        Self { config, context: Context::new(), running: None }
    }

    pub(crate) fn start(&mut self) {
        let stop = Arc::new(AtomicBool::new(false));
        let mut collector = Collector::open(self.config.clone(), Moment::now()).unwrap();
        let reported = Arc::clone(&stop);
        let thread = std::thread::spawn(move || collector.serve(&reported).unwrap());
        self.running = Some((stop, thread));
    }

    pub(crate) fn started(key: Option<Key>) -> Self {
        let mut lab = Self::new(key);
        lab.start();
        lab
    }

    /// Stops the collector normally.
    pub(crate) fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.store(true, Relaxed);
            thread.join().unwrap();
        }
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.config.runtime.socket(self.config.base).unwrap()
    }

    pub(crate) fn data(&self) -> SocketAddr {
        SocketAddr::new(self.config.address, self.config.base.data())
    }

    pub(crate) fn control(&self) -> SocketAddr {
        SocketAddr::new(self.config.address, self.config.base.control())
    }

    pub(crate) fn worker(&self, job: &str, rank: u32) -> Worker {
        let socket = socket::worker(&self.context).unwrap();
        socket.connect(&format!("ipc://{}", self.socket_path().display())).unwrap();
        Worker { socket, info: info(job, rank), number: 0, step: 0 }
    }

    pub(crate) fn viewer(&self, key: Option<&Key>) -> Viewer {
        let control = socket::control_client(&self.context, key).unwrap();
        control.connect(&format!("tcp://{}", self.control())).unwrap();
        let data = socket::subscriber(&self.context, key).unwrap();
        data.connect(&format!("tcp://{}", self.data())).unwrap();
        Viewer { control, data }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(self.config.runtime.path());
    }
}

fn info(job: &str, rank: u32) -> RankInfo {
    RankInfo {
        job: job.into(),
        rank: Rank(rank),
        world_size: 2,
        local_rank: None,
        pid: Pid(id()),
        started: Moment(1),
        program: "python train.py".to_owned(),
        version: "1".to_owned(),
        ledger: None,
    }
}

pub(crate) struct Worker {
    pub(crate) socket: Socket,
    pub(crate) info: RankInfo,
    number: u64,
    step: u64,
}

impl Worker {
    pub(crate) fn say(&mut self, body: Body) {
        let frame = Frame { host: "w".into(), number: self.number, now: Moment::now(), lost: 0, body };
        self.number += 1;
        self.socket.send(codec::encode(&frame), DONTWAIT).unwrap();
    }

    pub(crate) fn hello(&mut self) {
        self.say(Body::Hello(self.info.clone()));
    }

    /// Completes a step, and sends its summary.
    pub(crate) fn step(&mut self) {
        self.step += 1;
        let mut durations = Histogram::new();
        durations.record(Nanoseconds(10_000_000));
        let steps = Steps {
            source: StepSource::Marked,
            completed: Step(self.step),
            at: Moment::now(),
            durations,
            timed_by: TimedBy::Host,
            optimizer: String::new(),
            work: Work::default(),
        };
        let interval = Nanoseconds(1_000_000_000);
        self.say(Body::Summary(Summary { interval, steps: Some(steps), ..Summary::default() }));
    }

    pub(crate) fn received(&self) -> Option<Body> {
        receive(&self.socket).map(|frame| frame.body)
    }
}

pub(crate) struct Viewer {
    pub(crate) control: Socket,
    pub(crate) data: Socket,
}

impl Viewer {
    pub(crate) fn ask(&self, request: Request) {
        let frame =
            Frame { host: "v".into(), number: 0, now: Moment::now(), lost: 0, body: Body::Request(request) };
        self.control.send(codec::encode(&frame), DONTWAIT).unwrap();
    }

    /// The collector's present state.
    pub(crate) fn snapshot(&self) -> Option<xpu_wire::frame::HostSnapshot> {
        self.ask(Request::Snapshot);
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline {
            match receive(&self.control).map(|frame| frame.body) {
                Some(Body::Snapshot(snapshot)) => return Some(snapshot),
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        None
    }

    /// Job, rank, life and step of all ranks in the next snapshot.
    pub(crate) fn sees(&self) -> Vec<(String, u32, xpu_wire::frame::Life, Option<u64>)> {
        let jobs = self.snapshot().map(|snapshot| snapshot.jobs).unwrap_or_default();
        let ranks = jobs.into_iter().flat_map(|job| job.ranks);
        ranks
            .map(|rank| {
                let step = rank.digest.step.map(|step| step.0);
                (rank.info.job.0, rank.info.rank.0, rank.digest.life, step)
            })
            .collect()
    }

    pub(crate) fn published(&self) -> Option<(String, Frame)> {
        let mut parts = self.data.recv_multipart(DONTWAIT).ok()?;
        let payload = parts.pop()?;
        Some((String::from_utf8(parts.pop()?).unwrap(), codec::decode(&payload).unwrap()))
    }
}

fn receive(socket: &Socket) -> Option<Frame> {
    let parts = socket.recv_multipart(DONTWAIT).ok()?;
    Some(codec::decode(parts.last()?).unwrap())
}
