//! A capture of two steps, as ranks send it: a GEMM, and a collective that ends on all ranks at the same
//! time.

use crate::{
    collective::Operation,
    datatype::DataType,
    frame::{
        CaptureAccount, CaptureEnd, CaptureOrder, CapturePart, CaptureSheet, CapturedLabel,
        CapturedOperation, CapturedSpan, CollectiveTime, Direction, FunctionClass, FunctionCollectives,
        FunctionKey, FunctionKind, FunctionTime, FunctionUnit, PythonSample, PythonSamples, RankFunctions,
        SampleAccount, SampledStack, SampledThread, StackFrame, StepMark, StepSource, Tracing,
    },
    gemm::{ComputeType, GemmShape, Routine},
    id::{CommunicatorId, Rank, Sequence, Step},
    plan::{Algorithm, Plan, Protocol},
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

pub const MS: u64 = 1_000_000;

/// The start of the first step, by a correct clock.
pub const BEGIN: u64 = 1_000_000 * MS;

pub const ORDER: CaptureOrder = CaptureOrder {
    number: 7,
    first: Step(41),
    steps: 2,
    limit: Nanoseconds(60_000 * MS),
    before: 0,
    activity: false,
    functions: false,
};

pub fn sheet(ranks: &[u32]) -> CaptureSheet {
    let ranks = ranks.iter().copied().map(Rank).collect();
    CaptureSheet { order: ORDER, job: "j".into(), ranks, closed: true, missing: Vec::new(), stall: None }
}

/// Steps of 20 ms: a GEMM runs from 1 to 11, a collective of all ranks from 6 to 16. The rank's clock is
/// `late` milliseconds behind.
pub fn part(rank: u32, late: u64) -> CapturePart {
    let begin = BEGIN - late * MS;
    let mark = |steps: u64| StepMark { completed: Step(40 + steps), at: Moment(begin + steps * 20 * MS) };
    let gpu = |stream, late: u64, took: u64| CapturedSpan::Gpu {
        stream,
        late: (late * MS) as i64,
        took: Nanoseconds(took * MS),
    };
    let operation = |label, after, sequence, span| CapturedOperation {
        label,
        after: Nanoseconds(after),
        thread: 0,
        sequence,
        span,
    };
    // Each step: the GEMM after 0 ms, the collective after 5, a wait from 10 to 18.
    let step = |number: u64, after| {
        [
            operation(0, after, None, gpu(0, 1, 10)),
            operation(1, 5 * MS, Some(Sequence(number)), gpu(1, 1, 10)),
            operation(2, 5 * MS, None, CapturedSpan::Host { took: Nanoseconds(8 * MS) }),
        ]
    };
    CapturePart {
        number: ORDER.number,
        job: "j".into(),
        rank: Rank(rank),
        part: 0,
        parts: 1,
        account: Some(CaptureAccount {
            marks: (0..3).map(mark).collect(),
            source: Some(StepSource::Marked),
            ended: CaptureEnd::Done,
            operations: 6,
            dropped: 0,
            untimed: 0,
            clock_error: Some(Nanoseconds(900)),
            ..CaptureAccount::default()
        }),
        since: Moment(begin),
        labels: vec![
            CapturedLabel::Gemm(GemmShape {
                m: 8,
                n: 4,
                k: 2,
                batch: 1,
                datatype: DataType::Bfloat16,
                compute: ComputeType::Float32,
                transposed: (true, false),
                routine: Routine::Gemm,
            }),
            CapturedLabel::Collective {
                communicator: CommunicatorId(0xabcd << 32),
                operation: Operation::AllReduce,
                datatype: DataType::Bfloat16,
                bytes: 1000,
                bus_bytes: 1000,
                plan: Some(Plan { algorithm: Algorithm::Ring, protocol: Protocol::Simple, channels: 24 }),
            },
            CapturedLabel::Blocked(crate::frame::BlockingCall::StreamSynchronize),
        ],
        operations: [step(10, 0), step(11, 10 * MS)].concat(),
    }
}

/// Same as [`part`], with CUPTI's and Python's records: the GEMM's kernel and NCCL's, a copy from 15 to 18
/// ms, a garbage collection.
pub fn with_activity(rank: u32) -> CapturePart {
    let mut new = part(rank, 0);
    let gpu = |stream, late: u64, took: u64| CapturedSpan::Gpu {
        stream,
        late: (late * MS) as i64,
        took: Nanoseconds(took * MS),
    };
    let more = [
        (CapturedLabel::Activity("_ZN2my11gemm_kernelILi4EEEvPf".to_owned()), gpu(0, 1, 10)),
        (CapturedLabel::Activity("ncclDevKernel_AllReduce(int)".to_owned()), gpu(1, 6, 10)),
        (CapturedLabel::Copy { direction: Direction::HostToDevice, bytes: 3000 }, gpu(2, 15, 3)),
        (
            CapturedLabel::Function {
                kind: FunctionKind::GarbageCollection,
                name: "generation 2".to_owned(),
            },
            CapturedSpan::Host { took: Nanoseconds(2 * MS) },
        ),
    ];
    let first = new.labels.len() as u32;
    let mut operations = Vec::new();
    for step in new.operations.chunks(3) {
        operations.push(step[0]);
        operations.extend((first..).zip(&more).map(|(label, (_, span))| CapturedOperation {
            label,
            after: Nanoseconds(0),
            thread: 0,
            sequence: None,
            span: *span,
        }));
        operations.extend(&step[1..]);
    }
    new.operations = operations;
    new.labels.extend(more.map(|(label, _)| label));
    if let Some(account) = &mut new.account {
        account.operations = new.operations.len() as u64;
        account.activity = Tracing::Recorded { records: 4, dropped: 0 };
        account.functions = Tracing::Recorded { records: 2, dropped: 0 };
    }
    new
}

/// Samples of the main thread, a millisecond apart: `collate` while the GPU does nothing from 16 to 21 ms of
/// each step, and `train` otherwise. A thread `pin` has samples too.
pub fn samples(rank: u32) -> PythonSamples {
    let frame = |function: &str, file: &str, line| StackFrame {
        function: function.to_owned(),
        file: file.to_owned(),
        line,
    };
    let thread = |number, name: &str| SampledThread {
        number: Some(number),
        name: name.to_owned(),
        main: name == "MainThread",
    };
    let stack = |thread, frames: &[u32]| SampledStack { thread, frames: frames.to_vec() };
    // The GPU's step begins a millisecond after the program's.
    let collates = |ms: u32| (17..20).contains(&(ms % 20)) || (ms.is_multiple_of(20) && ms > 0);
    let mut samples = vec![PythonSample { after: Nanoseconds(MS / 2), stack: 2 }];
    samples.extend((0..40).map(|ms| PythonSample {
        after: Nanoseconds(if ms == 0 { 0 } else { MS }),
        stack: u32::from(collates(ms)),
    }));
    PythonSamples {
        number: ORDER.number,
        job: "j".into(),
        rank: Rank(rank),
        part: 0,
        account: Some(SampleAccount {
            began: Moment(BEGIN),
            ended: Moment(BEGIN + 40 * MS),
            rate: 1000,
            natively: false,
            readings: 40,
            failed: 1,
            missed: 2,
            cpu: Nanoseconds(4 * MS),
            why: None,
            ..SampleAccount::default()
        }),
        since: Moment(BEGIN),
        threads: vec![thread(7, "MainThread"), thread(8, "pin")],
        frames: vec![
            frame("main", "/job/train.py", 90),
            frame("train", "/job/train.py", 12),
            frame("collate_fn", "/job/data.py", 40),
            frame("pin_memory", "/job/pin.py", 5),
        ],
        stacks: vec![stack(0, &[0, 1]), stack(0, &[0, 1, 2]), stack(1, &[3])],
        samples,
    }
}

/// The functions of the steps of [`part`].
pub fn functions(rank: u32) -> RankFunctions {
    let part = part(rank, 0);
    let time = |key, critical: u64| FunctionTime {
        key,
        critical: (critical * MS) as f64,
        total: (critical * MS) as f64,
        executions: 2,
        rated: 2,
        rated_for: (20 * MS) as f64,
        amount: 256.0,
        squares: 0.5,
    };
    let named = |class, name: &str, unit| FunctionKey::Named { class, name: name.to_owned(), unit };
    let frame = StackFrame { function: "train".to_owned(), file: "/job/train.py".to_owned(), line: 12 };
    let collective = CollectiveTime {
        sequence: Sequence(10),
        took: Nanoseconds(10 * MS),
        critical: Nanoseconds(5 * MS),
        begun_before: Nanoseconds(5 * MS),
        ended_before: Nanoseconds(0),
        bus_bytes: 1000,
    };
    RankFunctions {
        number: part.number,
        job: part.job,
        rank: part.rank,
        account: part.account.unwrap_or_default(),
        whole: Nanoseconds(40 * MS),
        steps: 2,
        samples: 40,
        functions: vec![
            time(named(FunctionClass::Compute, "gemm", Some(FunctionUnit::Tflops)), 20),
            time(named(FunctionClass::Communication, "AllReduce", Some(FunctionUnit::GbytesPerS)), 0),
            time(FunctionKey::Waits("wait in AllReduce".to_owned()), 0),
            time(FunctionKey::Sampled { function: frame.clone(), caller: Some(frame) }, 1),
        ],
        collectives: vec![FunctionCollectives {
            function: 1,
            waits: 2,
            communicator: CommunicatorId(0xabcd << 32),
            critical: (5 * MS) as f64,
            total: (10 * MS) as f64,
            rate: Rate::EVERY,
            each: vec![collective],
        }],
    }
}
