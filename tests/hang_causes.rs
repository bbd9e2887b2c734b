//! Ranks that stop in their own code, and healthy ranks that others wait for. Real Python processes run under
//! the hook on the simulated GPU, with a real collector.

use std::{
    fs,
    time::{Duration, Instant},
};

use xpu_tests::{causes::causes, host::Host, hung::SOON};

/// Runs this cause with each of these numbers of ranks, and checks the report.
fn right(name: &str, worlds: &[usize]) {
    let cause = causes().into_iter().find(|cause| cause.name == name).expect("it is one of the ten");
    for &world in worlds {
        let verdict = cause.run(world);
        assert!(verdict.is_right(), "{name}, {world} ranks: {verdict:#?}");
        // Many processes on few cores delay each other and the viewer.
        let soon = if world > 8 { SOON + 5.0 } else { SOON };
        assert!(verdict.seconds <= soon, "{name}, {world} ranks: {verdict:#?}");
    }
}

#[test]
fn a_lock_taken_twice() {
    right("a lock taken twice", &[2, 8]);
}

#[test]
fn a_loader_that_is_stuck() {
    right("a loader that is stuck", &[2, 8]);
}

#[test]
fn an_exception_swallowed_on_one_rank() {
    right("an exception swallowed", &[2, 8]);
}

/// `cargo run --release -p xpu-tests --example hang_table` has the other causes: all ten with 64 processes
/// take minutes.
#[test]
fn sixty_four_ranks() {
    right("one call too many", &[64]);
    right("a kernel without end", &[64]);
}

/// Before the first step all ranks compile kernels, rank 1 for longer. Then all evaluate. Then rank 0 saves a
/// checkpoint without a CUDA call, for longer than the threshold of a hang.
const HEALTHY: &str = "
import hashlib, tempfile
comm = communicator()
def works(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until: hashlib.sha256(bytes(1 << 16)).digest()
def saves(seconds):
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < until:
            file.seek(0)
            file.write(bytes(1 << 20))
            time.sleep(0.05)
works(14 if RANK == 1 else 2)
def train():
    ok(gemm_ex(256, 256, 256))
    ok(all_reduce(comm, 1000))
    sync()
    step()
    time.sleep(0.02)
for at in range(1, 100000):
    train()
    if at == 100:
        for _ in range(100):
            ok(gemm_ex(128, 128, 128))
            sync()
            time.sleep(0.02)
    if at == 150 and RANK == 0: saves(25)
";

#[test]
fn compiling_evaluating_and_saving_are_no_hang() {
    let host = Host::new();
    let _ranks: Vec<_> = (0..2).map(|rank| host.rank(rank, HEALTHY)).collect();
    let (begun, mut last) = (Instant::now(), 0);
    while last < 200 && begun.elapsed() < Duration::from_mins(3) {
        let status = host.status();
        let findings = status["findings"].as_array().cloned().unwrap_or_default();
        let stops = findings.iter().find(|one| one["kind"] == "hang" || one["kind"] == "exited");
        assert_eq!(stops, None, "after {:?} at step {last}", begun.elapsed());
        last = status["steps"]["max"].as_u64().unwrap_or(last);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(last >= 200, "it went on: {last}");
    let kept = fs::read_dir(host.place.path("state/xpu-top/hangs")).into_iter().flatten().count();
    assert_eq!(kept, 0, "{}", host.collector_log());
}
