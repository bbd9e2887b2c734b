//! A capture names functions that differ from those of the other ranks: a slow Python function on one rank
//! and slow copies on another. Real processes run under the real hook on the simulated GPU.

use std::{fs, path::Path};

use serde_json::{Value, json};
use xpu_tests::{
    host::Host,
    program::{Program, run, until},
};

/// Each step copies a batch and computes on it. Rank 1 makes its batches itself, while its GPU is idle.
const TRAINS: &str = "
def collate_fn():
    until = time.perf_counter() + 0.04
    while time.perf_counter() < until: pass
def train_step():
    if RANK == 1: collate_fn()
    ok(process.cudaMemcpyAsync(memory, memory, c_size_t(100_000_000), 3, stream))
    for _ in range(4): ok(gemm_ex(8192, 8192, 8192))
    ok(all_reduce(comm, 1000))
    sync()
    step()
comm = communicator()
while True: train_step()
";

const CAPTURE: &str = "--no-watch --kernels --python=200 --steps 8 --wait 60";

#[test]
fn the_rank_with_a_slow_function_and_the_one_with_slow_copies_are_named() {
    let host = Host::new();
    let slow_copies: &[_] = &[("SIMGPU_MEMORY_GB_S", "8")];
    let ranks = [&[][..], &[], slow_copies].into_iter().enumerate();
    let _ranks: Vec<Program> = ranks.map(|(rank, set)| host.rank_of_where((rank, 3), set, TRAINS)).collect();
    until("all ranks to train", || {
        (host.status()["steps"]["min"].as_u64()? >= 3 && host.status()["coverage"]["ranks_seen"] == 3)
            .then_some(())
    });
    let mut captures = 0;
    // On a busy machine a copy of 50 us may take as long as a slow one. Such a capture names nobody, so a
    // second one is made.
    let (file, python, copies) = until("a capture to name both ranks", || {
        captures += 1;
        assert!(captures <= 2, "neither of two captures named both ranks");
        let file = host.place.path(&format!("c-{captures}.bin"));
        let line = format!("capture --job train {CAPTURE} -o {}", file.display());
        let done = host.ask(&line);
        assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", host.collector_log());
        let report = run(host.xpu_top("report --json").arg(&file));
        let report: Value = serde_json::from_str(&report.stdout).unwrap_or_else(|_| panic!("{report:?}"));
        let abnormal = report["behaviour"]["abnormal"].as_array().expect("a list");
        let of = |rank: u64, class: &str| {
            let is_its = |row: &&Value| {
                row["why"] == "unlike_peers" && row["ranks"] == json!([rank]) && row["class"] == class
            };
            abnormal.iter().find(is_its).cloned()
        };
        Some((file, of(1, "python")?, of(2, "memory")?))
    });
    assert!(python["name"].as_str().is_some_and(|name| name.starts_with("collate_fn (")), "{python:#}");
    assert!(python["called_by"].as_str().is_some_and(|name| name.starts_with("train_step (")), "{python:#}");
    let cost = |row: &Value| row["cost_ns"].as_f64().expect("a number") / 1e6;
    // `collate_fn` spins for 40 ms. The copies read and write 100 MB, which takes 25 ms at 8 GB/s, and 0.05
    // ms on the other ranks.
    assert!((20.0..120.0).contains(&cost(&python)), "{python:#}");
    assert!((18.0..27.0).contains(&cost(&copies)), "{copies:#}");

    // The collector makes the functions, and sends only these.
    let brief = until("functions of a capture to name both ranks", || {
        captures += 1;
        assert!(captures <= 4, "neither of two captures named both ranks");
        let file = host.place.path(&format!("c-{captures}.bin"));
        let done = host.ask(&format!("capture --job train {CAPTURE} --functions-only -o {}", file.display()));
        assert_eq!((done.status.code(), done.stderr.contains("without all")), (Some(0), false), "{done:?}");
        let text = run(host.xpu_top("report").arg(&file)).stdout;
        let names_both =
            text.contains("rank 1: collate_fn (") && text.contains("rank 2: DeviceToDevice takes ");
        names_both.then_some((file, text))
    });
    assert!(brief.1.starts_with("train: the functions of 3 ranks, without single operations"), "{}", brief.1);
    assert!(brief.1.contains("functions by share of the critical path"), "{}", brief.1);
    let size = |file: &Path| fs::metadata(file).expect("a file").len();
    assert!(size(&brief.0) < size(&file), "{} of {} bytes", size(&brief.0), size(&file));

    let text = run(host.xpu_top("report").arg(&file)).stdout;
    assert!(text.contains("rank 1: collate_fn ("), "{text}");
    assert!(text.contains("rank 2: DeviceToDevice takes "), "{text}");
    assert!(text.contains("functions by share of the critical path"), "{text}");
}
