//! Plays simulated jobs with and without faults, of 1, 2, 3, 8, 64 and 1,024 ranks, and checks the findings:
//! `make scenarios`.
//!
//! `scenarios [--tuning] [--seeds N] [--class TEXT] [--ranks N] [--long SECONDS] [--hosts N] [--failures]`. The late
//! viewer connects at least SECONDS after the fault began, and asks for as much history as one of N hosts.
//! `--failures` prints each scenario whose findings are wrong, missing or badly reported. The rules were made with
//! the tuning seeds; the reported results use other seeds.

mod catalogue;
mod chance;
mod collector;
mod device;
mod fault;
mod flow;
mod hook;
mod program;
mod scenario;
mod table;
#[cfg(test)]
mod tests;
mod verdict;

use std::{process::ExitCode, thread};

use catalogue::{NAMES, scenario};
use table::Row;
use verdict::{Watch, play};
use xpu_wire::unit::Moment;

const START: u64 = 1_800_000_000_000_000_000;

/// Two scenarios run at once, each with the descriptors of 1,024 ledger pages and as many processes.
const DESCRIPTORS: usize = 16_384;

/// Converts a scenario's second to a clock time.
pub(crate) fn moment(at: f64) -> Moment {
    Moment(START + (at * 1e9) as u64)
}

/// The first seed for tuning the rules, and the first seed that is held out.
const TUNING: u64 = 1_000;
const HELD_OUT: u64 = 910_000;

fn main() -> ExitCode {
    xpu_net::socket::raise_descriptor_limit(DESCRIPTORS);
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let known = |at: usize| {
        let flag = ["--tuning", "--failures"].contains(&&*arguments[at]);
        let values = ["--seeds", "--class", "--ranks", "--long", "--hosts"];
        flag || values.contains(&&*arguments[at]) || at > 1 && values.contains(&&*arguments[at - 1])
    };
    if !(1..arguments.len()).all(known) {
        eprintln!(
            "usage: scenarios [--tuning] [--seeds N] [--class TEXT] [--ranks N] [--long SECONDS] [--hosts N] [--failures]"
        );
        return ExitCode::from(2);
    }
    let seeds: u64 = value("--seeds").and_then(|text| text.parse().ok()).unwrap_or(20);
    let class = value("--class").unwrap_or_default();
    let only: Option<u32> = value("--ranks").and_then(|text| text.parse().ok());
    let long = value("--long").and_then(|text| text.parse().ok()).unwrap_or_default();
    let watch = Watch { long, hosts: value("--hosts").and_then(|text| text.parse().ok()) };
    let base = if has("--tuning") { TUNING } else { HELD_OUT };
    Row::head();
    let mut good = true;
    for name in NAMES.into_iter().filter(|name| name.contains(&class)) {
        let runs = [
            (1, seeds),
            (2, seeds),
            (3, seeds.div_ceil(2)),
            (8, seeds),
            (64, seeds.div_ceil(2)),
            (1024, seeds.div_ceil(20)),
        ];
        let runs: Vec<_> = runs
            .into_iter()
            .filter(|(ranks, _)| only.is_none_or(|only| only == *ranks))
            .flat_map(|(ranks, seeds)| (0..seeds).map(move |seed| (ranks, base + seed)))
            .filter_map(|(ranks, seed)| Some((seed, scenario(name, ranks, seed)?)))
            .collect();
        if runs.is_empty() {
            continue;
        }
        let mut row = Row::new(name, runs[0].1.expected.is_empty());
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let verdicts: Vec<_> = thread::scope(|scope| {
            let parts: Vec<_> = (0..workers)
                .map(|worker| {
                    let part = runs.iter().skip(worker).step_by(workers);
                    scope.spawn(move || {
                        part.map(|(seed, scenario)| (*seed, scenario, play(scenario, watch)))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            parts.into_iter().flat_map(|part| part.join().expect("a scenario is played")).collect()
        });
        for (seed, scenario, verdict) in verdicts {
            if has("--failures")
                && (!verdict.wrong.is_empty()
                    || !(scenario.expected.is_empty() || verdict.in_time && verdict.is_well_reported()))
            {
                let setting = &scenario.setting;
                println!(
                    "  seed {seed}, {} ranks, {:?}, step {}, ahead {}, timed {:?}, {:?}, expected {:?}: named {:?}, late {:?}, since {:?}, cost {:?}",
                    setting.ranks,
                    setting.layout,
                    setting.step,
                    setting.ahead,
                    setting.timed,
                    setting.fault,
                    scenario.expected,
                    verdict.named,
                    verdict.late,
                    verdict.since,
                    verdict.cost
                );
                for text in &verdict.last {
                    println!("    at the end: {text}");
                }
                for text in verdict.last_for_late.iter().filter(|_| verdict.late == Some(false)) {
                    println!("    to a late viewer: {text}");
                }
                for (at, text) in &verdict.wrong {
                    println!("    wrong at {at:+.1} s: {text}");
                }
            }
            row.add(verdict);
        }
        row.print();
        good &= row.is_good();
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
