//! Counting GEMMs: every entry of cuBLAS, and cublasLt's descriptors.

use std::collections::BTreeMap;

use xpu_tests::{
    built,
    listener::{Listener, Sender},
    place::Place,
    program::{run, until},
};
use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape, Routine},
};

use crate::Job;

/// Parses [`gemms.c`]'s output. Each line has an entry, its m, and whether A and B are transposed. Returns
/// the expected shape of each.
fn called(output: &str) -> BTreeMap<String, GemmShape> {
    let mut called = BTreeMap::new();
    for line in output.lines().filter(|line| line.starts_with("cublas")) {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(words[3..], ["answered", "0,", "then", "7"], "{line}");
        let (name, m, transposed) = (words[0], words[1].parse::<u64>().expect("a number"), words[2]);
        let (datatype, compute) = match &name["cublas".len()..][..1] {
            "H" => (DataType::Float16, ComputeType::Float16),
            "S" if name.starts_with("cublasSgemmEx") => (DataType::Bfloat16, ComputeType::Float32),
            "S" => (DataType::Float32, ComputeType::Float32),
            "D" => (DataType::Float64, ComputeType::Float64),
            "C" => (DataType::Complex64, ComputeType::Float32),
            "Z" => (DataType::Complex128, ComputeType::Float64),
            _ => (DataType::Bfloat16, ComputeType::Float32),
        };
        let grouped = name.contains("Grouped");
        let batch = if name.contains("Batched") && !grouped { 3 } else { 1 };
        let m = if grouped { m + 2 * 2 * m } else { m };
        let transposed = (&transposed[..1] == "1", &transposed[1..] == "1");
        let shape =
            GemmShape { m, n: 24, k: 40, batch, datatype, compute, transposed, routine: Routine::Gemm };
        called.insert(name.to_owned(), shape);
    }
    called
}

/// Waits for the goodbye of the only process, and returns everything it sent.
#[track_caller]
fn last_sender(listener: &Listener) -> Sender {
    until("a goodbye", || listener.received().into_iter().find(|sender| sender.goodbye))
}

#[test]
fn every_cublas_function_is_counted_with_its_operation() {
    let place = Place::new();
    let program = place.path("GEMMs");
    built::compile("hook/gemms.c", &program, &[]);
    let alone = run(&mut place.command(&program));
    let listener = Listener::at(&place.socket());
    let watched = run(place.watched(&program).env("XPU_TOP_SAMPLE", "gemm=1"));
    assert_eq!(watched, alone);
    let called = called(&alone.stdout);
    assert_eq!(called.len(), 56, "{}", alone.stdout);
    let said = last_sender(&listener);
    let gemms = said.gemms();
    for (name, shape) in &called {
        let totals = gemms.get(shape).unwrap_or_else(|| panic!("{name} was not counted as {shape:?}"));
        assert_eq!((totals.count, totals.timed), (1, 1), "{name}");
    }
    assert_eq!((gemms.len(), said.launches().gemms), (56, 56));
    let of = |shape: &GemmShape| {
        let complex = matches!(shape.datatype, DataType::Complex64 | DataType::Complex128);
        (if complex { 8 } else { 2 }) * shape.m * shape.n * shape.k * shape.batch
    };
    let flops: f64 = gemms.iter().map(|(shape, totals)| shape.flops() * totals.count as f64).sum();
    assert_eq!(flops, called.values().map(of).sum::<u64>() as f64);
}

#[test]
fn single_precision_is_tf32_if_the_handle_allows_it() {
    let job = Job::alone(
        "gemm=1",
        "
DEFAULT, TENSOR_OP, TF32, NO_REDUCED = 0, 1, 3, 16
for m, mode in ((8, DEFAULT), (16, TENSOR_OP), (24, TF32), (32, TF32 | NO_REDUCED)):
    ok(process.cublasSetMathMode(blas, c_uint(mode)))
    ok(sgemm(m, 24, 40))
ok(gemm_ex(40, 24, 40, dtype=FLOAT))
ok(gemm_ex(48, 24, 40, dtype=FLOAT, compute=COMPUTE_32F + 1))
ok(gemm_ex(56, 24, 40))
sync()
step(1)
hold()",
    );
    let gemms = job.after_step(0, 1).gemms();
    let said: Vec<_> = gemms.keys().map(|shape| (shape.m, shape.datatype, shape.compute)).collect();
    let (single, tf32) = (ComputeType::Float32, ComputeType::Float32FastTf32);
    let float = DataType::Float32;
    let pedantic = (48, float, single);
    let expected = [
        (8, float, single),
        (16, float, single),
        (24, float, tf32),
        (32, float, tf32),
        (40, float, tf32),
        pedantic,
        (56, DataType::Bfloat16, single),
    ];
    assert_eq!(said, expected);
    job.end();
}

/// Layouts are destroyed after each GEMM, so later layouts reuse their addresses.
#[test]
fn cublaslt_gemms_have_the_shape_of_their_descriptors() {
    let job = Job::alone(
        "gemm=1",
        "
for _ in range(2):
    ok(matmul(8, 24, 40))
    ok(matmul(16, 24, 40, row=True))
    ok(matmul(24, 16, 40, row=True, a=1, b=1))
    ok(matmul(32, 24, 40, with_c=False))
    ok(matmul(40, 24, 48, a=1, dtype=E4M3, b_type=E5M2, out=BF16))
    ok(matmul(48, 24, 40, dtype=E5M2, b_type=E4M3, out=BF16))
    ok(matmul(56, 24, 40, a=1, dtype=FP4, out=BF16))
    ok(matmul(64, 24, 40, dtype=FLOAT, compute=COMPUTE_TF32))
    ok(matmul(72, 24, 40, dtype=HALF, compute=COMPUTE_16F, batch=7))
    ok(matmul(80, 24, 40))
    ok(matmul(80, 24, 40, batch=2))
assert matmul(88, 0, 40) != 0
sync()
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let f32 = ComputeType::Float32;
    let of = |m, n, k, batch, datatype, compute, transposed| GemmShape {
        m,
        n,
        k,
        batch,
        datatype,
        compute,
        transposed,
        routine: Routine::Gemm,
    };
    let bf16 = DataType::Bfloat16;
    let (plain, both, first) = ((false, false), (true, true), (true, false));
    let expected = [
        of(8, 24, 40, 1, bf16, f32, plain),
        of(16, 24, 40, 1, bf16, f32, plain),
        of(24, 16, 40, 1, bf16, f32, both),
        of(32, 24, 40, 1, bf16, f32, plain),
        of(40, 24, 48, 1, DataType::Float8E4m3, f32, first),
        of(48, 24, 40, 1, DataType::Float8E5m2, f32, plain),
        of(56, 24, 40, 1, DataType::Float4, f32, first),
        of(64, 24, 40, 1, DataType::Float32, ComputeType::Float32FastTf32, plain),
        of(72, 24, 40, 7, DataType::Float16, ComputeType::Float16, plain),
        of(80, 24, 40, 1, bf16, f32, plain),
        of(80, 24, 40, 2, bf16, f32, plain),
    ];
    let gemms = said.gemms();
    assert_eq!(gemms.keys().copied().collect::<Vec<_>>(), expected);
    assert!(gemms.values().all(|totals| totals.count == 2), "{gemms:?}");
    assert_eq!(said.launches().gemms, 22);
    job.end();
}

/// A rank whose NCCL calls cannot be interposed looks like a rank without shared communicators.
#[test]
fn a_rank_without_communicators_is_a_blind_spot() {
    let script = "
for _ in range(2000): ok(gemm_ex(64, 64, 64))
sync()
step(1)
hold()";
    for (world, blind) in [("1", 0), ("8", 1)] {
        let job = Job::of(1, &[("XPU_TOP_SAMPLE", "gemm=1024"), ("WORLD_SIZE", world)], script);
        let said = job.after_step(0, 1);
        let said = &said.summaries.last().expect("one").hook.blind;
        assert_eq!(said.len(), blind, "{said:?}");
        assert!(said.iter().all(|said| said.contains("rank of 8")), "{said:?}");
        job.end();
    }
}
