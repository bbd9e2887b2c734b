//! Prints a table of hangs: each of the causes, and a healthy job, with several numbers of ranks, repeated
//! several times, in real processes on the simulated GPU.
//!
//!     cargo run --release -p xpu-tests --example hang_table -- [--ranks 2,8,64] [--rounds 5] [--at-once 1] [CAUSE...]
//!
//! A cell shows the number of correct rounds, and the longest time from the last progress to the report. If a
//! round was wrong, the program prints its report and exits with 1.

use std::{process::ExitCode, sync::Mutex, thread};

use xpu_tests::causes::{Cause, Verdict, causes};

#[derive(Debug)]
struct Arguments {
    ranks: Vec<usize>,
    rounds: usize,
    at_once: usize,
    causes: Vec<Cause>,
}

fn asked() -> Result<Arguments, String> {
    let mut asked = Arguments { ranks: vec![2, 8, 64], rounds: 5, at_once: 1, causes: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
        match word.as_str() {
            "--ranks" => asked.ranks = value()?.split(',').map(number).collect::<Result<_, _>>()?,
            "--rounds" => asked.rounds = number(&value()?)?,
            "--at-once" => asked.at_once = number(&value()?)?.max(1),
            name => {
                let named = causes().into_iter().filter(|cause| cause.name.contains(name));
                let before = asked.causes.len();
                asked.causes.extend(named);
                if asked.causes.len() == before {
                    let known: Vec<_> = causes().iter().map(|cause| cause.name).collect();
                    return Err(format!("no cause is named {name}; there are: {}", known.join(", ")));
                }
            }
        }
    }
    if asked.causes.is_empty() {
        asked.causes = causes();
    }
    Ok(asked)
}

/// The cell of one cause with one number of ranks.
fn cell(verdicts: &[Verdict]) -> String {
    let right = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|one| is(one)).count();
    let longest = verdicts.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let [culprit, site, gpu] = [right(|one| one.culprit), right(|one| one.site), right(|one| one.gpu)];
    let all = verdicts.len();
    if (culprit, site, gpu) == (all, all, all) {
        format!("{all}/{all}, {longest:.0} s")
    } else {
        format!("culprit {culprit}, place {site}, GPU {gpu} of {all}, {longest:.0} s")
    }
}

fn main() -> ExitCode {
    let asked = match asked() {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("hang_table: {error}");
            return ExitCode::from(64);
        }
    };
    let jobs: Vec<_> = (0..asked.causes.len())
        .flat_map(|cause| asked.ranks.iter().map(move |&ranks| (cause, ranks)))
        .flat_map(|job| std::iter::repeat_n(job, asked.rounds))
        .collect();
    let (next, done) = (Mutex::new(jobs.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..asked.at_once {
            scope.spawn(|| {
                loop {
                    let Some(&(cause, ranks)) = next.lock().expect("no thread panics").next() else { return };
                    let verdict = asked.causes[cause].run(ranks);
                    let name = asked.causes[cause].name;
                    let word = if verdict.is_right() { "right" } else { "WRONG" };
                    eprintln!(
                        "{name}, {ranks} ranks: {word} after {:.0} s: {}",
                        verdict.seconds, verdict.evidence
                    );
                    done.lock().expect("no thread panics").push((cause, ranks, verdict));
                }
            });
        }
    });
    let done = done.into_inner().expect("no thread panics");
    let head: Vec<_> = asked.ranks.iter().map(|ranks| format!(" {ranks} ranks |")).collect();
    println!("| rank 1 | {}\n|---|{}", head.concat().trim_start(), "---|".repeat(asked.ranks.len()));
    for (number, cause) in asked.causes.iter().enumerate() {
        let cells = asked.ranks.iter().map(|&ranks| {
            let of = |(cause, of, _): &&(usize, usize, Verdict)| (*cause, *of) == (number, ranks);
            let verdicts: Vec<_> = done.iter().filter(of).map(|(_, _, verdict)| verdict.clone()).collect();
            format!(" {} |", cell(&verdicts))
        });
        println!("| {} |{}", cause.name, cells.collect::<String>());
    }
    ExitCode::from(u8::from(!done.iter().all(|(_, _, verdict)| verdict.is_right())))
}
