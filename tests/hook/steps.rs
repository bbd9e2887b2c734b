//! The figures of steps, and the sources of steps.

use xpu_tests::{
    built,
    listener::Listener,
    place::Place,
    program::{Program, until},
};
use xpu_wire::{
    frame::{StepSource, Steps, TimedBy, Work},
    histogram::Histogram,
};

use crate::Job;

#[test]
fn a_step_has_its_amount_of_work() {
    let job = Job::alone(
        "gemm=1",
        "
step_with(4096, 2, 3.5)
step_with(4096, 2)
step()
step_with(1000, completed=10)
hold()",
    );
    let steps = job.after_step(0, 10).summaries.last().unwrap().steps.clone().unwrap();
    assert_eq!(steps.work, Work { tokens: 9192, samples: 4, loss: Some(3.5) });
    assert_eq!((steps.source, steps.completed.0), (StepSource::Marked, 10));
    job.end();
}

/// What a rank's hook reported of its steps, and the program's own median, both in milliseconds.
#[derive(Debug)]
struct Reported {
    completed: u64,
    median: f64,
    truth: f64,
}

/// Runs the demo's `worker.py`, which marks no steps, to its end.
fn unmarked(world: usize, steps: u64) -> Vec<Reported> {
    let place = Place::new();
    let listener = Listener::at(&place.socket());
    let start = |rank: usize| {
        let mut command = place.watched("python3");
        command.arg(built::source("../cli/src/command/demo/worker.py")).args([
            "--unmarked",
            "--layers",
            "4",
            "--rendezvous",
        ]);
        command.arg(place.path("")).args(["--steps", &steps.to_string()]);
        command.envs([("RANK", rank.to_string()), ("WORLD_SIZE", world.to_string())]);
        command.env("LOCAL_RANK", rank.to_string());
        Program::start(&mut command)
    };
    let ranks: Vec<_> = (0..world).map(start).collect();
    let reported = ranks.into_iter().map(|rank| {
        let pid = rank.pid();
        let outcome = rank.end();
        assert!(outcome.status.success(), "{outcome:?}");
        let sender = until("its last word", || listener.sender(pid).filter(|sender| sender.goodbye));
        let said: Vec<_> = sender.summaries.iter().filter_map(|summary| summary.steps.as_ref()).collect();
        assert!(said.iter().all(|steps| steps.source == StepSource::Detected));
        let mut durations = Histogram::new();
        for steps in &said {
            durations.merge(&steps.durations);
        }
        let median = durations.median().expect("steps were detected").milliseconds();
        let truth = outcome.stdout.split_whitespace().rev().nth(3).and_then(|word| word.parse().ok());
        let completed = said.last().expect("steps were detected").completed.0;
        Reported { completed, median, truth: truth.expect("its own time") }
    });
    reported.collect()
}

#[test]
fn unmarked_steps_are_detected_equally_by_all_ranks() {
    let reported = unmarked(2, 200);
    for rank in &reported {
        assert!((rank.median / rank.truth - 1.0).abs() < 0.05, "{reported:?}");
        assert!((198..=200).contains(&rank.completed), "{reported:?}");
    }
    assert_eq!(reported[0].completed, reported[1].completed);
}

#[test]
fn steps_are_detected_from_graph_launches() {
    let job = Job::alone(
        "graph=16",
        "
forward = capture(lambda: [ok(gemm_ex(512, 512, 512)), ok(kernel())])
backward = capture(lambda: [ok(gemm_ex(512, 512, 512)) for _ in range(2)])
while not Path(os.environ['RENDEZVOUS'], 'enough').exists():
    ok(forward())
    ok(backward())
    sync()
    time.sleep(0.02)
hold()",
    );
    let pid = job.ranks[0].pid();
    let steps = until("steps to be detected", || {
        let sender = job.listener.sender(pid)?;
        let steps = sender.summaries.last()?.steps.clone()?;
        (steps.durations.count() > 20).then_some(steps)
    });
    assert_eq!(steps.source, StepSource::Detected);
    assert!(steps.durations.median().unwrap().milliseconds() > 19.0, "each sleeps for 20");
    std::fs::write(job.place.path("enough"), "").unwrap();
    job.end();
}

#[test]
fn steps_are_detected_from_gemms_without_collectives() {
    let job = Job::alone(
        "gemm=16",
        "
for number in range(100_000):
    for _ in range(3): ok(gemm_ex(512, 512, 512)); ok(gemm_ex(512, 2048, 512))
    ok(gemm_ex(50000, 512, 512))
    for _ in range(3): ok(gemm_ex(512, 512, 2048)); ok(gemm_ex(2048, 512, 512))
    sync()
    time.sleep(0.02)
    if number % 50 == 0 and Path(os.environ['RENDEZVOUS'], 'enough').exists(): break
hold()",
    );
    let pid = job.ranks[0].pid();
    let steps = until("steps to be detected", || {
        let sender = job.listener.sender(pid)?;
        let steps = sender.summaries.last()?.steps.clone()?;
        (steps.durations.count() > 20).then_some(steps)
    });
    assert_eq!(steps.source, StepSource::Detected);
    let median = steps.durations.median().unwrap().milliseconds();
    // GEMMs get their times when the hook gathers them, so the median is not exact.
    assert!((16.0..40.0).contains(&median), "{median} ms for what sleeps 20");
    std::fs::write(job.place.path("enough"), "").unwrap();
    job.end();
}

const ATTACH: &str = "
from torch_hooks import *
import_torch()
wait_until_watched()
";

/// The last steps that rank 0 has reported, once this number is completed.
#[track_caller]
fn steps_at(job: &Job, completed: u64) -> Steps {
    job.after_step(0, completed)
        .summaries
        .into_iter()
        .rev()
        .find_map(|summary| summary.steps)
        .expect("steps were counted")
}

#[test]
fn steps_of_pytorchs_optimizers_are_counted() {
    let script = format!(
        "{ATTACH}
judge, generator = SGD([object()]), Adam([object()])
for step in range(30):
    ok(gemm_ex(512, 512, 512))
    judge.step()
    for _ in range(2): generator.step()
try: judge.step(fails=True)
except ValueError: pass
hold()"
    );
    let job = Job::alone("gemm=1", &script);
    let steps = steps_at(&job, 30);
    assert_eq!((steps.source, steps.completed.0, &*steps.optimizer), (StepSource::Optimizer, 30, "SGD"));
    assert_eq!(job.ledger(0).ledger().read().step.0, 30);
    job.end();
}

/// In training on CPUs, Python's lookup of PyTorch's module is the only call that the hook intercepts.
#[test]
fn optimizer_steps_are_counted_without_cuda_calls() {
    let place = Place::new();
    let listener = Listener::at(&place.socket());
    for package in ["torch", "another"] {
        std::fs::create_dir(place.path(package)).unwrap();
        let module = place.path(package).join("_C.so");
        built::compile("hook/module.c", &module, &["-shared", "-fPIC"]);
    }
    let mut script = place.script(
        "
import ctypes, os
from pathlib import Path
from torch_hooks import *
def name(task):
    try: return Path('/proc/self/task', task, 'comm').read_text()
    except OSError: return '' # ended after it was listed
def hooked(): return any(name(task) == 'xpu-top\\n' for task in os.listdir('/proc/self/task'))
assert not hooked()
find = ctypes.CDLL(None).dlsym
find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
def look_up(package): return find(ctypes.CDLL(os.path.join(os.environ['PLACE'], package, '_C.so'))._handle, b'PyInit__C')
# Only PyTorch's module is waited for.
threads = len(os.listdir('/proc/self/task'))
assert look_up('another') and len(os.listdir('/proc/self/task')) == threads
assert look_up('torch')
while not hooked(): time.sleep(0.001)
import_torch()
wait_until_watched()
while hooked(): time.sleep(0.001)
# What sets the place in the job only now is right, too.
os.environ.update(RANK='3', WORLD_SIZE='4')
optimizer = SGD([object()])
for _ in range(20): optimizer.step()
sys.stdin.read()",
    );
    let rank = Program::start(script.env("PLACE", place.path("")));
    let sender = listener.after_step(rank.pid(), 20);
    let hello = &sender.hellos[0];
    assert_eq!((hello.rank.0, hello.world_size), (3, 4));
    let steps = sender.summaries.into_iter().rev().find_map(|summary| summary.steps).expect("steps");
    assert_eq!((steps.source, &*steps.optimizer), (StepSource::Optimizer, "SGD"));
    let outcome = rank.end();
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
}

/// If the hook registered before Kineto, it would read Kineto's count before Kineto counts the step.
#[test]
fn kineto_registers_before_the_hook() {
    let job = Job::of(
        1,
        &[("KINETO_USE_DAEMON", "1")],
        "
import sys
from torch_hooks import *
package = Path(os.environ['RENDEZVOUS'], 'torch')
package.mkdir()
package.joinpath('__init__.py').write_text('''
from gpu import *
from torch_hooks import *
import_torch()
ok(gemm_ex(512, 512, 512))
while not Path(__file__).with_name('imported').exists(): time.sleep(0.001)
assert not registered
registered.append(print)
''')
sys.path.insert(0, str(package.parent))
import torch
wait_until_watched()
assert registered[0] is print
hold()",
    );
    let pid = job.ranks[0].pid();
    until("turns of the hook while PyTorch is imported", || {
        (job.listener.sender(pid)?.summaries.len() > 2).then_some(())
    });
    std::fs::write(job.place.path("torch/imported"), "").unwrap();
    job.end();
}

#[test]
fn an_optimizer_in_a_graph_steps_at_each_launch() {
    let script = format!(
        "{ATTACH}
optimizer, other = Adam([object()]), SGD([object()])
def work():
    ok(gemm_ex(8192, 8192, 4096)); ok(kernel())
    optimizer.step(); other.step()
for _ in range(3): work()
replay = capture(work)
for number in range(400):
    ok(replay())
    if number % 8 == 7: sync()
hold()"
    );
    let job = Job::of(1, &[], &script);
    let steps = steps_at(&job, 403);
    assert_eq!((steps.source, &*steps.optimizer), (StepSource::Optimizer, "Adam"));
    assert_eq!(steps.timed_by, TimedBy::Gpu);
    job.end();
}

#[test]
fn an_optimizer_called_once_per_parameter_group_steps_once() {
    let script = format!(
        "{ATTACH}
groups = [[object()], [object()], [object()]]
optimizer = Adam(groups[0])
for step in range(20):
    ok(gemm_ex(512, 512, 512))
    for group in groups:
        optimizer.param_groups = [{{'params': []}}, {{'params': group}}]
        optimizer.step()
# Whatever it holds, it must not fail where it did not.
optimizer.param_groups = None
optimizer.step()
hold()"
    );
    let job = Job::alone("gemm=1", &script);
    assert_eq!(steps_at(&job, 20).completed.0, 20);
    job.end();
}

#[test]
fn steps_of_a_forked_trainer_are_counted() {
    let place = Place::new();
    let listener = Listener::at(&place.socket());
    let script = format!(
        "
import os, sys
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
from gpu import *
{ATTACH}
optimizer = Adam([object()])
for step in range(30):
    ok(gemm_ex(512, 512, 512))
    optimizer.step()
hold()"
    );
    let program = Program::start(&mut place.script(&script));
    let steps = until("the child's steps", || {
        let said = listener.received().into_iter().flat_map(|sender| sender.summaries);
        said.filter_map(|summary| summary.steps).find(|steps| steps.completed.0 == 30)
    });
    assert_eq!((steps.source, &*steps.optimizer), (StepSource::Optimizer, "Adam"));
    let outcome = program.end();
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
}

#[test]
fn marks_of_the_program_take_precedence_over_its_optimizer() {
    const LOOP: &str = "
optimizer = Adam([object()])
for number in range(100, 140):
    ok(gemm_ex(512, 512, 512))
    optimizer.step()
    step(number)
hold()";
    const UNHEEDED: &str = "
from torch_hooks import *
import_torch()";
    for (wanted, attach, source, completed) in [
        ("", ATTACH, StepSource::Marked, 139),
        ("marked", UNHEEDED, StepSource::Marked, 139),
        ("optimizer", ATTACH, StepSource::Optimizer, 40),
    ] {
        let set = [("XPU_TOP_STEPS", wanted)];
        let set = if wanted.is_empty() { &[][..] } else { &set };
        let job = Job::of(1, set, &format!("{attach}{LOOP}"));
        let steps = steps_at(&job, completed);
        assert_eq!((steps.source, steps.completed.0), (source, completed), "{wanted}");
        job.end();
    }
}

#[test]
fn a_rank_without_a_launcher_has_the_number_of_torch_distributed() {
    const DISTRIBUTED: &str = "
import sys, types
distributed = types.ModuleType('torch.distributed')
distributed.group = types.SimpleNamespace(WORLD=types.ModuleType('world'))
distributed.get_rank, distributed.get_world_size = lambda: 2, lambda: 4
sys.modules['torch.distributed'] = distributed";
    let script = format!("{DISTRIBUTED}{ATTACH}ok(gemm_ex(512, 512, 512)); Adam([object()]).step()\nhold()");
    let job = Job::of(1, &[("UNNUMBERED", "1")], &script);
    let pid = job.ranks[0].pid();
    let rank = until("a job of four ranks", || {
        let sender = job.listener.sender(pid)?;
        sender.hellos.last().filter(|hello| hello.world_size == 4).map(|hello| hello.rank.0)
    });
    assert_eq!(rank, 2);
    job.end();
}

#[test]
fn an_unknown_source_of_steps_is_reported() {
    let job = Job::of(1, &[("XPU_TOP_STEPS", "guess")], "ok(gemm_ex(512, 512, 512)); step()\nhold()");
    let said = job.after_step(0, 1).summaries.pop().unwrap().hook.blind;
    assert!(said.iter().any(|text| text.contains("XPU_TOP_STEPS: 'guess'")), "{said:?}");
    job.end();
}

#[test]
fn steps_launched_in_a_burst_have_their_gpu_time() {
    // Steps are marked, or counted by the optimizer. The program launches eight steps at once, then waits for
    // all of them.
    for mark in ["step()", "optimizer.step()"] {
        let script = format!(
            "{ATTACH}
optimizer = Adam([object()])
def train(steps):
    for number in range(steps):
        for _ in range(4): ok(gemm_ex(8192, 8192, 4096))
        {mark}
        if number % 8 == 7: sync()
train(16)
began = time.monotonic()
train(400)
print((time.monotonic() - began) / 400 * 1e3, flush=True)
hold()"
        );
        let job = Job::of(1, &[], &script);
        let sender = job.after_step(0, 416);
        let said: Vec<_> = sender.summaries.iter().filter_map(|summary| summary.steps.as_ref()).collect();
        let mut durations = Histogram::new();
        for steps in said.iter().filter(|steps| steps.timed_by == TimedBy::Gpu) {
            durations.merge(&steps.durations);
        }
        assert_eq!(said.last().unwrap().timed_by, TimedBy::Gpu);
        let median = durations.median().expect("steps were timed").milliseconds();
        let [rank] = <[Program; 1]>::try_from(job.ranks).unwrap();
        let outcome = rank.end();
        let truth: f64 = outcome.stdout.trim().parse().unwrap_or_else(|_| panic!("{outcome:?}"));
        assert!((median / truth - 1.0).abs() < 0.05, "{median} ms, and the program says {truth}");
    }
}
