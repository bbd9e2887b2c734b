//! A capture records all GPU work through CUPTI: tested with real hooks, a collector and the stand-in
//! libcupti.

use std::path::PathBuf;

use serde_json::{Value, json};
use xpu_tests::{
    host::Host,
    program::{Outcome, Program, run, until},
};

/// Each step runs a GEMM, a kernel, a collective, a copy and a fill.
const WORK: &str = "
comm = communicator()
def work():
    ok(gemm_ex(512, 512, 512))
    ok(kernel())
    ok(all_reduce(comm, 1000))
    ok(process.cudaMemcpyAsync(memory, memory, c_size_t(4096), 3, stream))
    ok(process.cudaMemsetAsync(memory, 0, c_size_t(64), stream))
    sync()
    step()
    time.sleep(0.01)
";

const ENDLESS: &str = "\nwhile True: work()";

/// A second client of CUPTI, like PyTorch's profiler. `came` counts the records that it gets.
const ANOTHER: &str = "
ctypes.CDLL('libcupti.so.13', mode=ctypes.RTLD_GLOBAL)
cupti = ctypes.CDLL('libcupti.so.13')
place = c_void_p
came, theirs = 0, []
REQUESTED = ctypes.CFUNCTYPE(None, ctypes.POINTER(place), ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t))
COMPLETED = ctypes.CFUNCTYPE(None, c_void_p, c_uint, c_void_p, c_size_t, c_size_t)
@REQUESTED
def requested(buffer, size, most):
    theirs.append(ctypes.create_string_buffer(1 << 16))
    buffer[0], size[0], most[0] = ctypes.addressof(theirs[-1]), 1 << 16, 0
@COMPLETED
def completed(_context, _stream, buffer, _size, valid):
    global came
    at = c_void_p()
    assert buffer in [ctypes.addressof(each) for each in theirs], 'a buffer of somebody else'
    while cupti.cuptiActivityGetNextRecord(c_void_p(buffer), c_size_t(valid), byref(at)) == 0: came += 1
def begin():
    ok(process.cuptiActivityRegisterCallbacks(requested, completed))
    ok(process.cuptiActivityEnable(10))
def end():
    ok(process.cuptiActivityDisable(10))
    ok(process.cuptiActivityFlushAll(1))
";

struct Job {
    host: Host,
    ranks: Vec<Program>,
}

impl Job {
    fn new(set: &[(&str, &str)], script: &str) -> Self {
        let host = Host::new();
        let start = |rank| host.rank_where(rank, set, &format!("{WORK}{script}"));
        let ranks = (0..2).map(start).collect();
        until("both ranks to train", || {
            let status = host.status();
            (status["steps"]["min"].as_u64()? >= 3 && status["coverage"]["ranks_seen"] == 2).then_some(())
        });
        Self { host, ranks }
    }

    fn file(&self) -> PathBuf {
        self.host.place.path("c.bin")
    }

    fn capture(&self, more: &str) -> Outcome {
        let _ = std::fs::remove_file(self.file());
        let done = self.host.ask(&format!(
            "capture --job train --wait 30 --no-watch --kernels -o {} {more}",
            self.file().display()
        ));
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        done
    }

    fn report(&self) -> Value {
        let done = run(self.host.xpu_top("report --json").arg(self.file()));
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    }

    /// Checks that every step of every rank recorded exactly these operations.
    #[track_caller]
    fn every_step_has(&self, expected: &Value) {
        let report = self.report();
        for rank in report["ranks"].as_array().expect("ranks") {
            for step in rank["steps"].as_array().expect("steps") {
                let mut operations = step["operations"].clone();
                // The number of functions varies: Python may collect garbage in any step.
                operations.as_object_mut().expect("kinds").remove("function");
                assert_eq!(&operations, expected, "{report:#}");
            }
        }
    }
}

fn timed() -> Value {
    json!({ "gemm": 1, "collective": 1, "copy": 1, "set": 1, "blocked": 1 })
}

fn all() -> Value {
    let mut all = timed();
    all["activity_kernel"] = json!(3);
    all
}

#[test]
fn launched_work_is_recorded_in_its_step_and_nothing_afterwards() {
    let job = Job::new(&[], ENDLESS);
    job.capture("--steps 4");
    job.every_step_has(&all());
    let report = job.report();
    let step = &report["ranks"][0]["steps"][1]["on_gpu_ns"];
    // CUPTI records the kernels that the hook timed, without the launch latency, and one of 5 us that the
    // hook did not time.
    let hooks =
        step["gemm"].as_u64().zip(step["collective"].as_u64()).map(|(gemm, collective)| gemm + collective);
    let recorded = step["activity_kernel"].as_u64().expect("kernels");
    assert!((5_500..=5_000 + hooks.expect("both were timed")).contains(&recorded), "{step:#}");

    // CUPTI does not report the launching thread.
    let tables = job.host.place.path("tables");
    let exported = run(job.host.xpu_top("export --kind kernel").arg(job.file()).arg("--csv").arg(&tables));
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    let kernels = std::fs::read_to_string(tables.join("kernels.csv")).expect("a table");
    let mut rows = kernels.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let at = rows.next().and_then(|head| head.iter().position(|name| *name == "thread")).expect("a column");
    let threads: Vec<_> = rows.map(|row| row[at].to_owned()).collect();
    assert!(threads.len() > 4 && threads.iter().all(String::is_empty), "{threads:?}");

    let _ = std::fs::remove_file(job.file());
    let without = job.host.ask(&format!("capture --job train --steps 2 -o {}", job.file().display()));
    assert_eq!(without.status.code(), Some(0), "{without:?}");
    job.every_step_has(&timed());
    job.capture("--steps 2");
    job.every_step_has(&all());
}

#[test]
fn records_of_all_versions_are_read() {
    for version in ["18", "22", "26", "130500"] {
        let job = Job::new(&[("SIMGPU_CUPTI_VERSION", version)], ENDLESS);
        let done = job.capture("--steps 2");
        assert!(!done.stderr.contains("without"), "{version}: {done:?}");
        job.every_step_has(&all());
    }
}

#[test]
fn unavailable_parts_are_reported_and_the_rest_is_captured() {
    for (set, why) in [
        (("XPU_TOP_CUPTI", "0"), "started with XPU_TOP_CUPTI=0, which forbids CUPTI"),
        (("SIMGPU_CUPTI_FAULT", "refused"), "35 CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        (("SIMGPU_CUPTI_FAULT", "held"), "Nsight, a debugger or another profiler holds CUPTI"),
        (("SIMGPU_CUPTI_FAULT", "silent"), "CUPTI gives no records though there are launches"),
        (("SIMGPU_CUPTI_VERSION", "17"), "version 17 is not supported"),
        (("SIMGPU_CUPTI_VERSION", "140000"), "version 140000 is not supported"),
    ] {
        let job = Job::new(&[set], ENDLESS);
        for _ in 0..2 {
            let done = job.capture("--steps 2");
            let said = "ranks 0,1 without all kernels: ";
            assert!(done.stderr.contains(said) && done.stderr.contains(why), "{set:?}: {done:?}");
            job.every_step_has(&timed());
        }
    }
}

#[test]
fn records_that_were_dropped_are_counted() {
    let job = Job::new(&[("SIMGPU_CUPTI_FAULT", "drops")], ENDLESS);
    let done = job.capture("--steps 20");
    assert!(done.stderr.contains("of CUPTI's records were lost"), "{done:?}");
    let report = job.report();
    let steps = report["ranks"][0]["steps"].as_array().expect("steps");
    let kernels: u64 = steps.iter().filter_map(|step| step["operations"]["activity_kernel"].as_u64()).sum();
    assert!((45..60).contains(&kernels), "{report:#}");
}

#[test]
fn unfinished_later_steps_of_a_gpu_far_behind_are_not_lost() {
    let script = "
while True:
    for _ in range(100):
        ok(gemm_ex(16384, 16384, 16384))
        ok(kernel())
        step()
    sync()
";
    let job = Job::new(&[], script);
    // The hook learns the step rate after a few bursts of steps.
    until("bursts of steps", || (job.host.status()["steps"]["min"].as_u64()? >= 300).then_some(()));
    let done = job.capture("--steps 5");
    assert!(!done.stderr.contains("lost"), "{done:?}");
    job.every_step_has(&json!({"gemm": 1, "activity_kernel": 2}));
}

#[test]
fn a_program_that_already_uses_cupti_is_not_disturbed() {
    let script = "
begin()
first = counter('steps')
while not os.path.exists(os.environ['RENDEZVOUS'] + '/enough'): work()
end()
print('records', came >= 3 * (counter('steps') - first), file=sys.stderr, flush=True)
while True: work()
";
    let job = Job::new(&[], &format!("{ANOTHER}{script}"));
    let done = job.capture("--steps 3");
    assert!(done.stderr.contains("torch.profiler, or another user of CUPTI, records"), "{done:?}");
    job.every_step_has(&timed());
    std::fs::write(job.host.place.path("enough"), "").expect("the place takes it");
    until("the other to have all of its records", || {
        job.ranks.iter().all(|rank| rank.said().contains("records True")).then_some(())
    });
    // The other client has ended, so the hook may use CUPTI.
    job.capture("--steps 2");
    job.every_step_has(&all());
}

#[test]
fn a_profiler_that_begins_during_a_capture_has_exactly_its_own_records() {
    let script = "
while not os.path.exists(os.environ['RENDEZVOUS'] + '/now'): work()
# The GPU is still at it when what is there is taken back.
for _ in range(5): ok(gemm_ex(16384, 16384, 16384))
begin()
sync()
for _ in range(5): work()
end()
print('records', came, file=sys.stderr, flush=True)
while True: work()
";
    let job = Job::new(&[("XPU_TOP_SAMPLE", "gemm=64,collective=16")], &format!("{ANOTHER}{script}"));
    let at = format!("{}:{}", job.host.address, xpu_tests::host::BASE);
    let mut command = job
        .host
        .xpu_top(&format!("capture --job train --kernels --steps 200 --wait 40 -o {}", job.file().display()));
    let capturing = Program::start(command.args(["--hosts", &at, "--key-file"]).arg(job.host.key()));
    until("both to agree", || capturing.said().contains("2 of 2 ranks agreed").then_some(()));
    // CUPTI starts 0.3 s before the first step; the steps take 2 s.
    until("the hooks to time everything", || {
        (job.host.status()["ranks"][0]["collective_timed_one_in"] == 1).then_some(())
    });
    std::fs::write(job.host.place.path("now"), "").expect("the place takes it");
    until("the other to have its records", || {
        job.ranks.iter().all(|rank| rank.said().contains("records 15")).then_some(())
    });
    let done = capturing.end();
    assert!(done.stderr.contains("began to record during this capture"), "{done:?}");
    let report = job.report();
    let steps = report["ranks"][0]["steps"].as_array().expect("steps");
    assert!(steps.iter().all(|step| step["operations"]["activity_kernel"].is_null()), "{report:#}");
}

#[test]
fn a_rank_that_ends_or_is_killed_during_a_capture_does_not_affect_the_others() {
    let job = Job::new(&[], "\nwhile counter('steps') < 400: work()\nsync()\nprint('ended', flush=True)");
    let at = format!("{}:{}", job.host.address, xpu_tests::host::BASE);
    let mut command = job
        .host
        .xpu_top(&format!("capture --job train --kernels --steps 900 --wait 30 -o {}", job.file().display()));
    let capturing = Program::start(command.args(["--hosts", &at, "--key-file"]).arg(job.host.key()));
    let done = capturing.end();
    assert!(done.stderr.contains("rank 0: it ended before the last step"), "{done:?}");
    for rank in job.ranks {
        let ended = rank.end();
        assert_eq!((ended.status.code(), ended.stdout.contains("ended")), (Some(0), true), "{ended:?}");
    }
}
