//! `xpu-top kineto` on a real collector and real hooks, with a stand-in for the profiler in PyTorch: the
//! requests, the fetched traces, and the messages of failures.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod beside_dynolog;
mod hostile;
mod hostile_daemon;
mod on_screen;
mod through_relay;
mod two_collectors;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use flate2::read::GzDecoder;
use serde_json::Value;
use xpu_tests::{
    built, described,
    place::Place,
    port::free_base,
    program::{Outcome, Program, run, until},
};

/// Steps of 20 ms that begin at the same time on all ranks, with an optimizer that PyTorch reports.
const TRAINS: &str = "
import sys
from gpu import *
from torch_hooks import *
from client import Kineto
def work():
    ok(gemm_ex(256, 256, 256))
    ok(all_reduce(comm, 1000))
    sync()
    optimizer.step()
    time.sleep(0.02)
comm = communicator()
optimizer = Adam([object()])
def train():
    wait_until_watched()
    while True: work()
";

/// A host with a job. As for users, `xpu-top run` starts the collector too.
struct Host {
    place: Place,
    base: u16,
    /// The abstract name that its clients poll, in place of a folder that the user sets.
    name: Option<String>,
}

impl Host {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(name: Option<String>) -> Self {
        let place = Place::new();
        fs::create_dir(place.path("k")).unwrap();
        let host = Self { place, base: free_base(), name };
        assert!(run(host.xpu_top().args(["keygen", "-o"]).arg(host.key())).status.success());
        host
    }

    fn key(&self) -> PathBuf {
        self.place.path("key")
    }

    fn folder(&self) -> PathBuf {
        self.place.path("k")
    }

    fn xpu_top(&self) -> Command {
        let mut command = self.place.command(built::artifact("xpu-top"));
        command
            .env("HOME", self.place.path(""))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XPU_TOP_KINETO_SOCKET")
            .env_remove("XPU_TOP_SOCKET")
            .env("XPU_TOP_BASE_PORT", self.base.to_string());
        match &self.name {
            Some(name) => command.env("XPU_TOP_KINETO_SOCKET", name),
            None => command.env("KINETO_IPC_SOCKET_DIR", self.folder()),
        };
        command
    }

    fn run(&self, rank: usize, more: &[&str], script: &str) -> Program {
        self.run_where(rank, &[], more, script)
    }

    fn run_where(&self, rank: usize, set: &[(&str, &str)], more: &[&str], script: &str) -> Program {
        self.run_of("train", rank, set, more, script)
    }

    fn run_of(&self, job: &str, rank: usize, set: &[(&str, &str)], more: &[&str], script: &str) -> Program {
        let mut command = self.xpu_top();
        let path = format!("{}:{}", built::source("hook").display(), built::source("kineto").display());
        command
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RENDEZVOUS", self.place.path(""))
            .envs([("WORLD_SIZE", "2".to_owned()), ("RANK", rank.to_string())])
            .envs(set.iter().copied())
            .args(["run", "--job", job, "--key-file"])
            .arg(self.key())
            .args(more)
            .args(["--", "python3", "-c", &format!("{TRAINS}{script}")]);
        Program::start(&mut command)
    }

    /// Starts both ranks, and waits until both have reported steps.
    fn job(&self, scripts: [&str; 2]) -> [Program; 2] {
        let ranks = [self.run(0, &[], scripts[0]), self.run(1, &[], scripts[1])];
        self.wait_for_steps();
        ranks
    }

    fn wait_for_steps(&self) {
        self.wait_for_steps_of("train");
    }

    fn wait_for_steps_of(&self, job: &str) {
        until("both ranks to step", || {
            let said = self.ask(&format!("status --json --now --job {job}"));
            let status: Value = serde_json::from_str(&said.stdout).ok()?;
            let stepping = status["ranks"].as_array()?.iter().filter(|rank| rank["step"].as_u64() > Some(3));
            (stepping.count() == 2).then_some(())
        });
    }

    fn ask(&self, line: &str) -> Outcome {
        run(&mut self.asking(line))
    }

    fn asking(&self, line: &str) -> Command {
        self.asking_at("127.0.0.1", line)
    }

    fn asking_at(&self, hosts: &str, line: &str) -> Command {
        let mut command = self.xpu_top();
        command.args(line.split_whitespace()).args(["--hosts", hosts, "--key-file"]).arg(self.key());
        command
    }

    /// Requests over HTTP, with the token of the key. Returns the answer's status and body.
    fn http(&self, at: (&str, u16), method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let token = run(self.xpu_top().args(["keygen", "--token", "-o"]).arg(self.key())).stdout;
        let token = token.trim();
        let once = || {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            let at = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            let status: u16 = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
            (status, answer.split_off(at))
        };
        // Clients that ask too often must wait.
        until("an answer", || Some(once()).filter(|(status, _)| *status != 429))
    }

    fn kineto(&self, more: &str) -> Outcome {
        self.ask(&format!("kineto -o {} {more}", self.out().display()))
    }

    fn out(&self) -> PathBuf {
        self.place.path("traces")
    }

    fn manifest(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.out().join("manifest.json")).unwrap()).unwrap()
    }

    fn trace(&self, rank: usize) -> Value {
        let packed = fs::File::open(self.out().join(format!("rank-{rank:04}.json.gz"))).unwrap();
        let mut text = String::new();
        GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The process id of the collector that the job started.
    fn collector(&self) -> Option<u32> {
        let mine = format!("--base-port={}", self.base);
        let is_mine = |process: &fs::DirEntry| {
            let line = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            line.contains("xpu-collector") && line.split('\0').any(|word| word == mine)
        };
        let found = fs::read_dir("/proc").into_iter().flatten().flatten().find(is_mine)?;
        found.file_name().to_str()?.parse().ok()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path("run").join(format!("collector-{}.log", self.base)))
            .unwrap_or_default()
    }
}

/// Kills the collector that a job started.
impl Drop for Host {
    fn drop(&mut self) {
        if let Some(pid) = self.collector() {
            let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).status();
        }
    }
}

#[test]
fn both_ranks_trace_the_same_steps_and_their_traces_are_fetched() {
    let host = Host::new();
    // The second rank's Kineto has counted calls before, so the counts differ.
    let ahead = "kineto = Kineto()\nfor _ in range(7): kineto.after_step(None, (), {})\ntrain()";
    let ranks = host.job(["kineto = Kineto()\ntrain()", ahead]);
    let done = host.kineto("--steps 3 --record-shapes");
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let manifest = host.manifest();
    let window = &manifest["window"];
    let (first, last) = (window["first_step"].as_u64().unwrap(), window["last_step"].as_u64().unwrap());
    assert_eq!((last - first, &manifest["same_steps"]), (2, &true.into()), "{manifest:#}");
    // Kineto does not wait for the kernels of the last step of a trace.
    assert_eq!(window["further_steps"], 1, "{manifest:#}");
    for (rank, one) in manifest["ranks"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&one["status"], &one["optimizer_steps"]), (&"written".into(), &4.into()), "{manifest:#}");
        assert_eq!(one["pid"], ranks[rank].pid(), "{manifest:#}");
        let trace = host.trace(rank);
        assert_eq!(trace["trace_id"], manifest["trace_id"]);
        assert!(one["uncompressed_bytes"].as_u64() > Some(1 << 21), "of several parts: {one}");
        // The file is removed from where Kineto wrote it.
        assert!(!PathBuf::from(trace["traceName"].as_str().unwrap()).exists());
    }
    assert!(
        done.stdout.contains(&format!("2 of 2 ranks gave a trace of steps {first} to {last}")),
        "{done:?}"
    );

    // A second request into the same folder would overwrite the traces.
    let again = host.kineto("--steps 3");
    assert!(again.status.code() == Some(64) && again.stderr.contains("it exists"), "{again:?}");
    assert!(host.log().contains("Kineto is served at"), "{}", host.log());
    drop(ranks);
}

#[test]
fn both_ranks_trace_the_same_period_and_ranks_can_be_chosen() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let done = host.kineto("--duration 200ms --ranks 1");
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let manifest = host.manifest();
    let ranks = manifest["ranks"].as_array().unwrap();
    assert_eq!((ranks.len(), &ranks[0]["rank"]), (1, &1.into()), "{manifest:#}");
    assert_eq!(manifest["window"]["asked_ms"], 200.0, "{manifest:#}");
    let took = manifest["window"]["duration_ms"].as_f64().unwrap();
    assert!((took - 200.0).abs() < 0.01 && ranks[0]["traced_ms"] == took, "{manifest:#}");
    assert!(!host.out().join("rank-0000.json.gz").exists());
}

/// Kineto ends a trace when its buffers are full.
#[test]
fn a_trace_that_ends_early_has_its_true_length() {
    let host = Host::new();
    let short = "kineto = Kineto(traces=0.25)\ntrain()";
    let _ranks = host.job([short, "kineto = Kineto(traces=0.5)\ntrain()"]);
    let done = host.kineto("--duration 400ms");
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    assert!(
        done.stdout.contains("2 of 2 ranks gave a trace of 200 ms of the requested 400 ms: "),
        "{done:?}"
    );
    let said = "ranks 0-1: their traces cover at least 100 ms of the requested 400 ms: ";
    assert!(done.stderr.contains(said), "{done:?}");
    let manifest = host.manifest();
    let (window, ranks) = (&manifest["window"], &manifest["ranks"]);
    assert_eq!(window["asked_ms"], 400.0, "{manifest:#}");
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 0.01;
    assert!(near(&window["duration_ms"], 200.0), "{manifest:#}");
    assert!(near(&ranks[0]["traced_ms"], 100.0) && near(&ranks[1]["traced_ms"], 200.0), "{manifest:#}");
}

#[test]
fn two_optimizers_in_a_step_are_two_calls() {
    let host = Host::new();
    let script = "kineto = Kineto()
other = SGD([object()])
wait_until_watched()
while True:
    work()
    other.step()";
    let _ranks = host.job([script; 2]);
    let done = host.kineto("--steps 2");
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let manifest = host.manifest();
    assert_eq!(manifest["window"]["optimizer_calls_per_step"], 2, "{manifest:#}");
    assert_eq!(manifest["ranks"][0]["optimizer_steps"], 6, "of two steps and a further one: {manifest:#}");
    assert_eq!(manifest["same_steps"], true, "{manifest:#}");
}

/// If the number of calls per step varies, equal numbers of calls are different steps.
#[test]
fn a_period_is_traced_if_calls_per_step_vary() {
    let host = Host::new();
    let script = "kineto = Kineto()
other, number = SGD([object()]), 0
wait_until_watched()
while True:
    work()
    number += 1
    if number % 3 == 0: other.step()";
    let _ranks = host.job([script; 2]);
    let done = host.kineto("--steps 2");
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    assert!(done.stderr.contains("because the number of optimizer calls per step varies"), "{done:?}");
    let manifest = host.manifest();
    assert!(manifest["window"]["duration_ms"].is_number(), "{manifest:#}");
}

/// Neither Kineto nor the hook knows the steps.
#[test]
fn without_a_step_time_half_a_second_is_traced() {
    let host = Host::new();
    let script = "kineto = Kineto()\nwait_until_watched()\nwhile True: time.sleep(0.05)";
    let _ranks = [host.run(0, &[], script), host.run(1, &[], script)];
    let done = until("both ranks to be known", || {
        let _ = fs::remove_dir_all(host.out());
        let done = host.kineto("--steps 2");
        done.stderr.contains("2 of 2 ranks will trace").then_some(done)
    });
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    assert!(done.stderr.contains(", in place of steps, because the step time is unknown"), "{done:?}");
}

#[test]
fn a_rank_without_a_trace_is_named_with_advice() {
    let host = Host::new();
    let first = host.run(0, &[], "kineto = Kineto()\ntrain()");
    let second = host.run(1, &["--no-kineto"], "kineto = Kineto()\ntrain()");
    host.wait_for_steps();
    let done = host.kineto("--steps 2");
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("rank 1: its process was started without KINETO_USE_DAEMON=1"), "{done:?}");
    assert!(done.stdout.contains("1 of 2 ranks gave a trace"), "{done:?}");
    let manifest = host.manifest();
    assert_eq!(
        (&manifest["ranks"][0]["status"], &manifest["ranks"][1]["status"]),
        (&"written".into(), &"no_kineto".into()),
        "{manifest:#}"
    );
    drop((first, second));
}

/// The program uses `torch.profiler` itself: Kineto cannot trace it for another.
#[test]
fn a_rank_that_is_busy_with_its_own_profiler_is_reported() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()", "kineto = Kineto(busy=True)\ntrain()"]);
    let done = host.kineto("--steps 2");
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let said = "rank 1: its profiler was busy with another trace (torch.profiler in the program?): try again";
    assert!(done.stderr.contains(said), "{done:?}");
    let manifest = host.manifest();
    let ranks = &manifest["ranks"];
    assert_eq!((&ranks[0]["status"], &ranks[1]["status"]), (&"written".into(), &"refused".into()));
    assert!(!host.out().join("rank-0001.json.gz").exists());
}

/// Kineto aborts its process if the sender's name is not spelled as in its own environment, so the collector
/// sends this rank no answer.
#[test]
fn differing_spellings_of_the_socket_folder_are_reported() {
    let host = Host::new();
    let other = "import os\nos.environ['KINETO_IPC_SOCKET_DIR'] += '/.'\nkineto = Kineto()\ntrain()";
    let ranks = host.job(["kineto = Kineto()\ntrain()", other]);
    let done = host.kineto("--steps 2");
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let spelled = host.folder().display().to_string();
    let said = format!(
        "rank 1: its process has KINETO_IPC_SOCKET_DIR={spelled}/., and its host's collector has KINETO_IPC_SOCKET_DIR={spelled}: "
    );
    assert!(done.stderr.contains(&said), "{done:?}");
    assert!(done.stdout.contains("1 of 2 ranks gave a trace"), "{done:?}");
    drop(ranks);
}

#[test]
fn a_rank_that_ends_during_tracing_is_reported() {
    let host = Host::new();
    let ranks = host.job(["kineto = Kineto(every=1)\ntrain()"; 2]);
    let line = format!("kineto --steps 2 --start-in 20s -o {}", host.out().display());
    let asking = Program::start(&mut host.asking(&line));
    until("both to be asked", || asking.said().contains("2 of 2 ranks will trace").then_some(()));
    for rank in &ranks {
        rank.signal("KILL");
    }
    let done = asking.end();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("ranks 0-1: its process"), "{done:?}");
    assert!(done.stdout.contains("no rank gave a trace"), "{done:?}");
}

#[test]
fn existing_files_of_the_folder_stay() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    fs::create_dir(host.out()).unwrap();
    let other = host.place.path("other");
    fs::write(&other, "mine").unwrap();
    symlink(&other, host.out().join("rank-0001.json.gz")).unwrap();
    let refused = host.kineto("--steps 2");
    assert!(refused.status.code() == Some(64) && refused.stderr.contains("rank-0001.json.gz"), "{refused:?}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    for line in ["", "--steps 2 --duration 1s", "--steps 0", "--duration 0ms", "--duration 2h"] {
        assert_eq!(host.kineto(line).status.code(), Some(64), "{line}");
    }
}

/// PyTorch's profiler takes longer to start than a capture, but both begin with the same step.
#[test]
fn a_capture_and_kineto_traces_cover_the_same_steps() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let file = host.place.path("c.bin");
    let done = host.ask(&format!("capture --steps 3 --kineto --no-watch --wait 60 -o {}", file.display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let folder = host.place.path("c.bin.kineto");
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("manifest.json")).unwrap()).unwrap();
    let report = run(host.xpu_top().args(["report", "--json"]).arg(&file));
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let (first, last) = (&manifest["window"]["first_step"], &manifest["window"]["last_step"]);
    assert_eq!((&report["asked"][0], &report["asked"][1]), (first, last), "{manifest:#}");
    assert_eq!(manifest["same_steps"], true, "{manifest:#}");
    assert_eq!(report["ranks"][1]["steps"].as_array().map(Vec::len), Some(3), "{report:#}");

    // On one clock: the profiler's events of these steps are within them.
    let out = host.place.path("c.json");
    let exported = run(host.xpu_top().arg("export").arg(&file).arg("--chrome").arg(&out));
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    let timeline: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let time = |event: &Value, name: &str| event[name].as_f64().unwrap();
    for rank in 0..2 {
        let of = |name: &str| -> Vec<(f64, f64)> {
            let its = events.iter().filter(|event| event["ph"] == "X" && event["pid"] == rank);
            let named = its.filter(|event| event["name"].as_str().unwrap().starts_with(name));
            named.map(|event| (time(event, "ts"), time(event, "ts") + time(event, "dur"))).collect()
        };
        let (steps, calls) = (of("step "), of("Optimizer.step#"));
        assert_eq!((steps.len(), calls.len()), (3, 4), "rank {rank}");
        for (step, call) in steps.iter().zip(&calls) {
            // An optimizer call ends its step; 5 ms are allowed.
            let is_within = step.0 < call.0 && call.0 < step.1 + 5e3;
            assert!(is_within, "rank {rank}: {calls:?} in {steps:?}");
        }
    }
    let again = host.ask(&format!("capture --steps 3 --kineto -o {}", host.place.path("c.bin").display()));
    assert_eq!(again.status.code(), Some(64), "{again:?}");
}

#[test]
fn ranks_can_be_chosen_by_process_and_by_filter() {
    let host = Host::new();
    let ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let done = host.kineto(&format!("--steps 2 --pids {}", ranks[1].pid()));
    assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.log());
    let manifest = host.manifest();
    let chosen = manifest["ranks"].as_array().unwrap();
    assert_eq!((chosen.len(), &chosen[0]["pid"]), (1, &ranks[1].pid().into()), "{manifest:#}");
    let stranger = host.ask("kineto --steps 2 --pids 1 -o /tmp/nowhere-of-kineto");
    assert!(
        stranger.status.code() == Some(64) && stranger.stderr.contains("process 1 is no rank"),
        "{stranger:?}"
    );
    fs::remove_dir_all(host.out()).unwrap();
    let done = host.ask(&format!("kineto --steps 2 --filter rank=0 -o {}", host.out().display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(host.manifest()["ranks"].as_array().unwrap().len(), 1);
}

/// Over HTTP: request, wait, fetch.
#[test]
fn traces_are_served_over_http() {
    let host = Host::new();
    let _ranks = host.job(["kineto = Kineto()\ntrain()"; 2]);
    let request =
        |method: &str, path: &str, body: &str| host.http(("127.0.0.1", host.base), method, path, body);
    let json = |(_, body): &(u16, Vec<u8>)| serde_json::from_slice::<Value>(body).unwrap();
    let document = json(&request("GET", "/openapi.json", ""));
    let is_described = |method, path, status, answer: &Value| {
        let differences = described::differences(&document, method, path, status, answer);
        assert_eq!(differences, [""; 0], "{answer:#}");
    };
    let refused = request("POST", "/api/v1/kineto", "{}");
    assert_eq!(refused.0, 400, "{:#}", json(&refused));
    assert_eq!(request("POST", "/api/v1/kineto", r#"{"steps": 2, "path": "/etc"}"#).0, 422);
    let begun = request("POST", "/api/v1/kineto", r#"{"steps": 2, "record_shapes": true}"#);
    assert_eq!(begun.0, 202, "{:#}", json(&begun));
    is_described("post", "/api/v1/kineto", "202", &json(&begun));
    assert_eq!(request("POST", "/api/v1/kineto", r#"{"steps": 2}"#).0, 409, "one at a time");
    let done = until("the traces", || {
        let reported = json(&request("GET", "/api/v1/kineto/1", ""));
        (reported["state"] != "recording").then_some(reported)
    });
    assert_eq!(done["state"], "done", "{done:#}\n{}", host.log());
    is_described("get", "/api/v1/kineto/{id}", "200", &done);
    let all = json(&request("GET", "/api/v1/kineto", ""));
    is_described("get", "/api/v1/kineto", "200", &all);
    assert_eq!(all["traces"].as_array().map(Vec::len), Some(1), "{all:#}");
    let files: Vec<_> = done["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert_eq!(files.len(), 3, "{done:#}");
    let manifest = json(&request("GET", "/api/v1/kineto/1/manifest.json", ""));
    assert_eq!(manifest["same_steps"], true, "{manifest:#}");
    let (status, packed) = request("GET", "/api/v1/kineto/1/rank-0001.json.gz", "");
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    assert!(status == 200 && text.contains(manifest["trace_id"].as_str().unwrap()), "{status}");
    for path in ["1/../../../etc/passwd", "1/%2e%2e%2fkey", "1/other", "7", "7/manifest.json"] {
        assert_eq!(request("GET", &format!("/api/v1/kineto/{path}"), "").0, 404, "{path}");
    }
}

#[test]
fn run_sets_what_kineto_reads_and_leaves_what_is_set() {
    let host = Host::new();
    let shows = |more: &[&str], set: &[(&str, &str)]| {
        let mut command = host.xpu_top();
        command.envs(set.iter().copied()).args(["run", "--no-collector"]).args(more);
        run(command.args(["--", "sh", "-c", "echo $KINETO_USE_DAEMON $(cat $KINETO_CONFIG </dev/null)"]))
            .stdout
    };
    assert_eq!(shows(&[], &[]), "1 ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n");
    assert_eq!(shows(&["--no-kineto"], &[]), "\n");
    assert_eq!(shows(&[], &[("KINETO_USE_DAEMON", "yes"), ("KINETO_CONFIG", "/dev/null")]), "yes\n");
}
