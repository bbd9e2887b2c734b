//! Python functions in a capture, under real Pythons: the capture counts as many calls as the program itself,
//! and leaves nothing behind.
//!
//! `XPU_TEST_PYTHONS=/a/bin/python3:/b/bin/python3` runs the tests under these Pythons; the default is
//! `python3`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use xpu_analysis::capture::Capture;
use xpu_recording::{Kind, Recording};
use xpu_tests::{
    built,
    host::Host,
    program::{Program, run, until},
};
use xpu_wire::{
    codec,
    frame::{CapturedLabel, CapturedSpan, FunctionKind, Tracing},
};

const ASKED: &str = "__main__@Trainer@work,__main__@Trainer@inherited,__main__@Trainer@fixed,__main__@Trainer@build,\
    __main__@Trainer@rate,__main__@Trainer@Inner@within,__main__@deep,__main__@numbers,__main__@fails,__main__@stopped,\
    __main__@decorated";

type Counts = BTreeMap<String, u64>;

fn pythons() -> Vec<String> {
    let named = std::env::var("XPU_TEST_PYTHONS").unwrap_or_else(|_| "python3".to_owned());
    named.split(':').map(str::to_owned).collect()
}

/// The minor version of this Python.
fn version(python: &str) -> u32 {
    let said = run(std::process::Command::new(python).args(["-c", "import sys; print(sys.version_info[1])"]));
    said.stdout.trim().parse().unwrap_or_else(|_| panic!("{python}: {said:?}"))
}

struct Job {
    host: Host,
    rank: Program,
}

impl Job {
    fn new(python: &str, set: &[(&str, &str)]) -> Self {
        let host = Host::new();
        let script = fs::read_to_string(built::source("functions.py")).expect("it is there");
        let counts = host.place.path("counts");
        let mut all = vec![("COUNTS", counts.to_str().expect("text"))];
        let asks = |name| ["XPU_TOP_TRACE_FUNCS", "XPU_TIMER_HOST_TRACING_FUNC"].contains(&name);
        if !set.iter().any(|&(name, _)| asks(name)) {
            all.push(("XPU_TOP_TRACE_FUNCS", ASKED));
        }
        all.extend(set);
        let rank = host.alone_under(python, &all, &script);
        until("it to train", || (host.status()["steps"]["min"].as_u64()? >= 3).then_some(()));
        Self { host, rank }
    }

    fn file(&self) -> PathBuf {
        self.host.place.path("c.bin")
    }

    fn capture(&self, more: &str) -> Capture {
        let _ = fs::remove_file(self.file());
        let done =
            self.host.ask(&format!("capture --job train -o {} --wait 25 {more}", self.file().display()));
        assert_eq!(done.status.code(), Some(0), "{done:?} {}", self.rank.said());
        read(&self.file())
    }

    /// The line that the program wrote after this step.
    fn written(&self, step: u64) -> Value {
        until("a step's line", || {
            let text = fs::read_to_string(self.host.place.path("counts")).ok()?;
            let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.rfind(|line| line["step"] == step)
        })
    }

    fn steps(&self) -> u64 {
        self.host.status()["steps"]["min"].as_u64().expect("it trains")
    }
}

fn read(file: &Path) -> Capture {
    let mut recording = Recording::open_file(file).expect("it opens");
    let mut capture = Capture::default();
    for entry in recording.entries().to_vec() {
        if entry.kind == Kind::Overview
            && let Ok(Some(block)) = recording.block(&entry)
        {
            block
                .records()
                .filter_map(|record| codec::decode(record.frame).ok())
                .for_each(|frame| capture.take(&frame));
        }
    }
    capture
}

/// How often each function was recorded in each step, by the last part of its name.
fn recorded(capture: &Capture) -> BTreeMap<u64, Counts> {
    let rank = capture.ranks.values().next().expect("a rank");
    let mut all = BTreeMap::new();
    for (step, from, to) in rank.steps() {
        let counts: &mut Counts = all.entry(step.0).or_default();
        for single in rank.between(from, to) {
            if let CapturedLabel::Function { kind, name } = &*single.label {
                let short = name.rsplit('.').next().unwrap_or_default();
                let expected = match short {
                    "__next__" => FunctionKind::DataLoader,
                    _ if short.starts_with("gc ") => FunctionKind::GarbageCollection,
                    _ => FunctionKind::Named,
                };
                assert_eq!(*kind, expected, "{name}");
                *counts.entry(short.to_owned()).or_default() += 1;
            }
        }
    }
    all
}

fn tracing(capture: &Capture) -> &Tracing {
    &capture.ranks.values().next().expect("a rank").account.functions
}

fn agrees(job: &Job, capture: &Capture) {
    let all = recorded(capture);
    assert_eq!(all.len(), 6);
    for (step, counts) in &all {
        let own: Counts = serde_json::from_value(job.written(*step)["counts"].clone()).expect("counts");
        assert_eq!(*counts, own, "step {step}");
    }
    let records = all.values().flat_map(Counts::values).sum();
    assert_eq!(*tracing(capture), Tracing::Recorded { records, dropped: 0 });
}

#[test]
fn called_python_functions_are_in_the_capture_and_all_is_detached_after_it() {
    for python in pythons() {
        // A profile function sees only threads that exist when it is set. `sys.monitoring`, from 3.12 on,
        // sees all threads.
        let young: &[_] = if version(&python) >= 12 { &[("YOUNG", "1")] } else { &[] };
        let job = Job::new(&python, young);
        let before = job.written(1)["state"].clone();
        for _ in 0..2 {
            let capture = job.capture("--steps 6");
            agrees(&job, &capture);
            let last = job.steps();
            until("all to be as before", || {
                (job.written(last.max(job.steps()))["state"] == before).then_some(())
            });
        }
        let capture = job.capture("--steps 2 --light");
        assert_eq!(*tracing(&capture), Tracing::NotAsked);
        assert!(recorded(&capture).values().all(Counts::is_empty));
    }
}

#[test]
fn collections_and_batches_are_counted_outside_captures_if_requested() {
    let totals = |job: &Job| {
        let done = job.host.ask("status --json --job train --rank 0 --now");
        let status: Value = serde_json::from_str(&done.stdout).expect("JSON");
        status["ranks"][0]["activity"]["python"].clone()
    };
    for python in pythons() {
        assert_eq!(totals(&Job::new(&python, &[])), Value::Null, "a part of all would pass for all");
        // The module is imported while the job already trains.
        let late = [
            ("XPU_TOP_TRACE_FUNCS_ALWAYS", "1"),
            ("BEFORE", "del sys.modules[loaders.__name__]"),
            ("BETWEEN", "if number == 100: sys.modules[loaders.__name__] = loaders"),
        ];
        let job = Job::new(&python, &late);
        let count = |all: &Value, name: &str| all[name].as_i64();
        let first = until("a batch", || {
            Some(totals(&job)).filter(|all| count(all, "batches").is_some_and(|batches| batches > 0))
        });
        let so_far = count(&first, "garbage_collections").expect("a count");
        let last = until("thirty collections more", || {
            let all = totals(&job);
            (count(&all, "garbage_collections")? >= so_far + 30).then_some(all)
        });
        let more = |name| count(&last, name).expect("a count") - count(&first, name).expect("a count");
        // A step collects garbage once and fetches a batch three times.
        assert!((more("batches") - 3 * more("garbage_collections")).abs() <= 6, "{first} {last}");
        assert!(last["garbage_collection_s"].as_f64() > Some(0.0), "{last}");
        assert!(last["batch_wait_s"].as_f64() > Some(0.0), "{last}");
    }
}

#[test]
fn calls_are_on_the_track_of_their_thread_and_within_each_other() {
    let job = Job::new(&pythons()[0], &[]);
    let capture = job.capture("--steps 2");
    let rank = capture.ranks.values().next().expect("a rank");
    let span = |wanted: &str| {
        let single = rank
            .operations
            .iter()
            .find(|single| matches!(&*single.label, CapturedLabel::Function { name, .. } if name == wanted));
        let single = single.unwrap_or_else(|| panic!("no {wanted}"));
        let CapturedSpan::Host { took } = single.span else { panic!("{single:?}") };
        (single.thread, single.at.0, single.at.0 + took.0)
    };
    let (work, inner) = (span("__main__.Trainer.work"), span("__main__.Trainer.inherited"));
    assert!(work.0 == inner.0 && work.1 <= inner.1 && inner.2 <= work.2, "{work:?} {inner:?}");
    let threads: std::collections::BTreeSet<_> = rank
        .operations
        .iter()
        .filter(|single| matches!(&*single.label, CapturedLabel::Function { name, .. } if name == "__main__.deep"))
        .map(|single| single.thread)
        .collect();
    assert_eq!(threads.len(), 2, "the main thread's, and the other's");
    let out = job.host.place.path("c.json");
    let done = run(job.host.xpu_top("export").arg(job.file()).arg("--chrome").arg(&out));
    assert!(done.status.success(), "{done:?}");
    let events: Value = serde_json::from_str(&fs::read_to_string(&out).expect("written")).expect("JSON");
    let is_work = |event: &&Value| event["name"] == "__main__.Trainer.work" && event["ph"] == "X";
    let all = events["traceEvents"].as_array().expect("events");
    assert_eq!(all.iter().filter(is_work).count(), 2);
    assert!(all.iter().filter(is_work).all(|event| event["cat"] == "host" && event["tid"] == 1 + work.0));
}

#[test]
fn a_program_with_its_own_profiler_is_not_disturbed() {
    let before = "
calls = 0
def profile(frame, event, argument):
    global calls
    calls += event == 'call'
sys.setprofile(profile)
";
    for python in pythons() {
        let job = Job::new(&python, &[("BEFORE", before)]);
        let own = job.written(1)["state"]["profile"].clone();
        assert!(own.as_str().is_some_and(|text| text.starts_with("<function profile")), "{own}");
        let capture = job.capture("--steps 6");
        if version(&python) >= 12 {
            agrees(&job, &capture);
        } else {
            let Tracing::Refused { why } = tracing(&capture) else { panic!("{:?}", tracing(&capture)) };
            assert!(why.starts_with("1 threads have a profile function already"), "{why}");
        }
        assert_eq!(job.written(job.steps())["state"]["profile"], own);
    }
}

#[test]
fn missing_functions_are_reported() {
    let asked = "__main__@deep,no.such@f,__main__@Nobody@f,json@loads,math@sqrt,__main__@counts";
    for python in pythons() {
        let job = Job::new(&python, &[("XPU_TOP_TRACE_FUNCS", asked)]);
        let capture = job.capture("--steps 6");
        assert!(matches!(tracing(&capture), Tracing::Recorded { records: 1.., dropped: 0 }));
        let said = until("the hook to say it", || {
            Some(job.host.status()["coverage"]["blind"][0].as_str()?.to_owned())
        });
        let all = "XPU_TOP_TRACE_FUNCS: 4 not recorded: no.such@f: no.such is not imported; \
            __main__@Nobody@f: __main__ has no Nobody; math";
        assert!(said.starts_with(all), "{said}");
    }
}

#[test]
fn a_wrong_name_does_not_affect_others_and_bare_names_are_the_scripts() {
    let python = &pythons()[0];
    let named = |capture: &Capture| -> Vec<String> {
        let mut names: Vec<_> = recorded(capture).into_values().flat_map(Counts::into_keys).collect();
        names.retain(|name| !name.starts_with("gc ") && name != "__next__");
        names.sort_unstable();
        names.dedup();
        names
    };
    {
        let job = Job::new(python, &[("XPU_TOP_TRACE_FUNCS", "deep,a b,__main__@fails,1x")]);
        assert_eq!(named(&job.capture("--steps 6")), ["deep", "fails"]);
        let blind = job.host.status()["coverage"]["blind"].to_string();
        for wrong in ["'a b' is not function", "'1x' is not function"] {
            assert!(blind.contains(&format!("XPU_TOP_TRACE_FUNCS: {wrong}")), "{blind}");
        }
    }
    let job = Job::new(python, &[("XPU_TIMER_HOST_TRACING_FUNC", "deep,__main__@Trainer@work")]);
    assert_eq!(named(&job.capture("--steps 6")), ["deep", "work"]);
}

#[test]
fn exceptions_of_signal_handlers_reach_the_program() {
    // Exceptions are raised every few milliseconds, wherever the main thread is. The hook looks up many
    // functions, so some exceptions arrive while the hook's code runs.
    let before = "
import signal
class Alarm(Exception): pass
rung = caught = 0
armed = False
def ring(*_):
    global rung, armed
    if armed:
        armed = False
        rung += 1
        raise Alarm
def spin():
    global armed
    armed = True
    until = time.monotonic() + 0.001
    while time.monotonic() < until: pass
    armed = False
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0003)
";
    let between = "
for _ in range(20):
    try:
        spin()
    except Alarm:
        caught += 1
print(rung, caught, file=sys.stderr, flush=True)
";
    let many: Vec<_> = (0..1000).map(|number| format!("__main__@Trainer@nothing{number}")).collect();
    let many = format!("{},{ASKED}", many.join(","));
    for python in pythons() {
        let job =
            Job::new(&python, &[("BEFORE", before), ("BETWEEN", between), ("XPU_TOP_TRACE_FUNCS", &many)]);
        for _ in 0..3 {
            agrees(&job, &job.capture("--steps 6"));
        }
        let said = job.rank.said();
        let last = said.lines().next_back().unwrap_or_default();
        let (rung, caught) = last.split_once(' ').unwrap_or_else(|| panic!("{said}"));
        assert!(rung == caught && rung != "0", "{last}");
    }
}

#[test]
fn a_child_forked_during_a_capture_is_not_traced() {
    let between = "
child = os.fork()
if child == 0:
    for _ in range(100): trainer.work(3)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
";
    for python in pythons() {
        let job = Job::new(&python, &[("BETWEEN", between), ("PYTHONWARNINGS", "ignore")]);
        let capture = job.capture("--steps 6");
        agrees(&job, &capture);
        assert!(job.rank.said().is_empty(), "{}", job.rank.said());
    }
}
