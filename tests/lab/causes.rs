//! The eleven ways in which rank 1 of a job causes a hang, each with the expected report, in real processes on
//! the simulated GPU; and a healthy job, of which none is expected.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    healthy,
    hung::{Hung, SAME, script},
};

/// Where the report must show the place in the program.
#[derive(Clone, Copy, Debug)]
pub enum Site {
    /// In the evidence of the calls.
    Named(&'static str),
    /// In the evidence of the stack of rank 1: the sentence, and the first frame of `places`.
    OnStack(&'static str),
}

#[derive(Clone, Debug)]
pub struct Cause {
    pub name: &'static str,
    pub script: String,
    pub class: &'static str,
    /// The kind of divergence, if the recorded calls show it.
    pub divergence: Option<&'static str>,
    pub site: Site,
    /// The possible states of rank 1's GPU in the operation of the finding.
    pub gpu: &'static [&'static str],
}

/// The report about a hung job.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Whether rank 1 alone is named, with the right class.
    pub culprit: bool,
    pub site: bool,
    pub gpu: bool,
    /// From the last progress to the first report, in seconds.
    pub seconds: f64,
    pub evidence: String,
}

impl Verdict {
    pub fn is_right(&self) -> bool {
        self.culprit && self.site && self.gpu
    }
}

/// The class of the healthy job, in which nothing is reported.
const NONE: &str = "none";

/// The beginning of the clause with the place of rank 1.
const PLACE: &str = "rank 1 is in ";

/// How long the evidence may lack the records and stacks, which are read after the first report.
const COMPLETE: Duration = Duration::from_secs(12);

const LOG: &str = "def log_metrics():
    ok(process.ncclAllReduce(memory, memory, c_size_t(123), NCCL_FLOAT, 0, comm, stream))";

const LOCK: &str = "import threading
lock = threading.Lock()
def writes_twice():
    with lock:
        with lock: pass";

/// The loader's worker has died, so nothing puts a batch into the queue.
const LOADER: &str = "import queue
batches = queue.Queue()
def next_batch():
    while True:
        try: return batches.get(timeout=5)
        except queue.Empty: pass";

const TWO: &str = "    for on in (other, comm) if differs else (comm, other):
        ok(process.ncclAllReduce(memory, memory, c_size_t(500), NCCL_BF16, 0, on, stream))
        sync()";

const DRAIN: &str = "def drain():
    ok(process.ncclRecv(memory, c_size_t(64), NCCL_BF16, 0, comm, stream))
    sync()";

const PAIR: &str = "    if RANK == 0: ok(process.ncclSend(memory, c_size_t(64), NCCL_BF16, 1, comm, stream))
    if RANK == 1: ok(process.ncclRecv(memory, c_size_t(64), NCCL_BF16, 0, comm, stream))
    if differs: drain()";

/// Each rank waits for its asynchronous all-reduce by asking every millisecond whether it is done.
const ASYNC: &str = "side, at_work = made(process.cudaStreamCreateWithFlags, c_uint(1)), made(process.cudaEventCreateWithFlags, c_uint(2))
done = made(process.cudaEventCreateWithFlags, c_uint(2))
def begin_logging():
    ok(process.cudaEventRecord(at_work, stream))
    ok(process.cudaStreamWaitEvent(side, at_work, c_uint(0)))
    ok(process.ncclAllReduce(memory, memory, c_size_t(500), NCCL_BF16, 0, comm, side))
    ok(process.cudaEventRecord(done, side))
def wait():
    while process.cudaEventQuery(done) != 0: time.sleep(0.001)";

const LOGGED: &str = "    if not differs:
        begin_logging()
        wait()";

/// The exception skips the rest of the step, and the rank continues with the next step.
fn swallowed() -> String {
    let script = script("", &format!("{SAME}\n    if differs: raise ValueError('a bad batch')"));
    script.replace("    train(at)\n", "    try: train(at)\n    except ValueError: pass\n")
}

/// All causes.
pub fn causes() -> Vec<Cause> {
    let of =
        |name, script, class, divergence, site, gpu| Cause { name, script, class, divergence, site, gpu };
    let before = |what: &str| script("", &format!("    {what}\n{SAME}"));
    vec![
        of(
            "one call too many",
            script(LOG, &format!("{SAME}\n    if differs: log_metrics()")),
            "mismatch",
            Some("extra"),
            Site::Named("log_metrics"),
            &["begun", "still"],
        ),
        of(
            "an asynchronous call left out",
            script(ASYNC, &format!("{LOGGED}\n{SAME}")),
            "mismatch",
            Some("left_out"),
            Site::Named("begin_logging"),
            &["begun", "still", "launched"],
        ),
        of(
            "another size",
            before("size = 1001 if differs else 1000"),
            "mismatch",
            Some("size"),
            Site::Named("2,002 B"),
            &["begun", "still"],
        ),
        of(
            "another type",
            before("kind = NCCL_FLOAT if differs else NCCL_BF16"),
            "mismatch",
            Some("type"),
            Site::Named("f32"),
            &["begun", "still"],
        ),
        of(
            "another order",
            script("", TWO),
            "deadlock",
            Some("order"),
            Site::Named("<string>:"),
            &["not_called", "begun", "still"],
        ),
        of(
            "a kernel without end",
            before("if differs: ok(gemm_ex(2000000, 2000000, 2000000))"),
            "not_started",
            None,
            Site::Named("GEMM 2000000x2000000x2000000"),
            &["behind"],
        ),
        of(
            "an exception swallowed",
            swallowed(),
            "mismatch",
            None,
            Site::Named("<string>:"),
            &["begun", "still"],
        ),
        of(
            "a lock taken twice",
            script(LOCK, &format!("    if differs: writes_twice()\n{SAME}")),
            "not_entered",
            Some("not_entered"),
            Site::OnStack("writes_twice"),
            &["not_called"],
        ),
        of(
            "a loader that is stuck",
            script(LOADER, &format!("    if differs: next_batch()\n{SAME}")),
            "not_entered",
            Some("not_entered"),
            Site::OnStack("next_batch"),
            &["not_called"],
        ),
        of(
            "a receive without its send",
            script(DRAIN, PAIR),
            "unmatched",
            Some("unmatched"),
            Site::Named("drain"),
            &["begun", "still"],
        ),
        of(
            "a rank that left",
            before("if (RANK, at) == (1, 60): os._exit(0)"),
            "not_entered",
            Some("not_entered"),
            // A step has two collectives.
            Site::Named("number 120 of"),
            &["not_called"],
        ),
        of("no hang: compiles, evaluates, saves", healthy::script(15, 60), NONE, None, Site::Named(""), &[]),
    ]
}

impl Cause {
    /// Runs the job with this number of ranks. Waits for the report, and then for the stacks and records.
    pub fn run(&self, world: usize) -> Verdict {
        if self.class == NONE {
            let outcome = healthy::run(world, &self.script);
            let is_right = outcome.is_ok();
            let evidence = outcome.err().unwrap_or_default();
            return Verdict { culprit: is_right, site: is_right, gpu: is_right, seconds: 0.0, evidence };
        }
        let job = Hung::of(world, &self.script);
        let (first, mut status) = job.hang();
        let (seconds, reported) = (first["since_s"].as_f64().unwrap_or(f64::INFINITY), Instant::now());
        loop {
            let verdict = self.verdict(&status, seconds);
            if verdict.is_right() || reported.elapsed() > COMPLETE {
                return verdict;
            }
            status = job.host.status();
        }
    }

    fn verdict(&self, status: &Value, seconds: f64) -> Verdict {
        let findings = status["findings"].as_array().cloned().unwrap_or_default();
        let stops = |one: &&Value| one["kind"] == "hang" || one["kind"] == "exited";
        let found = findings.iter().find(stops).cloned().unwrap_or_default();
        let evidence = found["evidence"].as_str().unwrap_or_default().to_owned();
        let diverges = &status["divergence"];
        let recorded = self
            .divergence
            .is_none_or(|kind| (&diverges["kind"], &diverges["ranks"]) == (&kind.into(), &json!([1])));
        let site = match self.site {
            Site::Named(text) => {
                evidence.split("; ").any(|clause| !clause.starts_with(PLACE) && clause.contains(text))
            }
            Site::OnStack(function) => {
                let place = &found["places"][0];
                evidence.contains(&format!("{PLACE}{function} (<string>:"))
                    && (&place["rank"], &place["frames"][0]["function"]) == (&1.into(), &function.into())
                    && is_on_stack_of_rank_1(status, function)
            }
        };
        let groups = found["gpus"].as_array().cloned().unwrap_or_default();
        let of_rank_1 =
            |group: &&Value| group["ranks"].as_array().is_some_and(|ranks| ranks.contains(&json!(1)));
        let state = groups.iter().find(of_rank_1).and_then(|group| group["state"].as_str());
        Verdict {
            culprit: recorded && found["class"] == self.class && found["ranks"] == json!([1]),
            site,
            gpu: state.is_some_and(|state| self.gpu.contains(&state)),
            seconds,
            evidence,
        }
    }
}

fn is_on_stack_of_rank_1(status: &Value, function: &str) -> bool {
    let stacks = status["stacks"]["folded"].as_str().unwrap_or_default();
    let mut lines = stacks.lines().filter(|line| line.contains(function)).peekable();
    lines.peek().is_some() && lines.all(|line| line.contains("@1|") || line.contains("@1;"))
}
