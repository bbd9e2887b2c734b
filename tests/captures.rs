//! `xpu-top capture` on a real collector and real hooks on the simulated GPU: the content of the file, and
//! the messages of failures.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xpu_tests::{
    built,
    host::{BASE, Host},
    place::Place,
    port::free_base,
    program::{Outcome, Program, run, until},
    pty::Terminal,
};

/// Each step runs three GEMMs, one collective alone, two in a group, a copy and a fill.
const TRAINS: &str = "
comm = communicator()
def work():
    for side in (256, 512, 512): ok(gemm_ex(side, side, side))
    ok(all_reduce(comm, 1000))
    ok(process.ncclGroupStart())
    for _ in range(2): ok(all_reduce(comm, 500))
    ok(process.ncclGroupEnd())
    ok(process.cudaMemcpyAsync(memory, memory, c_size_t(4096), 3, stream))
    ok(process.cudaMemsetAsync(memory, 0, c_size_t(64), stream))
    sync()
    step()
    time.sleep(0.01)
";

const ENDLESS: &str = "\nwhile True: work()";

struct Job {
    host: Host,
    ranks: Vec<Program>,
}

impl Job {
    fn new(script: &str) -> Self {
        let host = Host::new();
        let ranks = (0..2)
            .map(|rank| {
                host.rank_where(
                    rank,
                    &[("XPU_TOP_SAMPLE", "gemm=64,collective=16")],
                    &format!("{TRAINS}{script}"),
                )
            })
            .collect();
        until("both ranks to train", || {
            (host.status()["steps"]["min"].as_u64()? >= 3 && host.status()["coverage"]["ranks_seen"] == 2)
                .then_some(())
        });
        Self { host, ranks }
    }

    fn file(&self) -> PathBuf {
        self.host.place.path("c.bin")
    }

    /// Runs a capture to its end. An existing file is removed first.
    fn capture(&self, more: &str) -> Outcome {
        let _ = fs::remove_file(self.file());
        self.host.ask(&format!("capture --no-watch --job train -o {} {more}", self.file().display()))
    }

    /// Starts a long capture, and waits until all ranks have agreed.
    fn begin_capture(&self, more: &str) -> Program {
        let mut command =
            self.host.xpu_top(&format!("capture --no-watch --steps 900 -o {} {more}", self.file().display()));
        let at = format!("{}:{BASE}", self.host.address);
        let capturing = Program::start(command.args(["--hosts", &at, "--key-file"]).arg(self.host.key()));
        until("both to agree", || capturing.said().contains("2 of 2 ranks agreed").then_some(()));
        capturing
    }

    fn report(&self) -> Value {
        let done = run(self.host.xpu_top("report --json").arg(self.file()));
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    }
}

/// As programs do that wait for their GPU every ten or twenty steps.
#[test]
fn all_operations_have_gpu_times_though_the_host_launches_a_thousand_ahead() {
    let job = Job::new(
        "
def ahead():
    for _ in range(400): ok(gemm_ex(3072, 3072, 3072))
    ok(all_reduce(comm, 1000))
    step()
while True:
    for _ in range(6): ahead()
    sync()
",
    );
    let done = job.capture("--steps 3 --wait 25");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let report = job.report();
    assert_eq!((&report["dropped"], &report["untimed"]), (&json!(0), &json!(0)), "{report:#}");
    assert!(report["operations"].as_u64() >= Some(2 * 3 * 401), "{report:#}");
}

#[test]
fn a_capture_has_all_launched_work_and_leaves_the_job_unchanged() {
    let job = Job::new(ENDLESS);
    let rates = || job.host.status()["ranks"][0]["collective_timed_one_in"].clone();
    assert_eq!(rates(), 16);
    let done = job.capture("--steps 4 --wait 25");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let report = job.report();
    assert_eq!(
        (report["steps"].as_array().map(Vec::len), &report["dropped"]),
        (Some(4), &json!(0)),
        "{report:#}"
    );
    assert_eq!(report["untimed"], 0);
    assert!(report["pace"]["steps_before"].as_u64() >= Some(20), "{:#}", report["pace"]);
    for rank in report["ranks"].as_array().expect("ranks") {
        for step in rank["steps"].as_array().expect("steps") {
            let all = json!({ "gemm": 3, "collective": 3, "group": 1, "copy": 1, "set": 1, "blocked": 1 });
            let mut operations = step["operations"].clone();
            // The number of functions varies: Python may collect garbage in any step.
            operations.as_object_mut().expect("kinds").remove("function");
            assert_eq!(operations, all, "{report:#}");
            assert!(step["on_gpu_ns"]["gemm"].as_u64() > Some(0), "{step:#}");
        }
        assert_eq!((&rank["ended"], &rank["source"]), (&json!("Done"), &json!("Marked")));
    }
    until("as much to be timed as before", || (rates() == 16).then_some(()));

    let one = job.capture("--steps 1 --ranks 1 --wait 25");
    assert_eq!(one.status.code(), Some(0), "{one:?}");
    let ranks = job.report()["ranks"].clone();
    assert_eq!((ranks.as_array().map(Vec::len), &ranks[0]["rank"]), (Some(1), &json!(1)), "{one:?}");
}

#[test]
fn spans_of_the_program_are_in_the_capture() {
    let job = Job::new(
        "
process.xpu_top_span_begin.restype = c_uint64
while True:
    outer = process.xpu_top_span_begin()
    inner = process.xpu_top_span_begin()
    time.sleep(0.002)
    process.xpu_top_span_end(b'data', c_uint64(inner))
    work()
    process.xpu_top_span_end(b'turn', c_uint64(outer))",
    );
    let done = job.capture("--steps 4 --wait 25");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let report = job.report();
    let rows = report["host"].as_array().expect("rows");
    for (name, least) in [("data", 2e6), ("turn", 12e6)] {
        let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{report:#}"));
        // On each of the two ranks, the first span may have begun before the first step, and the last may
        // have ended after the last.
        assert!((row["kind"] == "span") && (6..=8).contains(&row["count"].as_u64().unwrap()), "{row}");
        assert!(row["p50_ns"].as_f64() > Some(least), "{row}");
    }
    // Spans are also counted without a capture.
    let asked = job.host.ask("status --json --rank 1 --wait 5");
    let ranks = serde_json::from_str::<Value>(&asked.stdout).expect("a document")["ranks"].clone();
    let spans = ranks.as_array().and_then(|ranks| ranks.iter().find(|rank| rank["rank"] == 1));
    let spans = spans.map(|rank| rank["activity"]["spans"].clone()).unwrap_or_default();
    let of = |name: &str| spans.as_array()?.iter().find(|span| span["name"] == name).cloned();
    let (data, turn) = (of("data").expect("data"), of("turn").expect("turn"));
    assert!(data["count"].as_u64() > Some(4) && turn["took_s"].as_f64() > data["took_s"].as_f64(), "{spans}");
}

#[test]
fn detected_steps_of_a_capture_are_the_same_on_both_ranks() {
    three_steps_of_four_micro_batches("from programs import *\ntrain(accumulates)", "detected", "Detected");
}

#[test]
fn optimizer_steps_with_accumulation_are_the_same_on_both_ranks() {
    let script = "
from programs import *
from torch_hooks import *
import_torch()
wait_until_watched()
adam = Adam([object()])
def work(number):
    accumulates(number)
    adam.step()
train(work)";
    three_steps_of_four_micro_batches(script, "optimizer", "Optimizer");
}

fn three_steps_of_four_micro_batches(script: &str, source: &str, name: &str) {
    let host = Host::new();
    let ranks: Vec<_> = (0..2).map(|rank| host.rank(rank, script)).collect();
    until("both to have steps", || {
        let status = host.status();
        let has_steps = |rank: &Value| rank["step_source"] == source;
        (status["ranks"].as_array()?.iter().filter(|rank| has_steps(rank)).count() == 2).then_some(())
    });
    let job = Job { host, ranks };
    let done = job.capture("--steps 3 --wait 25");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let report = job.report();
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(3), "{report:#}");
    let both = report["ranks"].as_array().expect("ranks");
    assert_eq!(both.len(), 2);
    for rank in both {
        assert_eq!((&rank["ended"], &rank["source"]), (&json!("Done"), &json!(name)));
        for step in rank["steps"].as_array().expect("steps") {
            let count = |kind: &str| step["operations"][kind].as_u64().expect("a count");
            // A step has four micro-batches with 18 GEMMs each, and 6 buckets per micro-batch. Some steps add
            // an evaluation and a log entry.
            assert!([72, 102].contains(&count("gemm")), "{report:#}");
            assert!([24, 25].contains(&count("collective")), "{report:#}");
        }
    }
}

#[test]
fn a_rank_that_dies_during_a_capture_is_named_and_the_file_opens() {
    let job = Job::new(ENDLESS);
    let capturing = job.begin_capture("--wait 12");
    job.ranks[1].signal("KILL");
    // Rank 0 now waits for rank 1, and never reaches the last step.
    let done = capturing.end();
    assert!(matches!(done.status.code(), Some(1 | 3)), "{done:?}");
    assert!(done.stderr.contains("rank 1: it died before it had recorded all steps"), "{done:?}");
    let report = job.report();
    let missing = report["missing"].as_array().expect("a list");
    assert!(report["closed"] == true && missing.iter().any(|one| one["rank"] == 1), "{report:#}");
}

#[test]
fn a_rank_that_ends_during_a_capture_sends_what_it_has() {
    let job = Job::new("\nwhile counter('steps') < 700: work()\nsync()");
    let done = job.begin_capture("--wait 25").end();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("rank 0: it ended before the last step"), "{done:?}");
    let report = job.report();
    assert!(
        report["closed"] == true && report["steps"].as_array().is_some_and(|steps| steps.len() > 3),
        "{report:#}"
    );
    assert_eq!(report["ranks"][0]["ended"], "ProcessEnd");
}

#[test]
fn a_lost_collector_is_reported_and_leaves_no_file() {
    let mut job = Job::new(ENDLESS);
    let capturing = job.begin_capture("--wait 25");
    job.host.end_collector();
    let done = capturing.end();
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    assert!(done.stderr.contains("rank 0: its host sim stopped reporting"), "{done:?}");
    assert!(done.stdout.contains("no rank sent anything: "), "{done:?}");
    assert!(!job.file().exists(), "the next try may have its name");
}

#[test]
fn a_closed_terminal_ends_a_capture_and_leaves_no_file() {
    let mut job = Job::new(ENDLESS);
    let capturing = job.begin_capture("--wait 25");
    job.host.end_collector();
    capturing.signal("HUP");
    let done = capturing.end();
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    assert!(!job.file().exists(), "the next try may have its name");
}

#[test]
fn an_impossible_capture_is_refused_with_advice() {
    let job = Job::new(ENDLESS);
    let stranger = job.capture("--steps 3 --ranks 0-7");
    assert_eq!(stranger.status.code(), Some(64), "{stranger:?}");
    assert!(stranger.stderr.contains("no rank 2, 3, 4, 5, 6, 7 is in this job"), "{stranger:?}");
    assert!(!job.file().exists());
    for line in ["--steps 0", "--steps 1001", "", "--steps 3 --ranks 3-1", "--steps 3 --ranks a"] {
        assert_eq!(job.capture(line).status.code(), Some(64), "{line}");
    }

    let first = job.begin_capture("--wait 25");
    let second = job.host.ask(&format!("capture --steps 2 -o {}", job.host.place.path("d.bin").display()));
    assert_eq!(second.status.code(), Some(3), "{second:?}");
    assert!(second.stderr.contains("rank 0: another capture is running there"), "{second:?}");
    first.signal("INT");
    let interrupted = first.end();
    assert_eq!(interrupted.status.code(), Some(1), "{interrupted:?}");
    assert!(interrupted.stderr.contains("rank 1: it did not reach the last step in time"), "{interrupted:?}");
    assert_eq!(
        job.report()["ranks"].as_array().map(Vec::len),
        Some(2),
        "with what there is: {interrupted:?}"
    );
    // A second interrupt ends the wait for a stopped rank.
    fs::remove_file(job.file()).expect("with what there was");
    let third = job.begin_capture("--wait 600");
    job.ranks[1].signal("STOP");
    third.signal("INT");
    until("the ranks to be asked to end early", || third.said().contains("1 of 2 arrived").then_some(()));
    let asked = Instant::now();
    third.signal("INT");
    let ended = third.end();
    job.ranks[1].signal("CONT");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(asked.elapsed() < Duration::from_secs(4), "it waited {:?} for the rest", asked.elapsed());
    fs::remove_file(job.file()).expect("with what there was");

    // No viewer waits for the interrupted recording any more, so a new capture works.
    let after = job.capture("--steps 2 --wait 25");
    assert_eq!(after.status.code(), Some(0), "{after:?}");

    assert_eq!(job.host.ask("ctl --hook off").status.code(), Some(0));
    let off = job.capture("--steps 2");
    assert!(off.status.code() == Some(3) && off.stderr.contains("xpu-top ctl --hook on"), "{off:?}");
    let foreign = job.host.place.path("foreign");
    for bytes in ["", "not a capture"] {
        fs::write(&foreign, bytes).expect("the place takes it");
        let refused = run(job.host.xpu_top("report").arg(&foreign));
        assert!(refused.status.code() == Some(64) && refused.stderr.contains("cannot read "), "{refused:?}");
    }
}

#[test]
fn past_steps_are_added_to_a_capture() {
    let job = Job::new(ENDLESS);
    until("some steps to be there", || (job.host.status()["steps"]["min"].as_u64()? >= 30).then_some(()));
    let done = job.capture("--steps 2 --before 20 --wait 25");
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(done.stdout.contains("with samples since step "), "{done:?}");
    let report = job.report();
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(22), "{report:#}");
    let steps = report["ranks"][0]["steps"].as_array().expect("steps").clone();
    for step in &steps {
        assert_eq!(step["operations"]["collective"], 3, "every collective is kept: {step:#}");
    }
    assert_eq!(steps[21]["operations"]["gemm"], 3, "and of those that were asked for all: {report:#}");
}

#[test]
fn a_finding_triggers_a_capture_of_the_steps_before_it() {
    let job = Job::new(ENDLESS);
    let idle = job.capture("--on-finding=regression --within 1s --steps 2");
    assert!(idle.status.code() == Some(3) && idle.stderr.contains("nothing was captured"), "{idle:?}");
    assert!(!job.file().exists(), "then there is no file");
    let invalid = job.capture("--on-finding=slow --steps 2");
    assert!(invalid.status.code() == Some(64) && invalid.stderr.contains("exited, hang, "), "{invalid:?}");

    let mut command = job
        .host
        .xpu_top(&format!("capture --on-finding --steps 2 --before 5 --wait 40 -o {}", job.file().display()));
    let at = format!("{}:{BASE}", job.host.address);
    let waiting = Program::start(command.args(["--hosts", &at, "--key-file"]).arg(job.host.key()));
    until("it to wait", || waiting.said().contains("waiting for a finding").then_some(()));
    assert!(!waiting.said().contains("Ctrl-C"), "nobody has a keyboard here: {}", waiting.said());
    job.ranks[1].signal("STOP");
    let done = waiting.end();
    job.ranks[1].signal("CONT");
    assert_eq!(done.status.code(), Some(1), "the stopped one cannot give anything: {done:?}");
    assert!(done.stderr.contains("hang: rank 1 "), "{done:?}");
    let report = job.report();
    let first = &report["ranks"][0];
    assert_eq!((&first["rank"], &first["ended"]), (&json!(0), &json!("TimeUp")), "{report:#}");
    assert!(report["hang"].as_str().is_some_and(|why| why.starts_with("rank 1 ")), "{report:#}");
    assert_eq!(first["steps"].as_array().map(Vec::len), Some(5), "{report:#}");
    // The file also contains the time before the hang: at its beginning nothing is wrong.
    let early = run(job.host.xpu_top("status --json --at 0% --replay").arg(job.file()));
    assert!(early.stdout.contains("\"step_ms_mean\"") && !early.stdout.contains("\"hang\""), "{early:?}");
    let stacks = run(job.host.xpu_top("status --json --replay").arg(job.file()));
    assert!(stacks.stdout.contains("\"hang\""), "the same is found in the file: {stacks:?}");
}

#[test]
fn an_interactive_user_is_shown_the_key_that_ends_a_wait() {
    let job = Job::new(ENDLESS);
    let at = format!("{}:{BASE}", job.host.address);
    let mut capture =
        job.host.xpu_top(&format!("capture --on-finding=regression --steps 2 -o {}", job.file().display()));
    capture.args(["--hosts", &at, "--key-file"]).arg(job.host.key());
    let mut terminal = Terminal::start(capture, 160, 10);
    terminal.shows("waiting for regression; Ctrl-C ends that").keys("\x03");
    assert_eq!(terminal.end().code(), Some(3), "{}", terminal.text());
    assert!(!job.file().exists(), "nothing was captured");
}

#[test]
fn an_empty_recording_leaves_no_file() {
    let place = Place::bare();
    let file = place.path("night.xpurec");
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME").args(["record", "--for", "1s", "-o"]);
    let done =
        run(command.arg(&file).args(["--hosts", "127.0.0.1", "--base-port", &free_base().to_string()]));
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    assert!(done.stderr.contains("nothing was recorded"), "{done:?}");
    assert!(!file.exists());
}
