//! Viewers that have just started, of many hosts with a history: `cargo run --release -p xpu-tests --example
//! late_viewer [HOSTS] [AGO]`.
//!
//! One process simulates the hosts (`crowd_of_hosts`), with eight ranks each. Rank 9 has been late for AGO
//! seconds. Each line is a new process, and the time until it has shown the finding.

use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;
use xpu_tests::{
    built,
    place::Place,
    program::{Program, run},
    pty::Terminal,
};

const RANKS_PER_HOST: u32 = 8;
const LATE: u32 = 9;

/// Processes of each kind.
const TIMES: u32 = 5;

fn main() {
    let number =
        |at, otherwise: u32| env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (hosts, ago) = (number(1, 1_250), number(2, 150));
    println!("{hosts} hosts, {} ranks; rank {LATE} has been late for {ago} s", hosts * RANKS_PER_HOST);
    let place = Place::new();
    let began = Instant::now();
    let numbers = [hosts, RANKS_PER_HOST, LATE, ago].map(|number| number.to_string());
    let crowd = Program::start(Command::new(built::artifact("examples/crowd_of_hosts")).args(numbers));
    let line = loop {
        if let Some((line, _)) = crowd.wrote().split_once('\n') {
            break line.to_owned();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let (list, base) = line.split_once(' ').expect("hosts and a port");
    println!("the history was made in {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let xpu_top = |words: &[&str]| {
        let mut command = place.command(built::artifact("xpu-top"));
        command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME").args(words);
        command.args(["--hosts", list, "--base-port", base]);
        command
    };
    for _ in 0..TIMES {
        let started = Instant::now();
        let really = f64::from(ago) + began.elapsed().as_secs_f64();
        let outcome = run(&mut xpu_top(&["status", "--json", "--now"]));
        let took = started.elapsed();
        let document: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        let found = &document["findings"][0];
        println!(
            "status: {:.2} s, {} ranks; ranks {} {} {}: since {:.0} s, really {really:.0} s",
            took.as_secs_f64(),
            document["coverage"]["ranks_seen"],
            found["ranks"],
            found["kind"],
            found["class"],
            found["since_s"].as_f64().unwrap_or(f64::NAN),
        );
    }
    for _ in 0..TIMES {
        let started = Instant::now();
        let mut terminal = Terminal::start(xpu_top(&[]), 132, 40);
        terminal.wait("figures", |screen| screen.contains("step time"));
        let figures = started.elapsed();
        terminal.wait("the finding", |screen| screen.contains(&format!("rank {LATE}")));
        let finding = started.elapsed();
        println!(
            "screen: figures after {:.2} s, the finding after {:.2} s",
            figures.as_secs_f64(),
            finding.as_secs_f64()
        );
        terminal.keys("q");
        terminal.end();
    }
}
