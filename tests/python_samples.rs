//! A capture samples the Python stacks of real Pythons under the real hook, and shows where a rank was while
//! its GPU was idle.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;
use xpu_tests::{
    built,
    host::Host,
    program::{Outcome, Program, run, until},
};

/// Rank 1 makes its batches itself, in its own function, while its GPU is idle. Another thread works at the
/// same time.
const TRAINS: &str = "
import threading
def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until: pass
def collate_fn():
    spin(0.03)
def next_batch():
    if RANK == 1: collate_fn()
def train_step():
    next_batch()
    ok(gemm_ex(512, 512, 512))
    ok(all_reduce(comm, 1000))
    sync()
    step()
def watch_disk():
    while True: time.sleep(0.5)
threading.Thread(target=watch_disk, name='disk-7', daemon=True).start()
comm = communicator()
while True: train_step()
";

struct Job {
    host: Host,
    ranks: Vec<Program>,
}

impl Job {
    fn new() -> Self {
        let host = Host::new();
        let ranks = (0..2).map(|rank| host.rank(rank, TRAINS)).collect();
        until("both ranks to train", || {
            (host.status()["steps"]["min"].as_u64()? >= 3 && host.status()["coverage"]["ranks_seen"] == 2)
                .then_some(())
        });
        Self { host, ranks }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.host.place.path(name)
    }

    fn capture(&self, name: &str, more: &str) -> Outcome {
        let line =
            format!("capture --no-watch --job train -o {} --wait 60 {more}", self.file(name).display());
        let done = self.host.ask(&line);
        assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", self.host.collector_log());
        done
    }

    fn report(&self, name: &str) -> Value {
        let done = run(self.host.xpu_top("report --json").arg(self.file(name)));
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    }

    fn text(&self, name: &str) -> String {
        run(self.host.xpu_top("report").arg(self.file(name))).stdout
    }

    /// The number of samplers that still run for this job.
    fn samplers(&self) -> usize {
        let of = |path: PathBuf| fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mine: Vec<_> = self.ranks.iter().map(|rank| rank.pid().to_string()).collect();
        all.map(|process| of(process.path()))
            .filter(|line| {
                let mut words = line.split('\0').skip_while(|word| *word != "--sample-python");
                words.nth(1).is_some_and(|pid| mine.iter().any(|known| known == pid))
            })
            .count()
    }
}

fn function<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["python"]["functions"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    rows.iter().find(|row| row["function"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

fn share(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{row:#}"))
}

#[test]
fn samples_show_where_a_rank_was_while_its_gpu_was_idle() {
    let job = Job::new();
    job.capture("c.bin", "--steps 12 --python=200");
    let report = job.report("c.bin");
    let ranks = report["python"]["ranks"].as_array().expect("ranks").clone();
    assert_eq!(ranks.len(), 2, "{report:#}");
    for rank in &ranks {
        assert!(rank["samples"].as_u64() >= Some(20), "{rank:#}");
        assert_eq!((&rank["why"], &rank["stops"]), (&Value::Null, &0.into()), "{rank:#}");
    }
    let idle = &ranks[1]["idle"];
    // `collate_fn` calls `spin`, which spins. The innermost function is the reported place.
    assert_eq!(idle["place"]["function"], "spin", "{idle:#}");
    let path = idle["place"]["path"].to_string();
    assert!(path.contains("next_batch") && path.contains("collate_fn"), "{path}");
    assert!(share(idle, "share") > 0.5, "{idle:#}");
    let text = job.text("c.bin");
    assert!(text.contains("rank 1 was in spin") && text.contains("% of the GPU's gaps ("), "{text}");
    assert!(text.contains("and stopped no thread"), "{text}");

    let collate = function(&report, "collate_fn");
    assert_eq!((&collate["most"], &collate["thread"]), (&1.into(), &"main".into()), "{collate:#}");
    assert!(share(collate, "most_share") > 0.5 && share(collate, "self_share") < 0.2, "{collate:#}");
    assert!(share(function(&report, "train_step"), "total_share") > 0.8, "{report:#}");
    until("the samplers to end", || (job.samplers() == 0).then_some(()));

    // The exported files contain the function.
    let [folded, svg, chrome] = ["c.folded", "c.svg", "c.json"].map(|name| job.file(name));
    let done = run(job
        .host
        .xpu_top("export")
        .arg(job.file("c.bin"))
        .arg("--folded")
        .arg(&folded)
        .arg("--flame")
        .arg(&svg)
        .arg("--chrome")
        .arg(&chrome));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let lines = fs::read_to_string(&folded).expect("it was written");
    let is_batch = |line: &&str| {
        line.starts_with("rank 1;step ")
            && line.contains(";python;thread main;")
            && line.contains("collate_fn")
    };
    assert!(lines.lines().any(|line| is_batch(&line)), "{lines}");
    assert!(fs::read_to_string(&svg).expect("it was written").contains("collate_fn"));
    let chrome = fs::read_to_string(&chrome).expect("it was written");
    assert!(chrome.contains("thread main, Python, sampled") && chrome.contains("collate_fn"), "no track");

    // A capture without stacks has no such figures, and the export names the remedy.
    job.capture("plain.bin", "--steps 2");
    assert_eq!(job.report("plain.bin")["python"], Value::Null);
    let refused =
        run(job.host.xpu_top("export").arg(job.file("plain.bin")).arg("--flame").arg(job.file("p.svg")));
    assert!(refused.status.code() == Some(64) && refused.stderr.contains("--python"), "{refused:?}");
}

#[test]
fn native_frames_are_merged_and_their_cost_is_reported() {
    let job = Job::new();
    job.capture("c.bin", "--for 600ms --python=50 --native");
    let report = job.report("c.bin");
    let ranks = report["python"]["ranks"].as_array().expect("ranks").clone();
    for rank in &ranks {
        assert_eq!(rank["native"], true, "{rank:#}");
        assert!(rank["stops"].as_u64() > Some(5), "{rank:#}");
        assert!(rank["longest_stop_ns"].as_u64() > Some(0), "{rank:#}");
    }
    let files: Vec<_> = report["python"]["functions"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["file"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(files.iter().any(|file| file.contains(".so")), "{report:#}");
    assert!(job.text("c.bin").contains("and stopped a thread "), "{}", job.text("c.bin"));
}

#[test]
fn a_rank_that_dies_during_sampling_keeps_its_samples_and_those_of_others() {
    let job = Job::new();
    let line = format!(
        "capture --no-watch --steps 900 --python=100 -o {} --wait 60 --job train --hosts {}:{}",
        job.file("c.bin").display(),
        job.host.address,
        xpu_tests::host::BASE
    );
    let mut command = job.host.xpu_top(&line);
    let capturing = Program::start(command.arg("--key-file").arg(job.host.key()));
    until("both to agree", || capturing.said().contains("2 of 2 ranks agreed").then_some(()));
    until("both to be sampled", || (job.samplers() == 2).then_some(()));
    job.ranks[1].signal("KILL");
    capturing.signal("INT");
    let done = capturing.end();
    assert!(done.status.code() == Some(1), "{done:?}");
    until("the samplers to end", || (job.samplers() == 0).then_some(()));
}

#[test]
fn impossible_sampling_rates_are_refused() {
    let mut command = Command::new(built::artifact("xpu-top"));
    command.args(["capture", "--steps", "1", "-o", "/nonexistent/c", "--python=2000"]);
    let done = run(&mut command);
    assert!(done.status.code() == Some(64) && done.stderr.contains("1000 at most"), "{done:?}");
    let mut command = Command::new(built::artifact("xpu-top"));
    let done = run(command.args(["capture", "--steps", "1", "-o", "/nonexistent/c", "--native"]));
    assert_eq!(done.status.code(), Some(64), "{done:?}");
}
