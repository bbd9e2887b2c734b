//! A job in real processes that hangs because rank 1 does something else, and the report of it.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{host::Host, program::Program};

/// The longest time from the start of the ranks to the finding, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// A hang is named within this many seconds after progress stops.
pub const SOON: f64 = 15.0;

/// A training loop in which rank 1 does something else in its step 12.
#[must_use]
pub fn script(otherwise: &str, step: &str) -> String {
    format!(
        "
def reduce(count, dtype=NCCL_BF16, on=None):
    return process.ncclAllReduce(memory, memory, c_size_t(count), dtype, 0, on or comm, stream)
comm = communicator()
other = c_void_p()
ok(process.ncclCommSplit(comm, 0, RANK, byref(other), None))
{otherwise}
def train(at):
    differs = (RANK, at) == (1, 12)
    first, size, kind = (comm, 1000, NCCL_BF16)
{step}
    ok(process.ncclAllReduce(memory, memory, c_size_t(2000), NCCL_BF16, 0, comm, stream))
    sync()
    step()
for at in range(100000):
    train(at)
    time.sleep(max(0.02, WORLD * 0.003))
"
    )
}

/// A job that may hang.
#[derive(Debug)]
pub struct Hung {
    pub host: Host,
    pub ranks: Vec<Program>,
}

impl Hung {
    pub fn of(world: usize, script: &str) -> Self {
        Self::with(world, &[], script)
    }

    pub fn with(world: usize, set: &[(&str, &str)], script: &str) -> Self {
        let host = Host::new();
        // Each rank has its own GPU.
        let devices = world.max(8).to_string();
        let set = [set, &[("SIMGPU_DEVICES", devices.as_str())]].concat();
        let ranks = (0..world).map(|rank| host.rank_of_where((rank, world), &set, script)).collect();
        Self { host, ranks }
    }

    /// The first hang or exit that is found, and the status that shows it.
    pub fn hang(&self) -> (Value, Value) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let status = self.host.status();
            let findings = status["findings"].as_array().cloned().unwrap_or_default();
            if let Some(hang) =
                findings.into_iter().find(|found| found["kind"] == "hang" || found["kind"] == "exited")
            {
                return (hang, status);
            }
            // Many ranks need the CPU themselves.
            std::thread::sleep(Duration::from_millis(4 * self.ranks.len() as u64));
        }
        panic!("no hang was found: {}", self.host.collector_log());
    }
}

/// Checks that rank 1 is named in time, with this class and these words in the evidence.
pub fn named(world: usize, script: &str, class: &str, kind: &str, words: &[&str]) -> Hung {
    let job = Hung::of(world, script);
    let (hang, status) = job.hang();
    let evidence = hang["evidence"].as_str().unwrap_or_default();
    assert_eq!((&hang["class"], &hang["ranks"]), (&class.into(), &serde_json::json!([1])), "{evidence}");
    for word in words {
        assert!(evidence.contains(word), "{word}: {evidence}");
    }
    let since = hang["since_s"].as_f64().expect("a time");
    // Many processes on few cores delay each other and the viewer.
    let soon = if world > 8 { SOON + 5.0 } else { SOON };
    assert!(since <= soon, "{since}: {evidence}");
    let divergence = &status["divergence"];
    assert_eq!(
        (&divergence["kind"], &divergence["ranks"]),
        (&kind.into(), &serde_json::json!([1])),
        "{divergence}"
    );
    job
}

/// The step's first collective.
pub const SAME: &str =
    "    ok(process.ncclAllReduce(memory, memory, c_size_t(size), kind, 0, first, stream))";
