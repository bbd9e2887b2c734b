//! Ranks that stop in their own code, and healthy ranks that others wait for, on a real collector and real
//! Python processes under the hook, on the simulated GPU.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;
use xpu_tests::{
    host::Host,
    hung::{Hung, SAME, named, script},
    program::until,
};

/// In no call, with this function on its stack.
fn stands_in(world: usize, function: &str, otherwise: &str) {
    let script = script(otherwise, &format!("    if differs: {function}()\n{SAME}"));
    let words = ["rank 1 did not enter AllReduce", "it is in no CUDA or NCCL call"];
    let job = named(world, &script, "not_entered", "not_entered", &words);
    let stacks = until("its stack", || {
        let stacks = job.host.status()["stacks"]["folded"].as_str()?.to_owned();
        stacks.contains(function).then_some(stacks)
    });
    let line = stacks.lines().find(|line| line.contains(function)).expect("its line");
    assert!(line.contains("@1|") || line.contains("@1;"), "only rank 1 is there: {line}");
}

const LOCK: &str = "import threading
lock = threading.Lock()
def writes_twice():
    with lock:
        with lock: pass";

/// Its worker has died, and nobody puts a batch into the queue.
const LOADER: &str = "import queue
batches = queue.Queue()
def next_batch():
    while True:
        try: return batches.get(timeout=5)
        except queue.Empty: pass";

#[test]
fn a_lock_taken_twice() {
    stands_in(2, "writes_twice", LOCK);
    stands_in(8, "writes_twice", LOCK);
}

#[test]
fn a_loader_that_is_stuck() {
    stands_in(2, "next_batch", LOADER);
    stands_in(8, "next_batch", LOADER);
}

/// The rest of the step is skipped, and the rank goes on with the next one.
fn swallowed() -> String {
    let raises = format!("{SAME}\n    if differs: raise ValueError('a bad batch')");
    let script = script("", &raises);
    let skips = "    try: train(at)\n    except ValueError: pass\n";
    script.replace("    train(at)\n", skips)
}

#[test]
fn an_exception_swallowed_on_one_rank() {
    for world in [2, 8] {
        let job = Hung::of(world, &swallowed());
        let (hang, status) = job.hang();
        let evidence = hang["evidence"].as_str().unwrap_or_default();
        assert_eq!((&hang["class"], &hang["ranks"]), (&"mismatch".into(), &json!([1])), "{evidence}");
        assert_eq!(status["divergence"]["ranks"], json!([1]), "{evidence}");
        assert!(evidence.contains("<string>:"), "the place of the call: {evidence}");
    }
}

/// Takes some minutes of a core.
#[test]
#[ignore = "64 processes for each fault: cargo nextest run -p xpu-tests --test hang_causes --run-ignored only"]
fn sixty_four_ranks() {
    stands_in(64, "writes_twice", LOCK);
    stands_in(64, "next_batch", LOADER);
    let log = "def log_metrics():\n    ok(process.ncclAllReduce(memory, memory, c_size_t(123), NCCL_FLOAT, 0, comm, stream))";
    let extra = script(log, &format!("{SAME}\n    if differs: log_metrics()"));
    named(
        64,
        &extra,
        "mismatch",
        "extra",
        &["rank 1 called one AllReduce", "log_metrics", "the 63 others never do"],
    );
    let left = script("", &format!("    if (RANK, at) == (1, 150): os._exit(0)\n{SAME}"));
    named(64, &left, "not_entered", "not_entered", &["rank 1 did not enter AllReduce", "it has ended"]);
}

/// Kernels are compiled before the first step, on rank 1 for longer; then an evaluation on all; then rank 0 saves a
/// checkpoint, without a call of CUDA, for longer than a hang would stand.
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
