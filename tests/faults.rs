//! Faults of one rank on the simulated GPU, in jobs of few ranks (`demo.rs` has jobs of many). Each status is
//! that of a viewer that has just connected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use xpu_tests::{
    built,
    host::Host,
    program::{Program, until},
};

/// From this step on the last rank has its fault.
const FROM: u64 = 60;

/// A GPU for each rank.
const DEVICES: [(&str, &str); 1] = [("SIMGPU_DEVICES", "16")];

struct Job {
    host: Host,
    ranks: Vec<Program>,
}

impl Job {
    /// All ranks do the same, except that from step [`FROM`] on the last one runs `fault` before each of its
    /// steps.
    fn start(world: usize, fault: &str) -> Self {
        Self::start_with(world, FROM, fault)
    }

    fn start_with(world: usize, from: u64, fault: &str) -> Self {
        Self::start_of(world, from, fault, "ok(gemm_ex(1024, 1024, 1024))")
    }

    /// Each step does `work`.
    fn start_of(world: usize, from: u64, fault: &str, work: &str) -> Self {
        let host = Host::with_visible_gpus();
        let script = format!(
            "
comm = communicator()
number = 0
def load():
    {fault}
while True:
    if RANK == {last} and number >= {from}: load()
    {work}
    ok(all_reduce(comm, 1000))
    sync()
    number += 1
    step()
    time.sleep(0.02)
",
            last = world - 1,
        );
        let ranks = (0..world).map(|rank| host.rank_of_where((rank, world), &DEVICES, &script)).collect();
        Self { host, ranks }
    }

    fn runs_for(&self, steps: u64) -> &Self {
        // A busy machine is slow: each part takes less than the time that tests wait.
        for part in 1..=4 {
            until("steps", || {
                (self.host.status()["steps"]["min"].as_u64()? >= steps * part / 4).then_some(())
            });
        }
        self
    }

    /// Waits until the only finding names the last rank and satisfies `is_right`. Returns the finding.
    fn named(&self, is_right: impl Fn(&Value) -> bool) -> Value {
        let last = self.ranks.len() as u64 - 1;
        let mut before = Value::Null;
        let found = until("the last rank to be named", || {
            let status = self.host.status();
            // Shown if the test fails.
            if status["findings"] != before {
                eprintln!("{:#}", status["findings"]);
                before = status["findings"].clone();
            }
            let found = status["findings"].as_array()?;
            let named = found.iter().find(|one| one["kind"] == "slow_rank")?;
            let is_alone = named["ranks"] == serde_json::json!([last]) && found.len() == 1;
            (is_alone && is_right(named)).then(|| named.clone())
        });
        assert_eq!(self.host.ask("status --now").status.code(), Some(1), "{found:#}");
        found
    }
}

fn slow_loader_is_named(world: usize) {
    let job = Job::start(world, "time.sleep(0.06)");
    let found = job.runs_for(2 * FROM).named(|found| {
        found["cost_ms_per_step"].as_f64().is_some_and(|cost| (50.0..75.0).contains(&cost))
            && found["main_thread"].is_object()
    });
    assert_eq!(found["class"], "host", "{found:#}");
    let (main, last) = (&found["main_thread"], world - 1);
    assert_eq!((&main["rank"], &main["function"]), (&last.into(), &"load".into()), "{found:#}");
    let says = format!("; rank {last} is in load (");
    assert!(found["evidence"].as_str().is_some_and(|text| text.contains(&says)), "{found:#}");
}

#[test]
fn slow_loader_of_two_ranks_is_named() {
    slow_loader_is_named(2);
}

#[test]
fn slow_loader_of_three_ranks_is_named() {
    slow_loader_is_named(3);
}

fn gil_holder_is_named(world: usize) {
    let job = Job::start(
        world,
        "
        import sys, threading
        def hold():
            while True: sum(range(1000))
        if threading.active_count() < 3:
            sys.setswitchinterval(0.05)
            threading.Thread(target=hold, daemon=True).start()",
    );
    // At first, few steps are long, which are pauses.
    let found = job
        .runs_for(FROM + 10)
        .named(|found| found["class"] == "host" && found["main_thread"]["gil"].is_object());
    let holder = found["main_thread"]["gil"]["function"].as_str().expect("a function");
    assert!(holder.ends_with("hold"), "{found:#}");
    assert!(found["advice"].as_str().is_some_and(|advice| advice.contains("holds the GIL")), "{found:#}");
}

#[test]
fn gil_holder_of_two_ranks_is_named() {
    gil_holder_is_named(2);
}

#[test]
fn gil_holder_of_three_ranks_is_named() {
    gil_holder_is_named(3);
}

#[test]
fn gil_holder_of_sixteen_ranks_is_named() {
    gil_holder_is_named(16);
}

/// Nearly every second has a pause.
fn checkpoint_writer_is_named(world: usize) {
    let job = Job::start(world, "if number % 20 == 0: time.sleep(1.4)");
    job.runs_for(4 * FROM);
    job.named(|found| found["cost_ms_per_step"].as_f64().is_some_and(|cost| (55.0..85.0).contains(&cost)));
    // Any later viewer gets the same finding.
    job.runs_for(5 * FROM);
    let status = job.host.status();
    assert_eq!(status["findings"][0]["ranks"], serde_json::json!([world - 1]), "{status:#}");
}

#[test]
fn checkpoint_writer_of_two_ranks_is_named() {
    checkpoint_writer_is_named(2);
}

#[test]
fn checkpoint_writer_of_three_ranks_is_named() {
    checkpoint_writer_is_named(3);
}

#[test]
fn checkpoint_writer_of_sixteen_ranks_is_named() {
    checkpoint_writer_is_named(16);
}

/// A copy of 2 GiB takes 86 ms.
fn heavy_copier_is_named(world: usize) {
    let job = Job::start(world, "ok(process.cudaMemcpy(memory, memory, c_size_t(2 << 30), 1))");
    // While the machine is busy with the start of other tests, the rank may lack CPU time too.
    let found = job.runs_for(2 * FROM).named(|found| {
        let copies = |text: &str| text.contains("; copies that its host waits for take ");
        found["cost_ms_per_step"].as_f64().is_some_and(|cost| (70.0..100.0).contains(&cost))
            && found["evidence"].as_str().is_some_and(copies)
    });
    assert_eq!(found["class"], "host", "{found:#}");
}

#[test]
fn heavy_copier_of_two_ranks_is_named() {
    heavy_copier_is_named(2);
}

#[test]
fn heavy_copier_of_three_ranks_is_named() {
    heavy_copier_is_named(3);
}

#[test]
fn heavy_copier_of_sixteen_ranks_is_named() {
    heavy_copier_is_named(16);
}

fn garbage_collector_is_named(world: usize) {
    let job = Job::start(
        world,
        "
        import gc
        if 'kept' not in globals(): globals()['kept'] = [[] for _ in range(3_000_000)]
        gc.collect()",
    );
    let found = job.runs_for(2 * FROM).named(|found| found["main_thread"].is_object());
    assert_eq!(found["class"], "host", "{found:#}");
    assert_eq!(found["main_thread"]["function"], "load", "{found:#}");
}

#[test]
fn garbage_collector_of_two_ranks_is_named() {
    garbage_collector_is_named(2);
}

#[test]
fn garbage_collector_of_three_ranks_is_named() {
    garbage_collector_is_named(3);
}

#[test]
fn garbage_collector_of_sixteen_ranks_is_named() {
    garbage_collector_is_named(16);
}

/// As `.item()` in a loop does: a small kernel, and a wait for it, 20 times.
fn one_that_waits_for_its_gpu_often_is_named(world: usize) {
    let job = Job::start(
        world,
        "
        for _ in range(20):
            ok(gemm_ex(64, 64, 64))
            sync()
            time.sleep(0.001)",
    );
    let found = job.runs_for(3 * FROM).named(|found| {
        found["cost_ms_per_step"].as_f64().is_some_and(|cost| cost > 15.0)
            && found["figures"]["waits_per_step"].as_f64().is_some_and(|waits| waits >= 20.0)
    });
    assert_eq!(found["class"], "host", "{found:#}");
}

#[test]
fn one_of_two_that_waits_for_its_gpu_often_is_named() {
    one_that_waits_for_its_gpu_often_is_named(2);
}

#[test]
fn one_of_three_that_waits_for_its_gpu_often_is_named() {
    one_that_waits_for_its_gpu_often_is_named(3);
}

#[test]
fn one_of_sixteen_that_waits_for_its_gpu_often_is_named() {
    one_that_waits_for_its_gpu_often_is_named(16);
}

/// The rank is compared with its own past.
fn longer_steps_of_a_single_rank_are_reported(fault: &str, ms: std::ops::Range<f64>) {
    // Enough steps for a baseline.
    let from = 1200;
    let job = Job::start_with(1, from, fault);
    job.runs_for(from + FROM);
    let found = until("the longer steps to be reported", || {
        let status = job.host.status();
        let [found] = &status["findings"].as_array()?[..] else { return None };
        let cost = found["cost_ms_per_step"].as_f64()?;
        (ms.contains(&cost) && found["main_thread"]["function"] == "load").then(|| found.clone())
    });
    assert_eq!((&found["kind"], &found["class"]), (&"regression".into(), &"step".into()), "{found:#}");
}

#[test]
fn longer_steps_of_a_single_rank_with_a_slow_loader_are_reported() {
    longer_steps_of_a_single_rank_are_reported("time.sleep(0.06)", 50.0..75.0);
}

#[test]
fn longer_steps_of_a_single_rank_that_copies_are_reported() {
    longer_steps_of_a_single_rank_are_reported(
        "ok(process.cudaMemcpy(memory, memory, c_size_t(2 << 30), 1))",
        70.0..100.0,
    );
}

#[test]
fn slow_loader_of_sixteen_ranks_is_named() {
    let job = Job::start(16, "time.sleep(0.2)");
    let found = job.runs_for(FROM + 30).named(|found| found["cost_ms_per_step"].is_number());
    assert_eq!(found["class"], "host", "{found:#}");
}

#[test]
fn larger_gemms_of_one_of_three_ranks_are_named() {
    let job = Job::start(3, "for _ in range(60): ok(gemm_ex(4096, 4096, 4096))");
    let found = job.runs_for(2 * FROM).named(|_| true);
    assert_eq!(found["class"], "compute", "{found:#}");
}

/// Its GPU has work for a tenth of a second, so it does not pause when the CPUs are busy.
const NEIGHBOUR: &str = "
from gpu import *
while True:
    for _ in range(50): ok(gemm_ex(8192, 8192, 8192))
    sync()
";

/// Another program, without the hook, that multiplies on the GPU of the last rank.
fn neighbour(job: &Job) -> Program {
    let mut command = job.host.place.command("python3");
    command
        .env("PYTHONPATH", built::source("hook"))
        .env("RANK", (job.ranks.len() - 1).to_string())
        .envs(DEVICES)
        .args(["-B", "-c", NEIGHBOUR]);
    Program::start(&mut command)
}

/// Steps of GEMMs that take 26 ms alone, and twice as long beside the other program, which takes every other time
/// slice. It comes after `from` steps.
fn who_shares_a_gpu_is_named(world: usize, from: u64) {
    let work = "for _ in range(12): ok(gemm_ex(8192, 8192, 8192))";
    let job = Job::start_of(world, 0, "pass", work);
    job.runs_for(from);
    assert_eq!(job.host.status()["findings"], serde_json::json!([]));
    let neighbour = neighbour(&job);
    let last = world - 1;
    let says = format!("process {} (python3) uses the GPU of rank {last} too, for ", neighbour.pid());
    let is_right = |found: &Value| {
        let cost = found["cost_ms_per_step"].as_f64();
        cost.is_some_and(|cost| (20.0..33.0).contains(&cost))
            && found["evidence"].as_str().is_some_and(|text| text.contains(&says))
    };
    let found = if world == 1 {
        until("the longer steps to be reported", || {
            let status = job.host.status();
            let [found] = &status["findings"].as_array()?[..] else { return None };
            is_right(found).then(|| found.clone())
        })
    } else {
        job.named(is_right)
    };
    assert_eq!(found["class"], "compute", "{found:#}");
    assert_eq!(found["neighbours"][0]["pid"], neighbour.pid(), "{found:#}");
    assert!(found["advice"].as_str().is_some_and(|advice| advice.contains(&neighbour.pid().to_string())));
    assert_eq!(job.host.ask("status --now").status.code(), Some(1));
}

#[test]
fn of_one_whose_gpu_another_process_uses_that_process_is_named() {
    who_shares_a_gpu_is_named(1, 10 * FROM);
}

#[test]
fn of_two_whose_gpu_another_process_uses_is_named_with_that_process() {
    who_shares_a_gpu_is_named(2, 5 * FROM);
}

#[test]
fn of_three_whose_gpu_another_process_uses_is_named_with_that_process() {
    who_shares_a_gpu_is_named(3, 5 * FROM);
}

#[test]
fn of_sixteen_whose_gpu_another_process_uses_is_named_with_that_process() {
    who_shares_a_gpu_is_named(16, FROM);
}

/// CPU throttling stops and continues a process in the same way: here every 60 ms.
fn paused_rank_is_named(world: usize) {
    let job = Job::start(world, "pass");
    job.runs_for(FROM);
    let stop = Arc::new(AtomicBool::new(false));
    let pid = job.ranks[world - 1].pid();
    let signals = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let send = |signal: &str| {
                let sent = std::process::Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
                thread::sleep(Duration::from_millis(60));
                sent.is_ok_and(|sent| sent.success())
            };
            while !stop.load(Relaxed) && send("STOP") && send("CONT") {}
            send("CONT");
        }
    });
    let found = job.named(|found| found["evidence"].as_str().is_some_and(|text| text.contains("stopped")));
    stop.store(true, Relaxed);
    signals.join().expect("it ends");
    assert_eq!(found["class"], "host", "{found:#}");
}

#[test]
fn paused_rank_of_two_is_named() {
    paused_rank_is_named(2);
}

#[test]
fn paused_rank_of_three_is_named() {
    paused_rank_is_named(3);
}

#[test]
fn paused_rank_of_sixteen_is_named() {
    paused_rank_is_named(16);
}

#[test]
fn healthy_jobs_have_no_finding() {
    for world in [1, 3] {
        let job = Job::start(world, "pass");
        job.runs_for(3 * FROM);
        let status = job.host.status();
        assert_eq!(status["findings"], serde_json::json!([]), "{status:#}");
    }
}
