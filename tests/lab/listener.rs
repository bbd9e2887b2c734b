//! A collector that only listens: it keeps what hooks send, so that a test can check it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use xpu_net::socket;
use xpu_wire::{
    codec,
    collective::Operation,
    frame::{Body, CollectiveTotals, Command, Frame, GemmTotals, Launches, NcclReport, RankInfo, Summary},
    gemm::GemmShape,
    id::{CommunicatorId, HostName, Pid, Sequence},
    unit::{Moment, Nanoseconds},
};

use crate::program::until;

/// How long one poll of the socket lasts. After it the thread checks whether it must end.
const LOOK_MS: i64 = 5;

/// What one process has sent.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    pub hellos: Vec<RankInfo>,
    pub summaries: Vec<Summary>,
    /// The last report.
    pub nccl: NcclReport,
    pub goodbye: bool,
}

/// A timed collective with its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub communicator: CommunicatorId,
    pub sequence: Sequence,
    pub operation: Operation,
    pub bus_bytes: u64,
    pub duration: Nanoseconds,
    pub peer: Option<u32>,
}

/// Keyed by ZeroMQ's name for the connection.
type Senders = BTreeMap<Vec<u8>, Sender>;

#[derive(Debug)]
pub struct Listener {
    received: Arc<Mutex<Senders>>,
    say: Arc<Mutex<Vec<Command>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

/// What a listener does at the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtFirstWord {
    Answers,
    Dies,
}

impl Listener {
    #[track_caller]
    pub fn at(path: &Path) -> Self {
        Self::that(AtFirstWord::Answers, path)
    }

    /// # Panics
    /// If the path cannot be bound.
    #[track_caller]
    pub fn that(does: AtFirstWord, path: &Path) -> Self {
        let context = zmq::Context::new();
        let socket = socket::workers(&context).expect("a ZeroMQ socket");
        socket.bind(&format!("ipc://{}", path.display())).expect("nobody else is there");
        let received = Arc::new(Mutex::new(Senders::new()));
        let (say, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let (received, say, stop) = (Arc::clone(&received), Arc::clone(&say), Arc::clone(&stop));
            move || listen(&socket, does, &received, &say, &stop)
        });
        Self { received, say, stop, thread: Some(thread), path: path.to_owned() }
    }

    /// Sends a command to every connected hook.
    pub fn say(&self, command: Command) {
        self.say.lock().expect("the listening thread does not panic").push(command);
    }

    pub fn received(&self) -> Vec<Sender> {
        self.received.lock().expect("the listening thread does not panic").values().cloned().collect()
    }

    /// What process `pid` has sent.
    pub fn sender(&self, pid: u32) -> Option<Sender> {
        self.received().into_iter().find(|sender| sender.hellos.iter().any(|hello| hello.pid == Pid(pid)))
    }

    /// Waits until process `pid` has completed this number of steps, and returns everything it has sent.
    #[track_caller]
    pub fn after_step(&self, pid: u32, step: u64) -> Sender {
        until(&format!("process {pid} to say that step {step} is completed"), || {
            self.sender(pid).filter(|sender| sender.steps() >= Some(step))
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn listen(
    socket: &zmq::Socket,
    does: AtFirstWord,
    received: &Mutex<Senders>,
    say: &Mutex<Vec<Command>>,
    stop: &AtomicBool,
) {
    let mut number = 0;
    let mut send = |who: &[u8], command: Command| {
        number += 1;
        let host = HostName::from("test");
        let frame = Frame { host, number, now: Moment::now(), lost: 0, body: Body::Command(command) };
        // A process that has ended meanwhile cannot receive it.
        let _ = socket.send_multipart([who, &codec::encode(&frame)], zmq::DONTWAIT);
    };
    while !stop.load(Relaxed) {
        for command in say.lock().expect("nobody panics with it").drain(..) {
            for who in received.lock().expect("nobody panics with it").keys() {
                send(who, command.clone());
            }
        }
        if socket.poll(zmq::POLLIN, LOOK_MS) != Ok(1) {
            continue;
        }
        let Ok(parts) = socket.recv_multipart(zmq::DONTWAIT) else { continue };
        let [who, bytes] = &parts[..] else { panic!("a message of {} parts", parts.len()) };
        let frame = codec::decode(bytes).expect("a hook says what can be decoded");
        let is_new = {
            let mut received = received.lock().expect("nobody panics with it");
            let is_new = !received.contains_key(who);
            received.entry(who.clone()).or_default().take_in(frame);
            is_new
        };
        match does {
            AtFirstWord::Dies => return,
            AtFirstWord::Answers if is_new => send(who, Command::Introduce),
            AtFirstWord::Answers => {}
        }
    }
}

impl Sender {
    fn take_in(&mut self, frame: Frame) {
        match frame.body {
            Body::Hello(info) => self.hellos.push(info),
            Body::Summary(summary) => self.summaries.push(summary),
            Body::Nccl(report) => self.nccl = report,
            Body::Goodbye => self.goodbye = true,
            other => panic!("a hook says Hello, Summary and Goodbye, not {other:?}"),
        }
    }

    pub fn steps(&self) -> Option<u64> {
        self.summaries.iter().rev().find_map(|summary| Some(summary.steps.as_ref()?.completed.0))
    }

    /// The launches in the last summary.
    pub fn launches(&self) -> Launches {
        self.summaries.last().map(|summary| summary.launches).unwrap_or_default()
    }

    /// The last totals of each shape.
    pub fn gemms(&self) -> BTreeMap<GemmShape, GemmTotals> {
        self.summaries
            .iter()
            .flat_map(|summary| &summary.gemms)
            .map(|totals| (totals.shape, totals.clone()))
            .collect()
    }

    /// The last totals of each operation and size. Communicators are not distinguished.
    pub fn collectives(&self) -> BTreeMap<(Operation, u64), CollectiveTotals> {
        let all = self.summaries.iter().flat_map(|summary| &summary.collectives);
        all.map(|totals| ((totals.operation, totals.bytes), totals.clone())).collect()
    }

    /// All timed collectives, sorted by communicator and number.
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for summary in &self.summaries {
            samples.extend(summary.samples.iter().map(|sample| Sample {
                communicator: summary.communicators[usize::from(sample.communicator)].id,
                sequence: sample.number(),
                operation: sample.operation,
                bus_bytes: sample.bus_bytes,
                duration: sample.duration,
                peer: sample.peer(),
            }));
        }
        samples.sort_by_key(|sample| (sample.communicator, sample.sequence));
        samples
    }
}
