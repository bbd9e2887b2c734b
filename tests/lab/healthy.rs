//! A job that does not hang, although it pauses for longer than the threshold of a hang.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::hung::Hung;

/// The job runs to this step.
const LAST: u64 = 200;

/// The longest time from the start of the ranks to the last step, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// Before the first step all ranks compile kernels, rank 1 for longer. Then all evaluate for `evaluating` seconds.
/// Then rank 0 saves a checkpoint without a CUDA call, for `saving` seconds.
#[must_use]
pub fn script(evaluating: u64, saving: u64) -> String {
    format!(
        "
import hashlib, tempfile
comm = communicator()
def works(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until: hashlib.sha256(bytes(1 << 16)).digest()
def evaluates(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ok(gemm_ex(128, 128, 128))
        sync()
        time.sleep(0.02)
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
    if at == 100: evaluates({evaluating})
    if at == 150 and RANK == 0: saves({saving})
"
    )
}

/// Runs the job. The error is what was reported as a hang or an exit, or why the job did not get to its last step.
pub fn run(world: usize, script: &str) -> Result<(), String> {
    let job = Hung::of(world, script);
    let (begun, mut last) = (Instant::now(), 0);
    while last < LAST {
        let status = job.host.status();
        let findings = status["findings"].as_array().cloned().unwrap_or_default();
        let stops = findings.iter().find(|one| one["kind"] == "hang" || one["kind"] == "exited");
        if let Some(found) = stops {
            return Err(format!("after {:?} at step {last}: {}", begun.elapsed(), found["evidence"]));
        }
        last = status["steps"]["max"].as_u64().unwrap_or(last);
        if begun.elapsed() > PATIENCE {
            return Err(format!("it is at step {last}"));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    match fs::read_dir(job.host.place.path("state/xpu-top/hangs")).into_iter().flatten().count() {
        0 => Ok(()),
        kept => Err(format!("{kept} incident folders: {}", job.host.collector_log())),
    }
}
