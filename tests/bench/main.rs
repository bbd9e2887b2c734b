//! The budgets of the design, each with this machine's figure: `make bench`. The machine must be idle.

mod behaviour;
mod held;
mod job;
mod launch;
mod publish;
mod remembers;
mod replay;
#[path = "../../hook/src/observe/ring.rs"]
#[allow(dead_code, unreachable_pub, reason = "the hook's own; only its pushing is used here")]
mod ring;
mod screen;
mod shapes;
#[path = "../../hook/src/observe/sync.rs"]
#[allow(unreachable_pub, unused_imports, reason = "the hook's own; only a part of it is used here")]
mod sync;
mod table;

use std::{env, fs, hint::black_box, os::unix::fs::symlink, thread, time::Instant};

use table::{Row, Table};
use xpu_tests::{built, place::Place, program::run};

fn main() {
    let mut words = env::args().skip(1);
    let only = words.next();
    if only.as_deref() == Some(screen::MEMORY) {
        return screen::remember(words.next().and_then(|ranks| ranks.parse().ok()).expect("how many ranks"));
    }
    if only.as_deref() == Some(shapes::SCREEN) {
        return shapes::watch();
    }
    let mut table = Table::of(&machine());
    if only.as_deref() == Some("shapes") {
        shapes::cost(&mut table);
        return table.foot();
    }
    if only.as_deref() == Some("screen") {
        screen::cost(&mut table);
        return table.foot();
    }
    if only.as_deref() == Some("replay") {
        replay::scrub(&mut table);
        return table.foot();
    }
    if only.as_deref() == Some("remembers") {
        remembers::cost(&mut table);
        return table.foot();
    }
    if only.as_deref() == Some("python") {
        launch::from_python(&mut table);
        return table.foot();
    }
    if only.as_deref() == Some("behaviour") {
        behaviour::cost(&mut table);
        return table.foot();
    }
    launch::cost(&mut table);
    launch::from_python(&mut table);
    table.row(Row::new("ring push", ring_push(), "ns"));
    table.row(Row::new("Tracer.step() from Python", tracer_step(), "ns"));
    launch::fold(&mut table);
    publish::cost(&mut table);
    launch::memory(&mut table);
    job::cost(&mut table);
    shapes::cost(&mut table);
    held::cost(&mut table);
    remembers::cost(&mut table);
    replay::scrub(&mut table);
    behaviour::cost(&mut table);
    screen::cost(&mut table);
    table.foot();
}

fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("?", |(_, m)| m);
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{model}, {cores} cores, load {}", load.split(' ').next().unwrap_or("?"))
}

/// The time of pushing an entry with as many words as a record has.
fn ring_push() -> f64 {
    let ring = ring::Ring::<[u64; 7]>::new(ring::SLOTS).expect("memory");
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let before = Instant::now();
        for n in 0..2000 {
            black_box(ring.push(black_box([n; 7])));
        }
        best = best.min(before.elapsed().as_nanos() as f64 / 2000.0);
        while ring.pop().is_some() {}
    }
    best
}

fn tracer_step() -> f64 {
    let place = Place::new();
    let package = place.path("python/xpu_top");
    fs::create_dir_all(&package).expect("a folder in a fresh folder");
    let links = [
        (built::artifact("libxpu_top_python.so"), "_native.abi3.so"),
        (built::source("../pybind/python/xpu_top/__init__.py"), "__init__.py"),
    ];
    for (from, to) in links {
        symlink(from, package.join(to)).expect("a link in a fresh folder");
    }
    let script = built::source("bench/steps.py");
    let outcome = run(place.watched("python3").env("PYTHONPATH", place.path("python")).arg(script));
    let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let ["preloaded", step, nothing] = words[..] else { panic!("{outcome:?}") };
    let [step, nothing] = [step, nothing].map(|figure| figure.parse::<f64>().expect("a number"));
    step - nothing
}
