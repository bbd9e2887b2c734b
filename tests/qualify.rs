//! `xpu-top qualify` on the simulated GPU: it measures the simulated speeds, and names the GPU that is
//! slower.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde_json::Value;
use xpu_tests::{
    built,
    place::Place,
    port::free_base,
    program::{Outcome, Program, run, until},
};

/// The simulated H200's speeds (simgpu/README.md). The stand-in multiplies 8-bit types no faster than
/// 16-bit types.
const SPEEDS: [(&str, &str); 2] = [("SIMGPU_TFLOPS", "700"), ("XPU_TOP_PEAK_TFLOPS", "bf16=989.5,fp8=1000")];

struct Machine(Place);

impl Machine {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.path("machine")).expect("a folder in a fresh folder");
        Self(place)
    }

    fn command(&self, devices: &str, line: &str) -> Command {
        let mut command = self.0.command(built::artifact("xpu-top"));
        command.arg("qualify").args(line.split_whitespace()).env("SIMGPU_DEVICES", devices).envs(SPEEDS);
        // The place has no key and no collector of this user.
        command.env("HOME", self.0.path("")).env("XPU_TOP_BASE_PORT", free_base().to_string());
        command
    }

    fn qualify(&self, devices: &str, line: &str) -> Outcome {
        run(&mut self.command(devices, line))
    }

    /// From now on, work on this device takes `factor` times as long.
    fn slow_down(&self, device: u32, factor: &str) {
        fs::write(self.0.path("machine").join(format!("slow-{device}")), factor).expect("a small file");
    }
}

#[track_caller]
fn document(outcome: &Outcome, code: i32) -> Value {
    assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).expect("a document")
}

/// The figure with this kind and name, of one GPU of the first host.
fn figure<'a>(document: &'a Value, gpu: usize, kind: &str, name: &str) -> &'a Value {
    let figures = document["hosts"][0]["gpus"][gpu]["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["kind"] == kind && figure["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name}: {document:#}"))
}

#[track_caller]
fn is_about(value: &Value, wanted: f64) {
    let near = value.as_f64().is_some_and(|value| (value / wanted - 1.0).abs() < 0.05);
    assert!(near, "{value} instead of {wanted}");
}

#[test]
fn healthy_gpus_pass_at_the_speeds_they_have_and_a_slow_one_is_named() {
    let machine = Machine::new();
    let of = document(&machine.qualify("2", "--quick --json"), 0);
    for gpu in 0..2 {
        for (kind, name, speed) in [
            ("gemm", "bf16 8192", 700.0),
            ("gemm", "bf16 2048", 700.0),
            ("gemm", "fp16 4096", 700.0),
            ("gemm", "tf32 8192", 350.0),
            ("gemm", "fp8 8192", 700.0),
            ("memory", "", 4000.0),
            ("to_gpu", "", 25.0),
            ("from_gpu", "", 25.0),
            ("to_gpu_together", "", 25.0),
        ] {
            let figure = figure(&of, gpu, kind, name);
            is_about(&figure["median"], speed);
            is_about(&figure["of_neighbours"], 1.0);
        }
    }
    is_about(&figure(&of, 0, "memory", "")["peak"], 2.0 * 3201e6 * 6144.0 / 8.0 / 1e9);
    is_about(&figure(&of, 0, "to_gpu", "")["peak"], 31.5);
    is_about(&figure(&of, 0, "gemm", "bf16 8192")["of_peak"], 700.0 / 989.5);
    let host = &of["hosts"][0];
    let pairs = host["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 2);
    for pair in pairs {
        is_about(&pair["figure"]["median"], 300.0);
    }
    is_about(&host["all_reduce"]["median"], 150.0);
    assert_eq!(host["gpus"][0]["condition"]["sm_clock_mhz"], 1980, "{host:#}");
    assert!(host["gpus"][0]["uuid"] != host["gpus"][1]["uuid"]);

    machine.slow_down(1, "1.25");
    let slow = machine.qualify("2", "--quick");
    assert_eq!(slow.status.code(), Some(1), "{slow:?}");
    for said in
        ["FAIL: GPU 1: gemm bf16 4096: 560 TFLOPS, 80 % of its neighbours (700)", "1 GPU and 0 hosts pass"]
    {
        assert!(slow.stdout.contains(said), "{said}: {}", slow.stdout);
    }
    assert!(!slow.stdout.contains("FAIL: GPU 0"), "{}", slow.stdout);
}

#[test]
fn a_gpu_is_compared_with_its_own_past_and_with_those_of_other_documents() {
    let machine = Machine::new();
    let kept = |name: &str, host: &str, outcome: &Outcome| {
        let mut of: Value = serde_json::from_str(&outcome.stdout).expect("a document");
        of["hosts"][0]["host"] = host.into();
        let path = machine.0.path(name);
        fs::write(&path, of.to_string()).expect("a file");
        path.display().to_string()
    };
    let mut healthy = String::new();
    for _ in 0..3 {
        let outcome = machine.qualify("1", "--quick --json");
        assert!(figure(&document(&outcome, 0), 0, "memory", "")["past"].is_null());
        healthy = kept("healthy.json", "a", &outcome);
    }
    machine.slow_down(0, "1.2");
    let slower = machine.qualify("1", "--quick --json");
    let of = document(&slower, 1);
    is_about(&figure(&of, 0, "memory", "")["of_past"], 1.0 / 1.2);
    assert!(of["hosts"][0]["why"][0].as_str().is_some_and(|why| why.contains("its own past")), "{of:#}");
    // A longer run has no earlier result to compare with, so nothing shows that this GPU is slow.
    let alone = machine.qualify("1", "--json");
    document(&alone, 0);
    let slow = kept("slow.json", "b", &alone);
    let together = machine.qualify("1", &format!("--compare {healthy} {slow} --json"));
    let of = document(&together, 1);
    let verdicts: Vec<_> =
        of["hosts"].as_array().expect("hosts").iter().map(|host| &host["verdict"]).collect();
    assert_eq!(verdicts, ["pass", "fail"]);
    let wrong = machine.qualify("1", "--compare /dev/null");
    assert!(wrong.status.code() == Some(64) && wrong.stderr.contains("xpu-top qualify --json"), "{wrong:?}");
}

/// A rank that uses its GPU until the test ends it.
const COMPUTES: &str = "
while True:
    ok(gemm_ex(1024, 1024, 1024))
    sync()
    time.sleep(0.01)
";

#[test]
fn qualify_runs_beside_a_job_only_with_the_option() {
    let machine = Machine::new();
    let base = free_base().to_string();
    let rank = Program::start(&mut machine.0.script(&format!("from gpu import *\n{COMPUTES}")));
    until("the rank to compute", || machine.0.path("machine/gpu-0").exists().then_some(()));
    let refused = until("the driver to see it", || {
        let outcome = machine.qualify("1", "--quick");
        outcome.stdout.contains("GPU 0 is used by process").then_some(outcome)
    });
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stdout.contains(&format!("process {}; end the job first", rank.pid())), "{refused:?}");
    let beside = document(&machine.qualify("1", "--quick --beside-job --json"), 0);
    assert_eq!(beside["hosts"][0]["beside_job"], true);
    assert!(!machine.0.path("state/xpu-top/qualify").exists(), "a measurement beside a job is not kept");
    rank.signal("KILL");
    rank.end();

    // The driver does not show this rank's GPU, but the collector knows the rank.
    let socket = machine.0.path("run").join(format!("collector-{base}.sock"));
    let mut collector = machine.0.command(built::artifact("xpu-collector"));
    collector.env("HOME", machine.0.path(""));
    let _collector = Program::start(collector.args(["--base-port", &base]));
    until("the collector to listen", || socket.exists().then_some(()));
    let mut rank = machine.0.script(&format!("from gpu import *\n{COMPUTES}"));
    rank.env_remove("SIMGPU_MACHINE_DIR").env("XPU_TOP_SOCKET", &socket).env("XPU_TOP_JOB", "train");
    let _rank = Program::start(&mut rank);
    until("the collector to know the rank", || {
        let outcome = run(machine.command("1", "--quick").env("XPU_TOP_BASE_PORT", &base));
        (outcome.status.code() == Some(2) && outcome.stdout.contains("job train runs here, with 1 rank"))
            .then_some(())
    });
}

#[test]
fn the_exit_code_is_2_if_nothing_can_be_measured() {
    let machine = Machine::new();
    for (name, value, said) in
        [("LD_LIBRARY_PATH", "/nowhere", "no NVIDIA driver"), ("SIMGPU_DEVICES", "0", "CUDA finds no GPU")]
    {
        let outcome = run(machine.command("1", "--quick").env(name, value));
        assert!(outcome.status.code() == Some(2) && outcome.stdout.contains(said), "{name}: {outcome:?}");
    }
}

/// A replacement for ssh: each host is a folder, and has the GPUs of its own machine.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ "$2" = gone ] && { echo "ssh: connect to host gone port 22: Connection refused" >&2; exit 255; }
mkdir -p "$MACHINES/$2"
export SIMGPU_MACHINE_DIR="$MACHINES/$2"
[ "$2" = c ] && export SIMGPU_BUS_GB_S=60
exec sh -c "$3"
"#;

#[test]
fn hosts_are_measured_through_ssh_and_against_each_other() {
    let machine = Machine::new();
    let ssh = machine.0.path("ssh");
    fs::write(&ssh, SSH).expect("a small file");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("an own file");
    let program = built::artifact("xpu-top");
    let ask = |hosts: &str| {
        let line =
            format!("--quick --json --hosts {hosts} --ssh={} --program {}", shown(&ssh), shown(&program));
        run(machine.command("1", &line).env("MACHINES", machine.0.path("machines")))
    };
    let of = document(&ask("a,b,c,d"), 1);
    let hosts = of["hosts"].as_array().expect("hosts");
    let verdicts: Vec<_> = hosts.iter().map(|host| (&host["host"], &host["verdict"])).collect();
    let wanted = [("a", "pass"), ("b", "pass"), ("c", "fail"), ("d", "pass")];
    assert!(
        verdicts
            .iter()
            .zip(wanted)
            .all(|(&(name, verdict), (host, wanted))| name == host && verdict == wanted)
    );
    let pairs = of["host_pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 6);
    for pair in pairs {
        let with_c = pair["hosts"].as_array().is_some_and(|hosts| hosts.iter().any(|host| host == "c"));
        is_about(&pair["figure"]["median"], if with_c { 60.0 } else { 150.0 });
    }
    is_about(&of["all_reduce"]["median"], 60.0);
    assert_eq!(of["all_reduce"]["name"], "4 GPUs");

    let of = document(&ask("a,gone"), 2);
    let gone = &of["hosts"].as_array().expect("hosts").iter().find(|host| host["host"] == "gone");
    let why = gone.and_then(|host| host["not_run"].as_str()).unwrap_or_default();
    assert!(why.contains("Connection refused") && why.contains("ssh gone xpu-top --version"), "{of:#}");
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
