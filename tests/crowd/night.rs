//! The real screen with many simulated hosts, over real ZeroMQ: `cargo run --release -p xpu-tests --example
//! crowd [HOSTS] [SECONDS]`.
//!
//! One process simulates the hosts, with eight ranks each, at one digest a second. `xpu-top` follows them on
//! a pseudo-terminal.

use std::{
    env, fs,
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

use xpu_tests::{
    built,
    crowd::{BASE, Crowd},
    place::Place,
    pty::Terminal,
};

const RANKS_PER_HOST: u32 = 8;

/// Interval between two lines of the table.
const EVERY: Duration = Duration::from_secs(10);

/// Time between two keys. It does not divide a second, so over time the keys coincide with every event that
/// recurs each second.
const BETWEEN: Duration = Duration::from_millis(530);

/// Text that only the help page has.
const HELP: &str = "╭ Help";

/// The longest wait for the answer to a key.
const LONGEST: Duration = Duration::from_mins(1);

fn main() {
    let number =
        |at, otherwise: u32| env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (hosts, seconds) = (number(1, 1_250), number(2, 60));
    let ranks = hosts * RANKS_PER_HOST;
    println!("{hosts} hosts, {ranks} ranks; load {}", load());
    let (place, crowd) = (Place::new(), Crowd::new(hosts, RANKS_PER_HOST));
    crowd.start(0..hosts);
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME");
    command.args(["--hosts", &crowd.list(), "--base-port", &BASE.0.to_string()]);
    let began = Instant::now();
    let mut terminal = Terminal::start(command, 132, 40);
    let first = first_figures(&terminal, began);
    println!("first picture with figures after {:.2} s", first.as_secs_f64());
    println!(
        "{:>6} {:>9} {:>9} {:>8} {:>8} {:>8} {:>10} {:>12} {:>8} {:>6}",
        "s",
        "heard",
        "dropped",
        "refused",
        "RSS MiB",
        "CPU %",
        "screen B/s",
        "sent late ms",
        "key ms",
        "load"
    );
    let (mut cpu, mut bytes, mut at) = (cpu_seconds(terminal.pid()), terminal.bytes(), Instant::now());
    while began.elapsed() < Duration::from_secs(seconds.into()) {
        let key = keys_answered(&terminal, EVERY);
        let (cpu_now, bytes_now, passed) =
            (cpu_seconds(terminal.pid()), terminal.bytes(), at.elapsed().as_secs_f64());
        let screen = terminal.text();
        println!(
            "{:>6.0} {:>9} {:>9} {:>8} {:>8.0} {:>8.1} {:>10.0} {:>12.1} {:>8.1} {:>6}",
            began.elapsed().as_secs_f64(),
            below(&screen, "ranks").unwrap_or_default(),
            below(&screen, "dropped").unwrap_or_default(),
            crowd.tally().refused.load(Relaxed),
            resident_mib(terminal.pid()),
            (cpu_now - cpu) / passed * 100.0,
            (bytes_now - bytes) as f64 / passed,
            crowd.tally().late.swap(0, Relaxed) as f64 / 1e3,
            key.as_secs_f64() * 1e3,
            load(),
        );
        (cpu, bytes, at) = (cpu_now, bytes_now, Instant::now());
    }
    println!(
        "{} digests were sent, {} snapshots",
        crowd.tally().digests.load(Relaxed),
        crowd.tally().snapshots.load(Relaxed)
    );
    println!("{}", terminal.text());
    terminal.keys("q");
    terminal.end();
}

/// Opens and closes the help twice a second for this long. Returns the longest time that the screen needed.
fn keys_answered(terminal: &Terminal, long: Duration) -> Duration {
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    for (key, opens) in [("?", true), ("\x1b", false)].into_iter().cycle() {
        if began.elapsed() >= long && opens {
            break;
        }
        let pressed = Instant::now();
        terminal.keys(key);
        while terminal.text().contains(HELP) != opens {
            assert!(pressed.elapsed() < LONGEST, "{key:?} was not answered:\n{}", terminal.text());
            thread::sleep(Duration::from_millis(1));
        }
        longest = longest.max(pressed.elapsed());
        thread::sleep(BETWEEN.saturating_sub(pressed.elapsed()));
    }
    longest
}

/// The time until the first ranks are on the screen.
fn first_figures(terminal: &Terminal, began: Instant) -> Duration {
    terminal.wait("figures", |screen| screen.contains("step time"));
    began.elapsed()
}

/// The figure below its label, as in the wide header.
fn below(screen: &str, label: &str) -> Option<String> {
    let lines: Vec<_> = screen.lines().collect();
    let (line, column) = lines.iter().enumerate().find_map(|(line, text)| Some((line, text.find(label)?)))?;
    let column = lines[line][..column].chars().count();
    Some(lines.get(line + 1)?.chars().skip(column).take_while(|c| !c.is_whitespace()).collect())
}

fn resident_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

/// The CPU seconds of all threads of the process.
fn cpu_seconds(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let time = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.filter_map(time).sum::<f64>() / 1e9
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}
