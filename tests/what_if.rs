//! `xpu-top what-if` on a capture of the demo, on the running demo, and on files that it cannot read.

use std::{
    fs::{self, File},
    path::Path,
};

use serde_json::Value;
use xpu_model::job::{Job, Jobs};
use xpu_recording::Recording;
use xpu_tests::{
    built,
    host::Host,
    place::Place,
    program::{Outcome, Program, run, until},
};
use xpu_wire::{codec, frame::JobWhatIf, id::Rank};

/// The output of a command on a running demo. `command` makes the line from the options that name the demo.
fn of_demo(line: &str, place: &Place, command: impl Fn(&str) -> String) -> Outcome {
    with_demo(line, place, |ask| {
        let done = ask(&command);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        done
    })
}

/// Runs commands on a running demo.
fn with_demo<T>(
    line: &str,
    place: &Place,
    with: impl FnOnce(&dyn Fn(&dyn Fn(&str) -> String) -> Outcome) -> T,
) -> T {
    // One demo runs at a time: each takes all cores of a small machine.
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
        // `steps` has only ranks whose steps are known.
        let are_known = status["ranks"].as_array()?.iter().all(|rank| rank["step"].is_u64());
        (status["steps"]["min"].as_u64()? >= 3 && are_known).then_some(())
    });
    with(&|command| run(&mut program(&command(&of_job))))
}

fn what_if(place: &Place, file: &Path, more: &[&str]) -> Outcome {
    run(place.command(built::artifact("xpu-top")).arg("what-if").arg(file).args(more))
}

#[test]
fn a_slow_rank_is_named_with_what_it_costs() {
    let place = Place::new();
    let file = place.path("c.bin");
    of_demo("--ranks 8 --nodes 2 --slow 5:1.5", &place, |of_job| {
        format!("capture --no-watch --steps 6 -o {} --wait 60 {of_job}", file.display())
    });
    let said = what_if(&place, &file, &["--json"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let figures: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!((&figures["data_parallel"], &figures["stages"]), (&8.into(), &1.into()), "{figures:#}");
    let time = |name: &str| figures["step"][name].as_f64().expect("a time");
    assert!((time("simulated_ms") / time("measured_ms") - 1.0).abs() < 0.02, "{figures:#}");
    let first = &figures["workers"][0];
    assert_eq!(first["rank"], 5, "{figures:#}");
    assert!(first["repaired_ms"].as_f64() < Some(0.9 * time("measured_ms")), "{figures:#}");
    let text = what_if(&place, &file, &[]).stdout;
    let reported = "If rank 5 were as fast as the others, a step would take ";
    assert!(text.contains(reported) && text.contains("ranks, the slowest first"), "{text}");
}

/// Number of captures of which the median counts: on a busy machine, pauses of a host make the steps of some
/// captures longer.
const CAPTURES: usize = 3;

/// The figures of successive captures of a demo of a pipeline with four stages and two replicas.
fn figures_of_pipeline(fault: &str) -> Vec<Value> {
    let place = Place::new();
    let file = place.path("c.bin");
    with_demo(&format!("--ranks 8 --nodes 2 --stages 4 {fault}"), &place, |ask| {
        let figures = |_| {
            let capture = |of_job: &str| {
                format!("capture --no-watch --steps 6 -o {} --wait 60 {of_job}", file.display())
            };
            let done = ask(&capture);
            assert_eq!(done.status.code(), Some(0), "{done:?}");
            let said = what_if(&place, &file, &["--json"]);
            assert_eq!(said.status.code(), Some(0), "{said:?}");
            fs::remove_file(&file).expect("the capture is there");
            serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"))
        };
        (0..CAPTURES).map(figures).collect()
    })
}

fn median(figures: &[Value], of: impl Fn(&Value) -> f64) -> f64 {
    let mut all: Vec<f64> = figures.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// By how much a predicted step may differ from a measured one. On an idle machine, the predictions of a
/// pipeline are off by up to 2.3 %, and the steps of healthy captures differ by 4 %
/// (docs/measurements-log.md); tests run beside others. Without its repair, each fault makes a step at least
/// 20 % longer.
const PREDICTED: f64 = 0.1;

/// A fault of a pipeline.
struct Fault {
    option: &'static str,
    /// The field with the step that is predicted without it.
    predicted: &'static str,
    /// The field that names the cause, and its value.
    cause: &'static str,
    value: Value,
}

#[test]
fn a_pipeline_without_its_fault_is_as_fast_as_predicted() {
    let time = |figures: &Value, field: &str| figures.pointer(field).and_then(Value::as_f64).expect("a time");
    let healthy = figures_of_pipeline("");
    for figures in &healthy {
        assert_eq!((&figures["data_parallel"], &figures["stages"]), (&2.into(), &4.into()), "{figures:#}");
    }
    assert!(median(&healthy, |figures| time(figures, "/slowdown")) < 1.1, "{healthy:#?}");
    let expected = median(&healthy, |figures| time(figures, "/step/measured_ms"));
    let (of_worker, of_stage) = ("/workers/0/repaired_ms", "/stage_figures/0/repaired_ms");
    let fault = |option, predicted, cause, value| Fault { option, predicted, cause, value };
    let faults = [
        fault("--slow 5:1.5", of_worker, "/workers/0/rank", 5.into()),
        fault("--slow-host 1:60ms", of_worker, "/workers/0/rank", 1.into()),
        fault("--more-layers 3:2", of_stage, "/stage_figures/0/stage", 3.into()),
        fault("--long-sequences", "/step/ideal_ms", "/sequence_length/is_likely", true.into()),
    ];
    for Fault { option, predicted, cause, value } in faults {
        let all = figures_of_pipeline(option);
        let measured = median(&all, |figures| time(figures, "/step/measured_ms"));
        assert!(measured > 1.1 * expected, "{option}: {measured} and {expected}, {all:#?}");
        let of_measured =
            |figures: &Value| time(figures, "/step/simulated_ms") / time(figures, "/step/measured_ms");
        let simulated = median(&all, of_measured);
        assert!((simulated - 1.0).abs() < 0.02, "{option}: {simulated}, {all:#?}");
        let ratio = median(&all, |figures| time(figures, predicted)) / expected;
        assert!((ratio - 1.0).abs() < PREDICTED, "{option}: {ratio}, {all:#?}");
        let are_named = all.iter().filter(|figures| figures.pointer(cause) == Some(&value)).count();
        assert!(2 * are_named > all.len(), "{option}: {cause} of {all:#?}");
    }
}

/// Four ranks as in hybrid sharding: each shares its parameters with its neighbour, and averages gradients
/// with the rank two further. No collective is of all ranks.
const SHARDED: &str = "
world = communicator()
def split(color):
    part = c_void_p()
    ok(process.ncclCommSplit(world, color, RANK, byref(part), None))
    return part
shard, replicas = split(RANK // 2), split(RANK % 2)
while True:
    ok(all_gather(shard, 1 << 20))
    for _ in range(8): ok(gemm_ex(8192, 8192, 8192))
    ok(reduce_scatter(shard, 1 << 20))
    ok(all_reduce(replicas, 1 << 20))
    sync()
    step()
";

#[test]
fn a_slow_rank_of_a_sharded_job_is_named_with_what_it_costs() {
    let host = Host::with_visible_gpus();
    let slow = |rank| [("SIMGPU_SLOWDOWN", if rank == 3 { "1.5" } else { "1" })];
    let _ranks: Vec<_> = (0..4).map(|rank| host.rank_of_where((rank, 4), &slow(rank), SHARDED)).collect();
    until("steps", || (host.status()["steps"]["min"].as_u64()? >= 20).then_some(()));
    let file = host.place.path("c.bin");
    let done = host.ask(&format!("capture --no-watch --steps 6 --wait 60 -o {}", file.display()));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let said = what_if(&host.place, &file, &["--json"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let figures: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let time = |name: &str| figures["step"][name].as_f64().expect("a time");
    assert!((time("simulated_ms") / time("measured_ms") - 1.0).abs() < 0.05, "{figures:#}");
    let first = &figures["workers"][0];
    assert_eq!(first["rank"], 3, "{figures:#}");
    // The rank computes for half as long again as the others.
    assert!(first["repaired_ms"].as_f64() < Some(0.8 * time("measured_ms")), "{figures:#}");
}

/// What stragglers have cost the job of a recording.
fn recorded(file: &Path) -> JobWhatIf {
    let mut recording = Recording::open_file(file).expect("it opens");
    let mut jobs = Jobs::default();
    for entry in recording.entries().to_vec() {
        let block = recording.block(&entry).expect("it can be read").expect("it is whole");
        block
            .records()
            .filter_map(|record| codec::decode(record.frame).ok())
            .for_each(|frame| jobs.fold(&frame));
    }
    jobs.foremost().and_then(Job::what_if).expect("it is recorded").clone()
}

#[test]
fn a_rank_whose_loader_is_slow_is_named_live_with_the_gpu_hours_it_costs() {
    let place = Place::new();
    let file = place.path("later.xpurec");
    let said = with_demo("--ranks 8 --nodes 2 --slow-host 3:60ms", &place, |ask| {
        let said =
            ask(&|of_job| format!("what-if --live --json --every 1s --times 2 --gpu-hour-price 2 {of_job}"));
        // Whoever connects after the last capture gets the sum too.
        let done = ask(&|of_job| format!("record --for 3s -o {} {of_job}", file.display()));
        assert_eq!((said.status.code(), done.status.code()), (Some(0), Some(0)), "{said:?} {done:?}");
        said
    });
    let lines: Vec<Value> = said.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [first, last] = &lines[..] else { panic!("{said:?}") };
    for line in [first, last] {
        assert_eq!(line["state"], "estimate", "{line:#}");
        let (all, ranks) = (&line["estimate"]["losses"][0], &line["estimate"]["losses"][1]);
        assert_eq!((&all["cause"], &ranks["cause"]), (&"all".into(), &"ranks".into()), "{line:#}");
        assert_eq!(ranks["ranks"][0], 3, "{line:#}");
    }
    // Steps passed between the captures, and each cost 8 ranks about 50 ms.
    let steps = |line: &Value| line["total"]["steps"].as_f64().expect("a number");
    assert!(steps(last) > 2.0 * steps(first), "{said:?}");
    let lost = last["total"]["lost"]["ranks"]["gpu_hours"].as_f64().expect("it is known");
    let expected = steps(last) * 8.0 * 0.050 / 3600.0;
    assert!((0.6..1.6).contains(&(lost / expected)), "{lost} is not {expected}: {said:?}");
    assert_eq!(last["total"]["ranks"][0]["rank"], 3, "{last:#}");
    assert!(last["total"]["lost"]["all"]["money"].is_number(), "{last:#}");
    let of = recorded(&file);
    assert_eq!((of.estimates, of.steps as f64, of.ranks[0].0), (2, steps(last), Rank(3)), "{of:?}");
    assert!(!of.sentences.is_empty(), "{of:?}");
    let left = fs::read_dir(place.path("")).expect("a folder").flatten();
    let left: Vec<_> = left.filter(|file| file.file_name().to_string_lossy().contains("what-if")).collect();
    assert!(left.is_empty(), "no capture is left behind: {left:?}");
}

#[test]
fn an_unreadable_file_is_refused_with_advice() {
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
    assert!(help.status.success() && help.stdout.contains("what stragglers cost"), "{help:?}");
}
