//! Every kind of frame survives encoding, and hostile bytes are refused.

use proptest::prelude::*;
use xpu_simulation::Simulation;
use xpu_wire::{
    codec::{DecodeError, HEADER, MAGIC, VERSION, decode, encode, published},
    collective::Operation,
    datatype::DataType,
    frame::{
        Body, CallSite, CallState, CaptureOrder, CaptureWindow, Command, Event, Frame, JobWhatIf,
        KinetoBytes, KinetoEnd, KinetoOptions, KinetoOrder, KinetoPart, KinetoRank, KinetoStanding,
        KinetoWindow, KinetoWish, PrecedingWork, RankRecord, RecordedCall, RecordedCommunicator, Request,
        SampleOrder, SpanTotals, StackFrame, StepSource, Steps, Summary, TimedBy, TimedCaptureSheet, Work,
        example,
    },
    histogram::Histogram,
    id::{CommunicatorId, Pid, Rank, Step},
    unit::{Moment, Nanoseconds},
};

const ORDER: CaptureOrder = CaptureOrder {
    number: 7,
    first: Step(40),
    steps: 3,
    limit: Nanoseconds(60_000_000_000),
    before: 0,
    activity: false,
    functions: false,
};

const WINDOW: CaptureWindow = CaptureWindow { at: Moment(1 << 60), length: Nanoseconds(500_000_000) };

const KINETO: KinetoOrder = KinetoOrder {
    number: 7,
    window: KinetoWindow::Steps { first: Step(40), steps: 3, latest: Step(37), calls: 2 },
    limit: Nanoseconds(60_000_000_000),
    options: KinetoOptions {
        record_shapes: true,
        profile_memory: false,
        with_stack: true,
        with_flops: false,
        with_modules: false,
    },
};

/// One call, with every optional field set.
fn record(function: &str) -> RankRecord {
    let frame = StackFrame { function: function.to_owned(), file: "/work/train.py".to_owned(), line: 212 };
    let communicators = vec![RecordedCommunicator {
        id: CommunicatorId(u64::MAX - 1),
        name: "data_parallel".to_owned(),
        member: 1,
        size: 300,
        closed: false,
    }];
    let call = RecordedCall {
        order: 4095,
        communicator: 0,
        number: Some(3192),
        operation: Operation::AllReduce,
        datatype: DataType::Float32,
        reduction: Some(0),
        peer: Some(7),
        bytes: 492,
        replays: 0,
        group: Some(4094),
        stream: 0x7fff_0000_1000,
        entered: Moment(8),
        state: CallState::Enqueued,
        site: Some(0),
    };
    RankRecord {
        read_at: Moment(9),
        made: 4096,
        communicators,
        sites: vec![CallSite {
            frames: vec![frame],
            returns_to: 0x7fff_0000_2000,
            native: "train+0x2000".into(),
        }],
        calls: vec![call],
        preceding: vec![PrecedingWork {
            order: 4094,
            work: "GEMM 4096x4096x4096 bf16".to_owned(),
            launched: Some(Moment(7)),
            stream: 0x7fff_0000_1000,
        }],
        ..RankRecord::unread("j".into(), Rank(1), Pid(2), String::new())
    }
}

/// Frames of a capture that covers a period instead of steps.
fn of_a_time() -> Vec<Frame> {
    let frame = |body| Frame { host: "a".into(), number: 3, now: Moment(9), lost: 1, body };
    vec![
        frame(Body::Command(Command::CaptureTime(ORDER, WINDOW))),
        frame(Body::Request(Request::CaptureTime {
            job: "j".into(),
            ranks: vec![Rank(3)],
            order: ORDER,
            window: WINDOW,
        })),
        frame(Body::TimedCaptureSheet(TimedCaptureSheet {
            sheet: example::capture::sheet(&[0, 1]),
            window: WINDOW,
        })),
    ]
}

fn of_hosts() -> Vec<Frame> {
    let frame = |body| Frame { host: "a".into(), number: 3, now: Moment(9), lost: 1, body };
    vec![
        frame(Body::Cpu(example::host::cpu())),
        frame(Body::Times(example::host::times())),
        frame(Body::Nccl(nccl())),
        frame(Body::NcclDetail(xpu_wire::frame::RankNccl { job: "j".into(), rank: Rank(1), report: nccl() })),
        frame(Body::Exit(example::exit())),
        frame(Body::Request(Request::GpuStacks { job: "j".into(), ranks: vec![Rank(1)] })),
        frame(Body::PythonSamples(example::capture::samples(1))),
        frame(Body::Neighbours(example::host::neighbours())),
        frame(Body::Work(xpu_wire::frame::HostWork { job: "j".into(), ranks: vec![(Rank(1), Pid(7))] })),
        frame(Body::Load(example::host::load())),
        frame(Body::Request(Request::ThinnedHistory { length: Nanoseconds(60_000_000_000), digests: 200 })),
        frame(Body::Request(Request::Ras { job: "j".into(), rank: Rank(1) })),
        frame(Body::Ras(example::ras(&[(0, 1042), (1, 1041)]))),
        frame(Body::Request(Request::WhatIf(example::what_if()))),
        frame(Body::Request(Request::FunctionsOnly { job: "j".into(), number: 7 })),
        frame(Body::Functions(example::capture::functions(1))),
        frame(Body::WhatIf(JobWhatIf {
            hosts: vec![("node-3".into(), 0.5)],
            why: "the job hangs".to_owned(),
            ..example::what_if()
        })),
    ]
}

fn frames() -> Vec<Frame> {
    let simulation = Simulation::new(7, 1, 2);
    let frame = |body| Frame { host: "a".into(), number: 3, now: Moment(9), lost: 1, body };
    let mut durations = Histogram::new();
    durations.record(Nanoseconds(102_400_000));
    let steps = Steps {
        source: StepSource::Marked,
        completed: Step(5),
        at: Moment(8),
        durations,
        timed_by: TimedBy::Gpu,
        optimizer: String::new(),
        work: Work::default(),
    };
    let data = SpanTotals { name: "data".to_owned(), count: 5, took: Nanoseconds(60_000_000) };
    let life = Event::Life { job: "j".into(), rank: Rank(1), pid: Pid(2), life: xpu_wire::frame::Life::Died };
    let mut past = xpu_wire::frame::History::default();
    for frame in simulation.digests(3) {
        past.frames.push(&encode(&frame));
    }
    let mut all = simulation.snapshots(4);
    all.extend(simulation.digests(5));
    all.extend(of_a_time());
    all.extend(of_hosts());
    let order = SampleOrder { capture: ORDER, window: Some(WINDOW), rate: 500, natively: true };
    all.push(frame(Body::Request(Request::Sample { job: "j".into(), ranks: vec![Rank(1)], order })));
    all.extend([
        frame(Body::Summary(Summary { steps: Some(steps), spans: vec![data], ..Summary::default() })),
        frame(Body::Goodbye),
        frame(Body::Command(Command::Enable(false))),
        frame(Body::Request(Request::Snapshot)),
        frame(Body::Request(Request::History { length: Nanoseconds(60_000_000_000) })),
        frame(Body::History(past)),
        frame(Body::Refusal("no".into())),
        frame(Body::Event(life)),
        frame(Body::Request(Request::Stacks {
            job: "j".into(),
            ranks: vec![Rank(1)],
            kept: true,
            natively: false,
        })),
        frame(Body::Command(Command::Capture(ORDER))),
        frame(Body::Request(Request::Capture { job: "j".into(), ranks: vec![Rank(3)], order: ORDER })),
        frame(Body::Request(Request::Kineto {
            job: "j".into(),
            ranks: vec![Rank(3)],
            wish: KinetoWish::Trace(KINETO),
        })),
        frame(Body::Kineto(KinetoRank {
            number: 7,
            job: "j".into(),
            rank: Rank(3),
            pid: Pid(2),
            standing: KinetoStanding::Refused { why: "no".to_owned() },
            polled: Some(Moment(8)),
            every: Some(Nanoseconds(5_000_000_000)),
            count: Some(xpu_wire::ledger::KinetoCount { step: Step(5), counted: 10 }),
            clock_offset: -3,
        })),
        frame(Body::KinetoPart(KinetoPart {
            number: 7,
            job: "j".into(),
            rank: Rank(3),
            part: 1,
            bytes: KinetoBytes(vec![0, 255, 7]),
            end: Some(KinetoEnd {
                bytes: 9,
                optimizer_steps: 3,
                first: Some(Moment(1)),
                last: None,
                wrong: None,
            }),
        })),
        frame(Body::CaptureAnswer(xpu_wire::frame::CaptureAnswer {
            number: 7,
            job: "j".into(),
            rank: Rank(1),
            completed: Step(5),
            outcome: xpu_wire::frame::CaptureOutcome::TooLate,
        })),
        frame(Body::CapturePart(example::capture::part(1, 0))),
        frame(Body::CaptureSheet(example::capture::sheet(&[0, 1]))),
        frame(Body::Stacks(example::stacks::rank(1, &["main", "train"]))),
        frame(Body::Record(record("log_metrics"))),
        frame(Body::Request(Request::Records { job: "j".into(), ranks: vec![Rank(1)], most: 64 })),
        frame(Body::Relay(xpu_wire::frame::RelaySnapshot {
            version: xpu_wire::VERSION.to_owned(),
            started: xpu_wire::unit::Moment(7),
            base: xpu_wire::endpoint::BasePort::DEFAULT,
            hosts: vec![xpu_wire::frame::RelayedHost {
                endpoint: xpu_wire::endpoint::Endpoint {
                    host: "node1".to_owned(),
                    base: xpu_wire::endpoint::BasePort::DEFAULT,
                    ssh: None,
                },
                link: xpu_wire::link::Link::Down { why: "no answer".to_owned() },
                called: Some("n1".into()),
            }],
        })),
    ]);
    all
}

fn nccl() -> xpu_wire::frame::NcclReport {
    let plan = xpu_wire::plan::Plan {
        algorithm: xpu_wire::plan::Algorithm::Ring,
        protocol: xpu_wire::plan::Protocol::Ll128,
        channels: 24,
    };
    let planned = xpu_wire::frame::PlannedCollective {
        communicator: xpu_wire::id::CommunicatorId(7),
        operation: xpu_wire::collective::Operation::AllReduce,
        datatype: xpu_wire::datatype::DataType::Bfloat16,
        bytes: 1 << 20,
        plan,
    };
    xpu_wire::frame::NcclReport { by_address: 1, by_plugin: 2, uncounted: 3, plans: vec![planned] }
}

/// Test data for clients in other languages. `UPDATE_EXPECT=1` rewrites it.
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/frames.bin");

#[test]
fn the_example_frames_for_other_languages_have_this_format_and_every_kind() {
    let info = xpu_wire::frame::RankInfo {
        job: "j".into(),
        rank: Rank(1),
        world_size: 300,
        local_rank: None,
        pid: Pid(70_000),
        started: Moment(u64::MAX),
        program: "train.py \u{e9}".to_owned(),
        version: xpu_wire::VERSION.to_owned(),
        ledger: Some(7),
    };
    let hello = Frame { host: "a".into(), number: 3, now: Moment(9), lost: 1, body: Body::Hello(info) };
    let all: Vec<_> = [hello].into_iter().chain(frames()).chain(wordy()).collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(FIXTURE, all.iter().flat_map(encode).collect::<Vec<_>>()).unwrap();
    }
    let (bytes, mut kinds) = (std::fs::read(FIXTURE).unwrap(), std::collections::BTreeSet::new());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..HEADER].try_into().unwrap()) as usize;
        let (one, after) = rest.split_at(HEADER + length);
        let frame = decode(one).unwrap();
        assert_eq!(encode(&frame), one);
        kinds.insert(frame.body.kind());
        rest = after;
    }
    assert_eq!(kinds, all.iter().map(|frame| frame.body.kind()).collect());
    assert_eq!(kinds.len(), 32, "of every kind there is one");
}

#[test]
fn every_kind_of_frame_comes_back_as_it_was() {
    for frame in frames() {
        assert_eq!(published(&encode(&frame)), Some(frame.now));
        assert_eq!(decode(&encode(&frame)), Ok(frame));
    }
}

/// Frames that fill each text field that the other example frames leave empty.
fn wordy() -> Vec<Frame> {
    use xpu_wire::frame::{
        CapturedLabel, CommunicatorState, Ending, FailedKernel, FunctionKind, HookHealth, KernelTotals,
        MissingRank, RankDetail, RankExit, StopRequest, TaskState, Tracing,
    };
    let text = || "text".to_owned();
    let frame = |body| Frame { host: "a".into(), number: 3, now: Moment(9), lost: 1, body };
    let summary = Summary {
        kernels: vec![KernelTotals {
            pattern: text(),
            count: 1,
            timed: 0,
            timed_for: Nanoseconds(0),
            durations: Histogram::new(),
        }],
        communicators: vec![CommunicatorState {
            id: xpu_wire::id::CommunicatorId(1),
            parent: None,
            name: text(),
            rank: 0,
            size: 2,
            entered: 0,
            enqueued: 0,
            completed: 0,
            last_operation: None,
            last_bytes: 0,
        }],
        device: text(),
        gpus: vec![xpu_wire::frame::GpuSummary {
            index: xpu_wire::id::DeviceIndex(1),
            name: text(),
            communicators: vec![0],
            ..xpu_wire::frame::GpuSummary::default()
        }],
        hook: HookHealth { blind: vec![text()], ..HookHealth::default() },
        ..Summary::default()
    };
    let mut digests = Simulation::new(7, 1, 1).digests(5).remove(0);
    if let Body::Digest(digest) = &mut digests.body {
        digest.ranks[0].blind = vec![text()];
        digest.ranks[0].optimizer = text();
    }
    let mut part = example::capture::part(1, 0);
    part.labels = vec![
        CapturedLabel::Kernel(text()),
        CapturedLabel::Activity(text()),
        CapturedLabel::Function { kind: FunctionKind::Named, name: text() },
    ];
    if let Some(account) = &mut part.account {
        account.activity = Tracing::Refused { why: text() };
    }
    let mut sheet = example::capture::sheet(&[0, 1]);
    sheet.stall = Some(text());
    sheet.missing = vec![MissingRank { rank: Rank(1), why: text() }];
    let mut stacks = example::stacks::rank(1, &["main", "train"]);
    stacks.why = vec![text()];
    for thread in &mut stacks.threads {
        thread.name = text();
        thread.task = Some(TaskState { letter: 'S', waits_in: Some(text()), call: None });
    }
    let mut samples = example::capture::samples(1);
    samples.threads[0].name = text();
    if let Some(account) = &mut samples.account {
        account.why = Some(text());
    }
    let killed = RankExit {
        ending: Ending::OutOfMemory { certain: true, source: text() },
        kernel: example::exit().kernel.map(|kernel| FailedKernel { name: text(), error: text(), ..kernel }),
        asked: Some(StopRequest { by: Pid(1), name: text(), at: Moment(1) }),
        ..example::exit()
    };
    let mut all = vec![digests];
    all.extend(
        [
            Body::Detail(RankDetail { job: "j".into(), rank: Rank(1), summary }),
            Body::CapturePart(part),
            Body::CaptureSheet(sheet.clone()),
            Body::TimedCaptureSheet(TimedCaptureSheet { sheet, window: WINDOW }),
            Body::Stacks(stacks),
            Body::Exit(killed),
            Body::Record(RankRecord { why: text(), ..record(&text()) }),
            Body::Ras(xpu_wire::frame::RasReport::unanswered("j".into(), text())),
            Body::PythonSamples(samples),
        ]
        .map(frame),
    );
    all
}

/// Replaces each letter of each text in turn by one that steers a terminal or changes the reading direction.
/// Decoding removes it.
#[test]
fn no_field_admits_control_characters() {
    let mut tried = 0;
    for frame in frames().into_iter().skip(1).chain(wordy()) {
        let bytes = encode(&frame);
        let letters = (HEADER..bytes.len()).filter(|&at| bytes[at].is_ascii_graphic());
        for at in letters {
            // An escape in place of a letter, and a right-to-left override in place of three.
            for steering in [&b"\x1b"[..], "\u{202e}".as_bytes(), "\u{2028}".as_bytes()] {
                let mut hostile = bytes.clone();
                let Some(place) = hostile.get_mut(at..at + steering.len()) else { continue };
                place.copy_from_slice(steering);
                let Ok(decoded) = decode(&hostile) else { continue };
                tried += 1;
                let said = format!("{decoded:?}");
                let raw = ["\\u{1b}", "\\u{202e}", "\\u{2028}"];
                assert!(raw.iter().all(|raw| !said.contains(raw)), "byte {at}: {said}");
            }
        }
    }
    assert!(tried > 400, "{tried}");
}

#[test]
fn excessive_numbers_of_ranks_are_refused() {
    let life = |rank| Event::Life {
        job: "j".into(),
        rank: Rank(rank),
        pid: Pid(2),
        life: xpu_wire::frame::Life::Died,
    };
    let decoded =
        |body| decode(&encode(&Frame { host: "a".into(), number: 3, now: Moment(9), lost: 1, body }));
    assert!(decoded(Body::Event(life(Rank::WORLD - 1))).is_ok());
    let gpus = Rank::WORLD * Rank::GPUS;
    assert!(decoded(Body::Event(life(gpus))).is_ok(), "the last GPU of the first process");
    assert_eq!(decoded(Body::Event(life(gpus + Rank::WORLD))), Err(DecodeError::Payload { kind: 66 }));
    for (world, is_believed) in [(Rank::WORLD, true), (u32::MAX, false)] {
        let Body::Digest(mut digest) = Simulation::new(7, 1, 1).digests(5).remove(0).body else {
            panic!("no digest")
        };
        digest.ranks[0].world_size = world;
        assert_eq!(decoded(Body::Digest(digest)).is_ok(), is_believed, "{world}");
    }
}

#[test]
fn a_frame_of_another_version_is_reported() {
    let mut bytes = encode(&frames()[0]);
    bytes[4] = 9;
    assert_eq!(decode(&bytes), Err(DecodeError::Version { found: 9 }));
}

#[test]
fn an_unknown_kind_is_named() {
    let mut bytes = encode(&frames()[0]);
    bytes[6] = 250;
    assert_eq!(decode(&bytes), Err(DecodeError::Kind { kind: 250 }));
}

#[test]
fn every_truncated_frame_is_refused() {
    let bytes = encode(&frames()[0]);
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
    }
}

/// The budget of a digest is 1 KiB, because every rank sends one each second.
#[test]
fn a_full_digest_of_a_rank_fits_into_a_kibibyte() {
    let one = |ranks| encode(&Simulation::new(7, 1, ranks).digests(86_400).remove(0)).len();
    let per_rank = (one(64) - one(8)) / 56;
    assert!(per_rank <= 1024, "{per_rank} bytes");
}

/// Users read a refusal, so it quotes no library's error format.
#[test]
fn a_payload_that_does_not_decode_is_one_sentence() {
    let mut bytes = encode(&frames()[0]);
    bytes.truncate(HEADER);
    bytes.extend([200; 3]);
    bytes[8..HEADER].copy_from_slice(&3_u32.to_le_bytes());
    let said = decode(&bytes).unwrap_err().to_string();
    assert!(!said.contains(['{', '(']) && said.contains("kind 33"), "{said}");
}

proptest! {
    #[test]
    fn any_bytes_at_all_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn any_payload_behind_a_good_header_is_refused_or_decoded(
        kind in prop::sample::select(vec![1_u16, 2, 3, 16, 32, 33, 34, 35, 37, 38, 41, 64, 65, 66]),
        payload in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        let _ = decode(&bytes);
    }

    #[test]
    fn a_frame_with_one_byte_changed_never_panics(which in 0..8_usize, at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let frames = frames();
        let mut bytes = encode(&frames[which % frames.len()]);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = decode(&bytes);
    }
}
