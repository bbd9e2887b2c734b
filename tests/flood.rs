//! A faulty collector of the job's own user floods the hook with messages of every kind. The job keeps its
//! step time, its memory and its exit status.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use xpu_tests::{
    built,
    place::Place,
    program::{Outcome, Program, run, until},
};

/// Memory that a flood may cost a rank, beyond its cost with a quiet collector.
const MOST_KIB: i64 = 8 << 10;

/// The share of a core that a flood may cost.
const MOST_SHARE: f64 = 0.02;

/// What a program measured of its own run.
struct Run {
    outcome: Outcome,
    step_ms: f64,
    slow_ms: f64,
    peak_kib: i64,
    /// Share of one core that all threads use, except the one that runs the steps.
    others: f64,
    /// What the collector received.
    heard: String,
}

struct Flood {
    place: Place,
    program: PathBuf,
}

impl Flood {
    fn new() -> Self {
        let place = Place::new();
        let program = place.hazard("keeps_in_step");
        Self { place, program }
    }

    /// Runs this number of steps under a collector that behaves as `manner` says.
    fn run(&self, hook: &Path, steps: u32, manner: &str) -> Run {
        let (socket, figures) = (self.place.socket(), self.place.path("figures"));
        let mut rude = self.place.command(built::artifact("rude_collector"));
        let rude = Program::start(rude.arg(&socket).arg(manner));
        until("the collector", || socket.exists().then_some(()));
        let mut watched = self.place.watched_by(hook, &self.program);
        let mut program = Program::start(watched.arg(steps.to_string()).arg(&figures));
        // The long test takes ten seconds and more, so the deadline of tests does not apply.
        while program.is_running() {
            std::thread::yield_now();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let outcome = program.end();
        let text = fs::read_to_string(&figures).unwrap();
        let figures: Vec<f64> = text.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
        let heard = rude.end().stdout;
        let _ = fs::remove_file(socket);
        let [step_ms, slow_ms, peak, others] = figures[..] else { panic!("{text}") };
        Run { outcome, step_ms, slow_ms, peak_kib: peak as i64, others, heard }
    }
}

#[test]
fn a_flood_of_calls_takes_no_memory_and_does_not_change_the_exit() {
    let flood = Flood::new();
    let plain = run(flood.place.command(&flood.program).arg("1000"));
    for hook in built::hooks() {
        let quiet = flood.run(&hook, 1000, "quiet");
        assert!(quiet.heard.contains("message"), "the hook connects to a collector: {}", quiet.heard);
        for (manner, done) in [("floods", "agreed to a capture"), ("no_peer", "connection 1")] {
            let flooded = flood.run(&hook, 1000, manner);
            assert!(flooded.heard.contains(done), "{manner}: it met a hook: {}", flooded.heard);
            for run in [&quiet, &flooded] {
                assert_eq!(run.outcome, plain, "{manner}, {}", hook.display());
            }
            let more = flooded.peak_kib - quiet.peak_kib;
            println!("{manner}: {more} KiB more than {}", quiet.peak_kib);
            assert!(more < MOST_KIB, "{manner}: {} KiB became {}", quiet.peak_kib, flooded.peak_kib);
        }
    }
}

/// Runs each collector in turn. The step time is only printed, because it is meaningful only on an idle
/// machine. The CPU time of the other threads is meaningful on any machine.
#[test]
#[ignore = "a measurement: it takes two minutes"]
fn ten_seconds_of_flood_do_not_change_the_step_time() {
    let flood = Flood::new();
    let mut more = Vec::new();
    println!("collector   step ms   99 %     KiB    other threads, % of a core");
    for _ in 0..3 {
        let runs =
            ["quiet", "floods", "no_peer"].map(|manner| (manner, flood.run(&built::hook(), 4000, manner)));
        for (manner, run) in &runs {
            let Run { step_ms, slow_ms, peak_kib, others, .. } = run;
            println!("{manner:<9}   {step_ms:.4}   {slow_ms:.4}   {peak_kib}   {:.2}", others * 100.0);
            more.push(others - runs[0].1.others);
        }
    }
    let most = more.iter().copied().fold(0.0, f64::max);
    assert!(most < MOST_SHARE, "a flood takes {:.1} % of a core", most * 100.0);
}
