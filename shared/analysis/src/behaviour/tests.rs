//! Captures assembled from frames, and invented workers.

mod sent;

use xpu_wire::{
    frame::{
        Body, CapturePart, CapturedSpan, Frame, PythonSamples,
        example::capture::{BEGIN, MS, part, samples, sheet, with_activity},
    },
    gemm::GemmShape,
    id::Rank,
    unit::Moment,
};

use super::{function::Class, *};
use crate::capture::Report;

fn capture(parts: Vec<CapturePart>, samples: Vec<PythonSamples>) -> Capture {
    let mut capture = Capture::default();
    let bodies = std::iter::once(Body::CaptureSheet(sheet(&[0, 1])))
        .chain(parts.into_iter().map(Body::CapturePart))
        .chain(samples.into_iter().map(Body::PythonSamples));
    for body in bodies {
        capture.take(&Frame { host: "a".into(), number: 0, now: Moment(BEGIN), lost: 0, body });
    }
    capture
}

fn vector<'a>(behaviour: &'a Behaviour, rank: u32, name: &str) -> &'a Vector {
    let function = behaviour.functions.iter().position(|of| of.name.starts_with(name)).expect(name);
    let worker = behaviour.workers.iter().find(|worker| worker.rank == Rank(rank)).expect("the rank");
    worker.vectors.iter().find(|vector| vector.function == function).expect(name)
}

/// Longer GEMMs on a rank, within its step.
fn takes_longer(part: &mut CapturePart, factor: f64) {
    for operation in &mut part.operations {
        if let (0, CapturedSpan::Gpu { took, .. }) = (operation.label, &mut operation.span) {
            took.0 = (took.0 as f64 * factor) as u64;
        }
    }
}

#[test]
fn the_path_is_that_of_the_breakdown() {
    let capture = capture(vec![with_activity(0), with_activity(1)], vec![samples(0), samples(1)]);
    let report = Report::of(&capture);
    let (behaviour, summary) = (&report.behaviour, report.ranks[0].summary);
    let time = |class: Class| {
        let worker = &behaviour.workers[0];
        let its = worker.vectors.iter().filter(|vector| behaviour.functions[vector.function].class == class);
        its.map(|vector| vector.share).sum::<f64>() * summary.took_ns as f64 / MS as f64
    };
    let said = |time: u64| time as f64 / MS as f64;
    assert!((time(Class::Compute) - said(summary.compute_ns)).abs() < 1e-6, "{behaviour:#?}");
    assert!((time(Class::Communication) - said(summary.exposed_ns)).abs() < 1e-6, "{behaviour:#?}");
    assert!((time(Class::Memory) - said(summary.memory_ns)).abs() < 1e-6, "{behaviour:#?}");
    // A garbage collection takes a millisecond of a gap in each step. Samples take the rest of the gaps.
    let host = time(Class::Python) + time(Class::Runtime);
    assert!((host - said(summary.gap_ns)).abs() < 1e-6, "{host} of {}", said(summary.gap_ns));
    let collected = vector(behaviour, 0, "garbage collection").share * said(summary.took_ns);
    assert!((collected - 2.0).abs() < 1e-6, "{collected} of {host}: {:?}", behaviour.workers[0]);
    let copy = vector(behaviour, 1, "HostToDevice");
    let (rate, variation) = (copy.rate.expect("a rate"), copy.variation.expect("a variation"));
    assert!((rate - 3000.0 / (3 * MS) as f64).abs() < 1e-12 && variation < 1e-9, "{copy:?}");
    assert_eq!(vector(behaviour, 0, "gemm_kernel").executions, 2);
}

#[test]
fn waiting_for_others_is_not_transfer_time() {
    let mut last = part(1, 0);
    for operation in &mut last.operations {
        if let (Some(_), CapturedSpan::Gpu { late, took, .. }) = (operation.sequence, &mut operation.span) {
            (*late, took.0) = (*late + 8 * MS as i64, took.0 - 8 * MS);
        }
    }
    let behaviour = Behaviour::of(&capture(vec![part(0, 0), last], Vec::new()));
    // Both transfer for 2 ms. Rank 0 waits from 11 ms, the end of its GEMM, to 14 ms.
    let path = behaviour.workers[0].path_ns as f64 / MS as f64;
    for rank in [0, 1] {
        assert!((vector(&behaviour, rank, "AllReduce").share * path - 2.0).abs() < 1e-6, "{behaviour:#?}");
    }
    assert!((vector(&behaviour, 0, "wait in AllReduce").share * path - 3.0).abs() < 1e-6, "{behaviour:#?}");
    assert!(behaviour.abnormal.is_empty(), "its victim is not unlike it: {:#?}", behaviour.abnormal);
}

#[test]
fn a_gpu_that_takes_longer_for_the_same_is_named_with_its_rate() {
    let mut parts: Vec<_> = (0..4).map(|rank| part(rank, 0)).collect();
    takes_longer(&mut parts[2], 1.4);
    for part in &mut parts {
        // Executions of three steps.
        let again = part.operations.iter().filter(|one| one.label == 0).copied().collect::<Vec<_>>();
        part.operations.extend(again);
    }
    let behaviour = Behaviour::of(&capture(parts, Vec::new()));
    let [row] = &behaviour.abnormal[..] else { panic!("{:#?}", behaviour.abnormal) };
    assert_eq!((row.class, row.why, &row.ranks[..]), (Class::Compute, Why::UnlikePeers, &[Rank(2)][..]));
    assert!(row.sentence.starts_with("rank 2: 8x4x2 TN bf16 takes "), "{}", row.sentence);
    assert!(row.sentence.contains(" TFLOPS instead of ") && row.sentence.contains(" ms a step"), "{row:?}");
}

#[test]
fn stages_with_other_work_are_not_compared() {
    let shape = |k| xpu_wire::frame::CapturedLabel::Gemm(GemmShape { k, ..GEMM });
    let mut parts: Vec<_> = (0..6).map(|rank| part(rank, 0)).collect();
    for stage in &mut parts[4..] {
        stage.labels[0] = shape(64);
        takes_longer(stage, 1.4);
    }
    let behaviour = Behaviour::of(&capture(parts, Vec::new()));
    let roles: Vec<_> = behaviour.workers.iter().map(|worker| worker.role).collect();
    assert_eq!(roles, [0, 0, 0, 0, 1, 1]);
    assert!(behaviour.abnormal.is_empty(), "{:#?}", behaviour.abnormal);
    assert!(behaviour.sentences()[0].ends_with("its own role: 0-3; 4-5"), "{:?}", behaviour.sentences());
}

const GEMM: GemmShape = GemmShape {
    m: 8,
    n: 4,
    k: 2,
    batch: 1,
    datatype: xpu_wire::datatype::DataType::Bfloat16,
    compute: xpu_wire::gemm::ComputeType::Float32,
    transposed: (true, false),
    routine: xpu_wire::gemm::Routine::Gemm,
};

fn function(class: Class, name: &str) -> Function {
    let sampled = class == Class::Python;
    let unit = (class == Class::Compute).then_some(Unit::Tflops);
    Function { class, name: name.to_owned(), called_by: None, unit, sampled, waits: false }
}

/// Workers that vary by one hundredth. A step takes 100 ms.
fn workers(count: u32, functions: &[Function]) -> Vec<Worker> {
    let noise = |worker: u32, function: usize| {
        let mixed = worker.wrapping_mul(2_654_435_761).wrapping_add(function as u32 * 40_503);
        1.0 + 0.01 * f64::from(mixed >> 16) / 65_536.0
    };
    let vectors = |worker: u32| {
        let all = functions.iter().enumerate().map(|(number, function)| Vector {
            function: number,
            share: 0.6 / functions.len() as f64 * noise(worker, number),
            total: 0.6 / functions.len() as f64 * noise(worker, number),
            executions: 30,
            rate: function.unit.map(|_| 400.0 / noise(worker, number)),
            variation: function.unit.map(|_| 4.0),
        });
        all.collect()
    };
    (0..count)
        .map(|rank| Worker {
            rank: Rank(rank),
            role: 0,
            path_ns: 100 * MS,
            samples: 1000,
            all_kernels: false,
            vectors: vectors(rank),
        })
        .collect()
}

/// Nothing overlaps.
fn take(vector: &mut Vector, share: f64) {
    (vector.share, vector.total) = (share, share);
}

#[test]
fn the_one_worker_that_differs_is_named_with_its_cost() {
    let functions: Vec<_> = (0..8)
        .map(|number| function(Class::Compute, &format!("kernel {number}")))
        .chain([function(Class::Python, "collate_fn (data.py:40)")])
        .collect();
    let mut workers = workers(300, &functions);
    take(&mut workers[77].vectors[8], 0.31);
    let longer = workers[200].vectors[3].share * 1.25;
    take(&mut workers[200].vectors[3], longer);
    let slower = workers[200].vectors[3].rate.map(|rate| rate / 1.25);
    workers[200].vectors[3].rate = slower;
    let found = abnormal(&functions, &workers, Per::Step);
    let said: Vec<_> = found.iter().map(|row| row.sentence.as_str()).collect();
    let [python, kernel] = said[..] else { panic!("{said:#?}") };
    assert_eq!(
        python,
        "rank 77: collate_fn (data.py:40) takes 31 % of its critical path, its peers 6.7 %: costs 24.3 ms a step"
    );
    assert!(kernel.starts_with("rank 200: kernel 3 takes 8.4 % of its critical path, its peers 6.7 % (3"));
    assert!(kernel.ends_with("costs 1.7 ms a step"), "{kernel}");
}

/// Behaviour of two healthy H200s: the GPU of rank 0 is idle while rank 0 launches, and the GPU of rank 1
/// waits in NCCL.
#[test]
fn a_function_that_takes_as_long_on_its_peers_beside_other_work_is_normal() {
    let functions = [function(Class::Python, "backward (graph.py:869)")];
    let mut workers = workers(2, &functions);
    take(&mut workers[0].vectors[0], 0.55);
    (workers[1].vectors[0].share, workers[1].vectors[0].total) = (0.01, 0.53);
    let found = abnormal(&functions, &workers, Per::Step);
    let [row] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((&row.ranks[..], row.cost_ns / MS), (&[Rank(0)][..], 2), "as much as it takes longer");
    workers[1].vectors[0].total = 0.545;
    assert!(abnormal(&functions, &workers, Per::Step).is_empty());
}

#[test]
fn readings_that_are_too_few_name_nobody() {
    let functions = [function(Class::Python, "collate_fn (data.py:40)")];
    let mut workers = workers(8, &functions);
    for worker in &mut workers {
        take(&mut worker.vectors[0], 0.02);
        worker.samples = 20;
    }
    take(&mut workers[3].vectors[0], 0.2);
    assert!(abnormal(&functions, &workers, Per::Step).is_empty(), "4 of 20 readings may be chance");
    workers[3].samples = 200;
    assert_eq!(abnormal(&functions, &workers, Per::Step).len(), 1);
}

#[test]
fn work_of_only_one_rank_on_its_host_is_unlike_its_peers() {
    let functions = [function(Class::Compute, "kernel"), function(Class::Python, "validate (train.py:7)")];
    let mut workers = workers(6, &functions);
    for worker in workers.iter_mut().filter(|worker| worker.rank != Rank(4)) {
        worker.vectors.truncate(1);
    }
    let found = abnormal(&functions, &workers, Per::Step);
    let [row] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((&row.ranks[..], row.peers_share), (&[Rank(4)][..], Some(0.0)));
}

#[test]
fn a_function_that_takes_much_on_all_ranks_is_unlike_expectation_if_all_kernels_are_known() {
    let mut functions = vec![function(Class::Python, "collate_fn (data.py:40)")];
    functions.push(function(Class::Compute, "kernel"));
    let mut workers = workers(4, &functions);
    assert!(abnormal(&functions, &workers, Per::Step).is_empty(), "kernels may run in the gaps");
    for worker in &mut workers {
        worker.all_kernels = true;
    }
    let found = abnormal(&functions, &workers, Per::Step);
    let [row] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((row.why, row.ranks.len()), (Why::UnlikeExpectation, 4));
    assert!(row.sentence.starts_with("ranks 0-3: collate_fn (data.py:40) takes 30 % of"), "{}", row.sentence);
}

#[test]
fn the_vectors_of_a_worker_are_small() {
    let name = "k".repeat(96);
    let functions = vec![function(Class::Compute, &name); MOST_FUNCTIONS];
    let mut workers = workers(1, &functions);
    for vector in &mut workers[0].vectors {
        *vector = Vector {
            share: 0.012_345_678_912_345_678,
            total: 0.012_345_678_912_345_678,
            executions: 65_536,
            rate: Some(1_234.567_891_234_567_8),
            variation: Some(123.456_789_123_456_78),
            ..*vector
        };
    }
    let bytes = serde_json::to_string(&workers[0]).expect("numbers").len() + name.len() * MOST_FUNCTIONS;
    assert!(bytes <= 30 * 1024, "{bytes}");
}
