//! The files of recorders that ended in different ways.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use xpu_recording::{Kind, Recording};
use xpu_tests::{
    host::Host,
    program::{Program, run, until},
};
use xpu_wire::{codec, frame::Body, unit::Moment};

/// Two ranks run the same steps until, in some tests, rank 1 stops at step 200.
const STEPS: &str = "
comm = communicator()
for n in range(1000000):
    if n == 200 and HANGS and RANK == 1: hold()
    ok(all_reduce(comm, 1000))
    sync()
    step()
";

fn record(host: &Host, file: &Path, more: &str) -> Command {
    let mut command = host.xpu_top("record -o");
    command.arg(file).args(["--hosts", &format!("{}:{}", host.address, xpu_tests::host::BASE)]);
    command.arg("--key-file").arg(host.key()).args(more.split_whitespace());
    command
}

/// The numbers of each host's digests, in order. Numbers in the file must have no gap.
fn digests(recording: &mut Recording) -> BTreeMap<String, Vec<u64>> {
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for entry in recording.entries().to_vec() {
        let block = recording.block(&entry).expect("it reads").expect("a whole block");
        for record in block.records() {
            let frame = codec::decode(record.frame).expect("a whole frame");
            if let Body::Digest(_) = frame.body {
                numbers.entry(frame.host.to_string()).or_default().push(frame.number);
            }
        }
    }
    numbers
}

/// Fifty recorders of one job, each killed at another moment.
#[test]
fn a_recorder_that_is_killed_leaves_all_but_its_last_second() {
    let host = Host::new();
    let _ranks: Vec<_> = (0..2).map(|rank| host.rank_of(rank, 2, &STEPS.replace("HANGS", "False"))).collect();
    until("both ranks", || (host.status()["coverage"]["ranks_seen"] == 2).then_some(()));
    let file = |number: usize| -> PathBuf { host.place.path(&format!("{number}.xpurec")) };
    let mut seen = 0;
    for five in 0..10 {
        let recorders: Vec<_> = (0..5)
            .map(|one| {
                let number = five * 5 + one;
                let program = Program::start(&mut record(&host, &file(number), ""));
                (number, program, Instant::now() + Duration::from_millis((number as u64 * 389) % 2_700 + 60))
            })
            .collect();
        for (number, recorder, at) in recorders {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            recorder.signal("KILL");
            let killed = Moment::now();
            drop(recorder);
            let length = fs::metadata(file(number)).map_or(0, |file| file.len());
            match Recording::open_file(&file(number)) {
                Ok(mut recording) => {
                    assert!(!recording.is_closed());
                    let numbers = digests(&mut recording);
                    for numbers in numbers.values() {
                        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
                        seen += numbers.len();
                    }
                    let last = recording.entries().iter().rfind(|entry| entry.kind == Kind::Overview);
                    let behind = killed.since(last.expect("a block").last);
                    // A snapshot comes every two seconds, a digest every second, and the last second may not
                    // have been written.
                    assert!(behind < Duration::from_secs(8), "file {number}: {behind:?} are missing");
                    let end = recording.damage().iter().map(|damage| damage.offset + damage.bytes).max();
                    assert!(end.is_none_or(|end| end == length), "only its end can be torn");
                }
                Err(error) => {
                    let why = error.to_string();
                    let young = why.contains("no complete block")
                        || why.contains("empty")
                        || why.contains("No such file");
                    assert!(young, "file {number}: {why}");
                }
            }
        }
    }
    assert!(seen > 20, "the recorders heard {seen} digests");
}

/// The findings of a hung job, live by `status`, equal those that a reader finds in the recording.
#[test]
fn a_recorded_hang_has_the_findings_it_had_live() {
    let host = Host::new();
    let path = host.place.path("hang.xpurec");
    let recorder = Program::start(&mut record(&host, &path, ""));
    let script = STEPS.replace("HANGS", "True");
    let _ranks: Vec<_> = (0..2).map(|rank| host.rank_of(rank, 2, &script)).collect();
    let live = until("a hang", || {
        let status = host.status();
        status["findings"].as_array().is_some_and(|findings| !findings.is_empty()).then_some(status)
    });
    // One second after the last request, the file has what that request saw.
    let again = host.status();
    recorder.signal("INT");
    let outcome = recorder.end();
    assert!(outcome.status.success() && outcome.stderr.contains("of 2 ranks on 1 host"), "{outcome:?}");
    let reported = run(host.xpu_top("status --json --replay").arg(&path));
    let replayed: Value = serde_json::from_str(&reported.stdout).expect("a document");
    let of = |status: &Value| {
        let findings = status["findings"].as_array().expect("findings").iter();
        findings
            .map(|finding| {
                ["kind", "class", "ranks", "confidence", "collective"].map(|part| finding[part].clone())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&replayed), of(&again), "{reported:?}");
    assert_eq!(of(&live)[0][..3], of(&replayed)[0][..3]);
    assert_eq!(reported.status.code(), Some(2));
    // The file has details of every rank, whichever rank was viewed.
    let alone = run(host.xpu_top("status --json --rank 0 --replay").arg(&path));
    let alone: Value = serde_json::from_str(&alone.stdout).expect("a document");
    assert!(alone["ranks"][0]["collectives"].as_array().is_some_and(|some| !some.is_empty()), "{alone}");
    // Before the hang nothing was wrong.
    let before = run(host.xpu_top("status --json --at +2s --replay").arg(&path));
    let before: Value = serde_json::from_str(&before.stdout).expect("a document");
    assert_eq!(before["findings"].as_array().map(Vec::len), Some(0), "{before}");
}

#[test]
fn files_that_are_no_recordings_are_distinguished() {
    let place = xpu_tests::place::Place::new();
    let status = |path: &Path| {
        let mut command = place.command(xpu_tests::built::artifact("xpu-top"));
        run(command.arg("status").arg("--replay").arg(path))
    };
    for (name, bytes, said) in [
        ("empty", &b""[..], "empty"),
        ("foreign", &[7; 3000][..], "not a recording of xpu-top"),
        ("cut", &b"\x89xpurec\n\x01\x00"[..], "no complete block"),
    ] {
        let path = place.path(name);
        fs::write(&path, bytes).expect("a file in a fresh folder");
        let outcome = status(&path);
        assert_eq!(outcome.status.code(), Some(64), "{outcome:?}");
        assert!(outcome.stderr.contains(said) && outcome.stderr.contains("record"), "{outcome:?}");
    }
    assert!(status(&place.path("nowhere")).stderr.contains("No such file"));
}
