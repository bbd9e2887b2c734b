//! `xpu-top gemm-replay` on a capture of real hooks, on the simulated GPU: it measures the simulated speed.

use std::path::PathBuf;

use serde_json::Value;
use xpu_tests::{
    host::Host,
    program::{Outcome, Program, run, until},
};

/// GEMMs long enough to be distinguished: plain, batched, in three precisions, one too large for any GPU, and
/// one that only cublasLt supports.
const TRAINS: &str = "
def work():
    for _ in range(2): ok(gemm_ex(4096, 4096, 4096, a=1))
    ok(strided(1024, 1024, 1024, 16))
    ok(gemm_ex(2048, 2048, 2048, dtype=FLOAT, compute=COMPUTE_TF32))
    ok(sgemm(1024, 1024, 1024))
    ok(gemm_ex(200000, 200000, 1, dtype=FLOAT))
    ok(matmul(4096, 4096, 4096, a=1, dtype=E4M3, out=BF16))
    sync()
    step()
while True: work()
";

struct Job {
    host: Host,
    /// Rank 1 takes 1.5 times as long.
    _ranks: Vec<Program>,
}

impl Job {
    fn captured() -> Self {
        let host = Host::new();
        let ranks = ["1", "1.5"].iter().enumerate();
        let ranks = ranks
            .map(|(rank, slower)| host.rank_where(rank, &[("SIMGPU_SLOWDOWN", slower)], TRAINS))
            .collect();
        let job = Self { host, _ranks: ranks };
        until("both ranks to train", || {
            let status = job.host.status();
            (status["steps"]["min"].as_u64()? >= 3 && status["coverage"]["ranks_seen"] == 2).then_some(())
        });
        let done = job
            .host
            .ask(&format!("capture --job train --light --steps 3 --wait 25 -o {}", job.file().display()));
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        job
    }

    fn file(&self) -> PathBuf {
        self.host.place.path("c.bin")
    }

    fn replay(&self, line: &str, set: &[(&str, &str)]) -> Outcome {
        let mut command = self.host.xpu_top(&format!("gemm-replay {line}"));
        run(command.arg(self.file()).envs(set.iter().copied()))
    }
}

/// The row for GEMMs with `m` rows and this type.
fn row<'a>(document: &'a Value, m: u64, datatype: &str) -> &'a Value {
    let rows = document["shapes"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["m"] == m && row["datatype"] == datatype);
    found.unwrap_or_else(|| panic!("{m} {datatype}: {document:#}"))
}

fn near(value: &Value, wanted: f64) -> bool {
    value.as_f64().is_some_and(|value| (value / wanted - 1.0).abs() < 0.05)
}

#[test]
fn gemms_alone_are_compared_with_those_of_each_rank() {
    let job = Job::captured();
    let done = job.replay("--json --iterations 5", &[]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let document: Value = serde_json::from_str(&done.stdout).expect("a document");
    assert_eq!(
        (&document["gpu"]["name"], &document["gpu"]["cublas"]),
        (&"NVIDIA H200".into(), &"13.0.0".into())
    );
    // The speeds are those of simgpu/README.md.
    for (m, datatype, tflops, count) in
        [(4096, "bf16", 500.0, 12), (1024, "f16", 500.0, 6), (2048, "f32", 250.0, 6), (1024, "f32", 62.5, 6)]
    {
        let row = row(&document, m, datatype);
        assert_eq!((&row["count"], &row["iterations"]), (&count.into(), &5.into()), "{row:#}");
        assert!(near(&row["alone_tflops"], tflops) && near(&row["best"]["tflops"], tflops), "{row:#}");
        assert!(near(&row["worst"]["tflops"], tflops / 1.5), "{row:#}");
        assert_eq!(
            (&row["best"]["rank"], &row["worst"]["rank"], &row["stands_out"]["rank"]),
            (&0.into(), &1.into(), &1.into())
        );
        assert!(near(&row["ratio"], f64::midpoint(1.0, 1.0 / 1.5)), "{row:#}");
    }
    for (m, datatype, why) in
        [(200_000, "f32", "it needs 149.0 GiB, and 125.9 GiB are free"), (4096, "f8e4m3", "cublasLt")]
    {
        let row = row(&document, m, datatype);
        assert!(row["not_replayed"].as_str().is_some_and(|said| said.contains(why)), "{row:#}");
        assert!(row["ratio"].is_null() && row["alone_ns"].is_null(), "{row:#}");
    }
    let ratios: Vec<_> =
        document["ranks"].as_array().expect("ranks").iter().map(|rank| &rank["ratio"]).collect();
    assert!(near(ratios[0], 1.0) && near(ratios[1], 1.0 / 1.5), "{document:#}");
    // One rank takes 1 unit of time and the other 1.5.
    assert!(near(&document["total"]["ratio"], 2.0 / 2.5), "{document:#}");
    assert_eq!(document["total"]["stands_out"]["rank"], 1);

    let text = job.replay("--iterations 5 --top 2", &[]);
    assert!(text.stdout.contains("the job's GEMMs run at 80 % of what this GPU reaches alone"), "{text:?}");
    assert!(text.stdout.contains("rank 1 is an outlier: it reaches 67 % of the others"), "{text:?}");
    assert!(text.stdout.contains("it is not among the 2 costliest (--top)"), "{text:?}");
}

/// The command line, the environment, the exit code and the message.
type Refused = (&'static str, &'static [(&'static str, &'static str)], i32, &'static str);

#[test]
fn an_impossible_replay_is_refused_with_advice() {
    let job = Job::captured();
    let cases: [Refused; 5] = [
        ("", &[("LD_LIBRARY_PATH", "/nowhere")], 1, "no NVIDIA driver"),
        ("", &[("SIMGPU_DEVICES", "0")], 1, "CUDA finds no GPU"),
        ("--device 8", &[], 64, "CUDA sees 8 here, from 0 on"),
        ("", &[("SIMGPU_FOREIGN_MIB", "70000")], 1, "or --shared"),
        ("--top 0", &[], 3, "it is not among the 0 costliest"),
    ];
    for (line, set, code, said) in cases {
        let done = job.replay(line, set);
        assert!(done.status.code() == Some(code) && done.stderr.contains(said), "{line} {set:?}: {done:?}");
        assert_eq!(done.stdout, "", "{done:?}");
    }
    let shared = job.replay("--shared --top 2 --iterations 1", &[("SIMGPU_FOREIGN_MIB", "70000")]);
    assert_eq!(shared.status.code(), Some(0), "{shared:?}");
    let foreign = run(job.host.xpu_top("gemm-replay /dev/null").env("LD_LIBRARY_PATH", "/nowhere"));
    assert!(foreign.status.code() == Some(64) && foreign.stderr.contains("cannot read "), "{foreign:?}");
}
