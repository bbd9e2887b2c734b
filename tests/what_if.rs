//! `xpu-top what-if` on captures of the demo, and on files that it cannot read.

use std::{
    fs::{self, File},
    path::Path,
};

use serde_json::Value;
use xpu_tests::{
    built,
    place::Place,
    program::{Outcome, Program, run, until},
};

/// A demo that trains until its capture is made.
fn captured(line: &str, place: &Place) -> std::path::PathBuf {
    // One demo at a time: each takes all of a small machine.
    let turn = File::create(std::env::temp_dir().join("xpu-top-demo-tests")).expect("a file");
    turn.lock().expect("a lock");
    let program = |line: &str| {
        let mut command = place.command(built::artifact("xpu-top"));
        command.env("HOME", place.path("")).env("TMPDIR", place.path("")).env_remove("XDG_CONFIG_HOME");
        command.args(line.split_whitespace());
        command
    };
    let demo = Program::start(&mut program(&format!("demo --headless --json --steps 100000 {line}")));
    let base = until("the demo to say its ports", || {
        let said = demo.said();
        Some(said.strip_prefix("demo: ports ")?.split_once(' ')?.0.to_owned())
    });
    let of_job = format!("--hosts 127.0.0.[1-2] --base-port {base}");
    until("the job to train", || {
        let status = run(&mut program(&format!("status --json --now {of_job}"))).stdout;
        let status: Value = serde_json::from_str(&status).ok()?;
        (status["steps"]["min"].as_u64()? >= 3).then_some(())
    });
    let file = place.path("c.bin");
    let done =
        run(&mut program(&format!("capture --no-watch --steps 6 -o {} --wait 60 {of_job}", file.display())));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    file
}

fn what_if(place: &Place, file: &Path, more: &[&str]) -> Outcome {
    run(place.command(built::artifact("xpu-top")).arg("what-if").arg(file).args(more))
}

#[test]
fn a_rank_that_is_slow_or_whose_loader_is_is_named_with_what_it_costs() {
    for (line, culprit) in [("--slow 5:1.5", 5), ("--slow-host 3:60ms", 3)] {
        let place = Place::new();
        let file = captured(&format!("--ranks 8 --nodes 2 {line}"), &place);
        let said = what_if(&place, &file, &["--json"]);
        assert_eq!(said.status.code(), Some(0), "{line}: {said:?}");
        let figures: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
        assert_eq!((&figures["data_parallel"], &figures["stages"]), (&8.into(), &1.into()), "{figures:#}");
        let time = |name: &str| figures["step"][name].as_f64().expect("a time");
        assert!((time("simulated_ms") / time("measured_ms") - 1.0).abs() < 0.02, "{line}: {figures:#}");
        let first = &figures["workers"][0];
        assert_eq!(first["rank"], culprit, "{line}: {figures:#}");
        assert!(first["repaired_ms"].as_f64() < Some(0.9 * time("measured_ms")), "{line}: {figures:#}");
        let reported = format!("If rank {culprit} were as fast as the others, a step would take ");
        let text = what_if(&place, &file, &[]).stdout;
        assert!(text.contains(&reported) && text.contains("ranks, the slowest first"), "{line}: {text}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_what_to_do() {
    let place = Place::new();
    let file = place.path("trace.parquet");
    let missing = what_if(&place, &file, &[]);
    assert!(missing.status.code() == Some(64) && missing.stderr.contains("cannot read "), "{missing:?}");
    for (bytes, reported) in [
        (&b"PAR1"[..], "the Parquet file is cut off or damaged"),
        (b"PAR1 and then something else", "copy it again"),
        (b"", "cannot read "),
        (b"something else", "cannot read "),
    ] {
        fs::write(&file, bytes).expect("the place takes it");
        let refused = what_if(&place, &file, &["--json"]);
        assert!(refused.status.code() == Some(64) && refused.stderr.contains(reported), "{refused:?}");
        assert_eq!(refused.stdout, "", "{refused:?}");
    }
    let help = run(place.command(built::artifact("xpu-top")).args(["what-if", "--help"]));
    assert!(help.status.success() && help.stdout.contains("without their stragglers"), "{help:?}");
}
