//! Capturers, ranks and collectors are killed during captures, repeatedly. A recorder that runs at the same
//! time loses nothing, and every file can be opened.

use std::{fs, path::Path, thread, time::Duration};

use serde_json::Value;
use xpu_recording::Recording;
use xpu_tests::{
    host::{BASE, Host},
    program::{Program, run, until},
};

/// Three rounds of five victims each, 4 s per victim. `XPU_TOP_KILLS=50` runs more.
const KILLS: u64 = 15;

/// The ranks are independent, so one can die alone.
const TRAINS: &str = "
while True:
    for side in (256, 512): ok(gemm_ex(side, side, side))
    sync()
    step()
    time.sleep(0.01)
";

#[derive(Clone, Copy, Debug)]
enum Victim {
    Capturer,
    Worker,
    Collector,
}

fn command(host: &Host, line: &str, file: &Path) -> Program {
    let mut command = host.xpu_top(line);
    command.arg("-o").arg(file).args(["--hosts", &format!("{}:{BASE}", host.address), "--key-file"]);
    Program::start(command.arg(host.key()))
}

/// Compares process ids: a killed rank stays `ok` until its death is noticed.
fn wait_for_both(host: &Host, ranks: &[Program]) {
    until("both ranks to train", || {
        let status = host.status();
        let trains = |program: &&Program| {
            let mut known = status["ranks"].as_array().into_iter().flatten();
            known.any(|rank| rank["pid"] == program.pid() && rank["state"] == "ok")
        };
        let trained = ranks.iter().filter(trains).count();
        (trained == 2 && status["steps"]["min"].as_u64()? >= 3).then_some(())
    });
}

/// [`KILLS`], or the number in `XPU_TOP_KILLS`.
fn kills() -> u64 {
    std::env::var("XPU_TOP_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

#[test]
fn files_open_whichever_process_is_killed() {
    let mut host = Host::new();
    let rank = |host: &Host, rank| host.rank(rank, TRAINS);
    let mut ranks: Vec<_> = (0..2).map(|number| rank(&host, number)).collect();
    wait_for_both(&host, &ranks);
    let all = host.place.path("all.xpurec");
    let recorder = command(&host, "record", &all);
    let (mut whole, mut captured) = (0, 0);
    let kills = kills();
    for number in 0..kills {
        let file = host.place.path(&format!("{number}.bin"));
        let capturing = command(&host, "capture --steps 30 --wait 6 --no-watch", &file);
        until("the capture to begin", || file.exists().then_some(()));
        // The kills are spread from before the ranks agree to after the last step.
        thread::sleep(Duration::from_millis(number * 389 % 1_500));
        let victim = [Victim::Capturer, Victim::Worker, Victim::Capturer, Victim::Worker, Victim::Collector]
            [number as usize % 5];
        match victim {
            Victim::Capturer => capturing.signal("KILL"),
            Victim::Worker => ranks[number as usize % 2].signal("KILL"),
            Victim::Collector => host.end_collector(),
        }
        let ended = capturing.end();
        let report = run(host.xpu_top("report --json").arg(&file));
        match report.status.code() {
            // Data arrived, or the missing ranks are known.
            Some(0 | 3) => {
                let report: Value = serde_json::from_str(&report.stdout).expect("a document");
                let of_a_rank = report["ranks"].as_array().expect("a list").len();
                let missing = report["missing"].as_array().expect("a list").len();
                assert_eq!(of_a_rank + missing, 2, "{number} {victim:?} {ended:?} {report:#}");
                whole += u64::from(missing == 0);
                captured += 1;
            }
            // The capture was killed before it wrote its first block, or it reported that no rank had sent
            // anything.
            Some(64) => assert!(
                matches!(victim, Victim::Capturer) || ended.stdout.contains("no rank sent anything"),
                "{victim:?} {ended:?} {report:?}"
            ),
            code => panic!("{number} {victim:?}: {code:?} {report:?}"),
        }
        let _ = fs::remove_file(&file);
        match victim {
            Victim::Capturer => {}
            Victim::Worker => {
                let number = number as usize % 2;
                ranks[number] = rank(&host, number);
                wait_for_both(&host, &ranks);
            }
            Victim::Collector => {
                host.begin_collector();
                wait_for_both(&host, &ranks);
            }
        }
    }
    // A capture without data leaves no file.
    assert!(captured > kills / 4, "{captured} of {kills} captures had data, {whole} were complete");
    println!("{captured} of {kills} captures had data, {whole} were complete");
    recorder.signal("INT");
    let outcome = recorder.end();
    assert!(outcome.status.success(), "{outcome:?}");
    let recording = Recording::open_file(&all).expect("it opens");
    assert!(recording.is_closed() && recording.damage().is_empty(), "{:?}", recording.damage());
    let span = recording.span();
    println!("recorded {:?}: {outcome:?}", span.last.since(span.first));
}
