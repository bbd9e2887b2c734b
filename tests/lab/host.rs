//! A host for one test: a real collector, and ranks under the real hook.

use std::{
    fs,
    path::PathBuf,
    process::{Command, id},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use serde_json::Value;

use crate::{
    built,
    place::Place,
    program::{Outcome, Program, run, until},
};

/// The collector's first port.
pub const BASE: &str = "29600";

/// The number of hosts that this process has made.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A rank that trains endlessly: in each step a GEMM and a collective over all ranks.
pub const TRAINS: &str = "
comm = communicator()
while True:
    ok(gemm_ex(256, 256, 256))
    ok(all_reduce(comm, 1000))
    sync()
    step()
    time.sleep(0.02)
";

/// A host with its own loopback address, and a collector with a key that listens there.
#[derive(Debug)]
pub struct Host {
    pub place: Place,
    pub address: String,
    collector: Option<Program>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    pub fn new() -> Self {
        Self::at(Place::new())
    }

    /// A host whose GPUs can be observed from outside.
    pub fn with_visible_gpus() -> Self {
        let place = Place::new();
        fs::create_dir(place.path("machine")).expect("a folder in a fresh folder");
        Self::at(place)
    }

    fn at(place: Place) -> Self {
        let [_, _, high, low] = id().to_be_bytes();
        // A process may have several hosts at the same time.
        let number = 90 + NUMBER.fetch_add(1, Relaxed) % 100;
        let mut new = Self { address: format!("127.{number}.{high}.{}", low.max(1)), place, collector: None };
        assert!(run(new.xpu_top("keygen").arg("-o").arg(new.key())).status.success());
        new.begin_collector();
        new
    }

    pub fn begin_collector(&mut self) {
        let _ = fs::remove_file(self.socket());
        let mut collector = self.place.command(built::artifact("xpu-collector"));
        collector.env("XPU_TOP_PEAK_TFLOPS", "bf16=500");
        // Some tests give each of sixteen ranks a GPU.
        collector.env("SIMGPU_DEVICES", "16");
        collector.args(["--base-port", BASE, "--bind", &self.address, "--host-name", "sim", "--key-file"]);
        self.collector = Some(Program::start(collector.arg(self.key())));
        until("the collector to listen", || self.socket().exists().then_some(()));
    }

    pub fn key(&self) -> PathBuf {
        self.place.path("key")
    }

    pub fn socket(&self) -> PathBuf {
        self.place.path("run").join(format!("collector-{BASE}.sock"))
    }

    /// `xpu-top` with a home folder that has no key.
    pub fn xpu_top(&self, line: &str) -> Command {
        let mut command = self.place.command(built::artifact("xpu-top"));
        command.env("HOME", self.place.path("")).env_remove("XDG_CONFIG_HOME");
        command.env("XDG_STATE_HOME", self.place.path("state"));
        command.args(line.split_whitespace());
        command
    }

    /// As [`Self::xpu_top`], for this host's job and with its key.
    pub fn ask(&self, line: &str) -> Outcome {
        let mut command = self.xpu_top(line);
        command.args(["--hosts", &format!("{}:{BASE}", self.address), "--key-file"]).arg(self.key());
        run(&mut command)
    }

    /// Kills the collector.
    pub fn end_collector(&mut self) {
        if let Some(collector) = self.collector.take() {
            collector.signal("KILL");
            collector.end();
        }
    }

    /// Waits until the collector ends by itself or by a signal.
    pub fn collector_ends(&mut self) -> Outcome {
        self.collector.take().expect("a collector").end()
    }

    /// Sends a signal, given by its name, to the collector.
    pub fn signal_collector(&self, name: &str) {
        self.collector.as_ref().expect("a collector").signal(name);
    }

    /// The collector's log so far.
    pub fn collector_log(&self) -> String {
        self.collector.as_ref().map(Program::said).unwrap_or_default()
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.ask("status --json --now").stdout).expect("a document")
    }

    /// Starts one of two ranks.
    pub fn rank(&self, rank: usize, script: &str) -> Program {
        self.rank_of(rank, 2, script)
    }

    pub fn rank_of(&self, rank: usize, world: usize, script: &str) -> Program {
        Program::start(&mut self.command_of(rank, world, script))
    }

    /// Starts one of two ranks, with these variables in its environment.
    pub fn rank_where(&self, rank: usize, set: &[(&str, &str)], script: &str) -> Program {
        self.rank_of_where((rank, 2), set, script)
    }

    /// Starts one of `world` ranks, with these variables in its environment.
    pub fn rank_of_where(
        &self,
        (rank, world): (usize, usize),
        set: &[(&str, &str)],
        script: &str,
    ) -> Program {
        Program::start(self.command_of(rank, world, script).envs(set.iter().copied()))
    }

    /// Starts a job with one rank, under this Python.
    pub fn alone_under(&self, python: &str, set: &[(&str, &str)], script: &str) -> Program {
        Program::start(self.command_under(python, 0, 1, script).envs(set.iter().copied()))
    }

    fn command_of(&self, rank: usize, world: usize, script: &str) -> Command {
        self.command_under("python3", rank, world, script)
    }

    fn command_under(&self, python: &str, rank: usize, world: usize, script: &str) -> Command {
        let mut command = self.place.script_under(python, &format!("from gpu import *\n{script}"));
        command
            .env("XPU_TOP_SOCKET", self.socket())
            .env("XPU_TOP_JOB", "train")
            .env("RENDEZVOUS", self.place.path(""))
            .envs([("WORLD_SIZE", world.to_string()), ("RANK", rank.to_string())]);
        command
    }

    pub fn wait_for_file(&self, name: &str) -> String {
        until(name, || fs::read_to_string(self.place.path(name)).ok())
    }
}
