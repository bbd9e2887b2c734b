//! The cost of a call for its caller, and the memory of a process, with libraries that return at once.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use tempfile::TempDir;
use xpu_tests::{built, program::run};

use crate::table::{Row, Table};

/// How many calls fit into the hook's ring between two turns of its thread, and how many can be timed.
const COUNTED: &str = "2000";
const TIMED: &str = "180";

/// The limit for looking up a name that is not in the hook's table.
const NS_LOOKED_UP: f64 = 30.0;

/// The design's limits for a counted and for a timed call.
const NS_COUNTED: f64 = 100.0;
const NS_TIMED: f64 = 250.0;
const MIB: f64 = 32.0;

/// Number of Python processes, of which the fastest counts.
const PYTHONS: usize = 3;

struct Bench {
    dir: TempDir,
    program: PathBuf,
    /// Whether the hook searches for steps, which makes it report every launch.
    searches: bool,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for (_, soname) in built::STAND_INS {
            let flags = ["-shared", "-fPIC", "-O2", &format!("-Wl,-soname,{soname}")];
            built::compile("bench/stub.c", &dir.path().join(soname), &flags);
        }
        let program = dir.path().join("launch");
        built::compile("bench/launch.c", &program, &["-O2"]);
        Self { dir, program, searches: false }
    }

    /// The name and numbers of each line that the program prints.
    fn run(&self, arguments: &[&str], sample: Option<u32>) -> BTreeMap<String, Vec<f64>> {
        let text = self.output(Command::new(&self.program).args(arguments), sample);
        let line = |line: &str| {
            let (name, numbers) = line.split_once(' ').expect("a name and numbers");
            (name.to_owned(), self::numbers(numbers))
        };
        text.lines().map(line).collect()
    }

    /// What the command prints, with the libraries that return at once; under the hook, if one in `sample` calls is
    /// to be timed.
    fn output(&self, command: &mut Command, sample: Option<u32>) -> String {
        command.env("LD_LIBRARY_PATH", self.dir.path()).env_remove("LD_PRELOAD");
        if let Some(sample) = sample {
            command
                .env("LD_PRELOAD", built::hook())
                .env("XPU_TOP_SOCKET", self.dir.path().join("nobody"))
                .env("XPU_TOP_STEPS", if self.searches { "detected" } else { "off" })
                .env(
                    "XPU_TOP_SAMPLE",
                    format!("gemm={sample},collective={sample},graph={sample},wait={sample}"),
                );
        }
        let outcome = run(command);
        assert!(outcome.status.success(), "{outcome:?}");
        outcome.stdout
    }
}

fn numbers(words: &str) -> Vec<f64> {
    words.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

pub(crate) fn cost(table: &mut Table) {
    let mut bench = Bench::new();
    let alone = bench.run(&["cost", COUNTED], None);
    let off = bench.run(&["cost", COUNTED, "off"], Some(16));
    let counted = bench.run(&["cost", COUNTED], Some(1 << 20));
    let timed = bench.run(&["cost", TIMED], Some(1));
    bench.searches = true;
    let searched = bench.run(&["cost", COUNTED], Some(1 << 20));
    for (kind, figures) in [("counted", &counted), ("timed", &timed)] {
        assert_eq!(figures["lost"], [0.0, 0.0], "{kind}: the pauses are too short, or the machine too busy");
    }
    assert!(counted["timed"] == [0.0] && timed["timed"][0] > 10_000.0, "{counted:?} {timed:?}");
    let calls = [
        ("cudaLaunchKernel", "cudaLaunchKernel"),
        ("cublasGemmEx", "cublasGemmEx"),
        ("by_handle", "cublasGemmEx, looked up by the library's handle"),
        ("cublasSgemm", "cublasSgemm_v2, which asks for the math mode"),
        ("cublasLtMatmul", "cublasLtMatmul, which asks descriptors"),
        ("cudaGraphLaunch", "cudaGraphLaunch, one of 500"),
        ("ncclAllReduce", "ncclAllReduce"),
        ("group", "ncclAllReduce in a group (3 calls)"),
        ("cudaEventRecord", "cudaEventRecord where NCCL runs"),
        ("cudaStreamWaitEvent", "cudaStreamWaitEvent, of GEMMs for NCCL"),
    ];
    let [looked_up, usual] = [&counted, &alone].map(|figures| figures["dlsym"][0]);
    let row = Row::new("dlsym of a name that is not in its table: added".to_owned(), looked_up - usual, "ns");
    table.row(row.note(format!("{usual:.0} without it")).at_most(NS_LOOKED_UP));
    for (name, what) in calls {
        let number = if name == "group" { 3.0 } else { 1.0 };
        let mut row = |kind: &str, figures: &BTreeMap<String, Vec<f64>>, budget: Option<f64>| {
            let [best, median] = figures[name][..] else { panic!("{figures:?}") };
            let (best, median) = (best - alone[name][0], median - alone[name][1]);
            let row =
                Row::new(format!("{what}, {kind}: added"), best, "ns").note(format!("median {median:.0}"));
            table.row(if let Some(budget) = budget { row.at_most(budget * number) } else { row });
        };
        row("off", &off, None);
        row("counted", &counted, Some(NS_COUNTED));
        if ["cudaLaunchKernel", "cublasGemmEx", "ncclAllReduce"].contains(&name) {
            row("counted, while steps are looked for", &searched, None);
        }
        if !matches!(name, "cudaLaunchKernel" | "cudaEventRecord") {
            row("timed", &timed, Some(NS_TIMED));
        }
    }
}

/// The cost of a collective that Python calls, at a call site that the record has already.
pub(crate) fn from_python(table: &mut Table) {
    let bench = Bench::new();
    // Python's own part of a call differs from process to process.
    let best = |sample: Option<u32>| {
        let script = built::source("bench/collectives.py");
        let rounds =
            (0..PYTHONS).map(|_| numbers(&bench.output(Command::new("python3").arg(&script), sample)));
        let figures = rounds.min_by(|one, other| one[0].total_cmp(&other[0])).expect("there are several");
        assert_eq!(figures[2] > 0.0, sample.is_some(), "the hook's record has the call site");
        figures
    };
    let (alone, counted) = (best(None), best(Some(1 << 20)));
    let row = Row::new("ncclAllReduce from Python, with its call site: added", counted[0] - alone[0], "ns");
    let usual = format!("median {:.0}; {:.0} without it", counted[1] - alone[1], alone[0]);
    table.row(row.note(usual).at_most(NS_COUNTED));
}

/// The time that the hook's thread needs per record, to take it from the ring and add it up.
pub(crate) fn fold(table: &mut Table) {
    let bench = Bench::new();
    let spent = bench.run(&["fold", COUNTED], Some(1 << 20))["record"][0];
    table.row(Row::new("the hook's thread, a record without events", spent, "ns"));
}

pub(crate) fn memory(table: &mut Table) {
    let bench = Bench::new();
    let kinds = [("shapes", "1"), ("shapes", "64"), ("shapes", "2000"), ("communicators", "64")];
    for (what, number) in kinds {
        let [alone, watched] =
            [None, Some(1)].map(|sample| bench.run(&[what, number], sample)["resident"].clone());
        let [all, own] = [0, 1].map(|of| (watched[of] - alone[of]) / 1024.0);
        let row = Row::new(format!("memory of a rank with {number} {what}, all timed"), all, "MiB");
        table.row(row.at_most(MIB).note(format!("{own:.2} without the code, which ranks share")));
    }
}
