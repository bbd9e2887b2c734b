//! Capture files that were cut, had bits flipped, or were written by another program. Every command that
//! reads one refuses it with 64 or reads what it can, and none panics.

use std::{fs, path::Path, time::Duration};

use xpu_client::replay_file;
use xpu_recording::{Header, Packer, Writer};
use xpu_tests::place::Place;
use xpu_top::{
    args::{DiffArgs, ExportArgs, JobArgs, PricedArgs, ReportArgs, SelectArgs, UsageError, WhatIfArgs},
    command::{diff::diff, export::export, report::report, what_if::what_if},
};
use xpu_wire::{
    codec,
    collective::Operation,
    datatype::DataType,
    frame::{
        Body, CaptureAccount, CaptureEnd, CaptureOrder, CapturePart, CaptureSheet, CaptureWindow,
        CapturedLabel, CapturedOperation, CapturedSpan, Direction, Frame, FunctionKind, PythonSamples,
        StepMark, StepSource, TimedCaptureSheet, Tracing, example::capture as example,
    },
    gemm::{ComputeType, GemmShape, Routine},
    id::{CommunicatorId, Rank, Sequence, Step},
    unit::{Moment, Nanoseconds},
};

const MS: u64 = 1_000_000;
const HOSTILE: &str = "<script>alert(1)</script>\"'&;\u{1b}[31m\n,=1+1";

/// Pseudo-random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % most.max(1)
    }
}

fn sheet() -> CaptureSheet {
    let order = CaptureOrder {
        number: 7,
        first: Step(1),
        steps: 2,
        limit: Nanoseconds(60_000 * MS),
        before: 0,
        activity: true,
        functions: true,
    };
    CaptureSheet {
        order,
        job: "j".into(),
        ranks: vec![Rank(0), Rank(1)],
        closed: true,
        missing: Vec::new(),
        stall: None,
    }
}

fn labels() -> Vec<CapturedLabel> {
    let shape = GemmShape {
        m: 8,
        n: 4,
        k: 2,
        batch: 1,
        datatype: DataType::Bfloat16,
        compute: ComputeType::Float32,
        transposed: (true, false),
        routine: Routine::Gemm,
    };
    let (communicator, operation) = (CommunicatorId(9), Operation::AllReduce);
    vec![
        CapturedLabel::Gemm(shape),
        CapturedLabel::Collective {
            communicator,
            operation,
            datatype: DataType::Bfloat16,
            bytes: 1000,
            bus_bytes: 1000,
            plan: None,
        },
        CapturedLabel::Group { communicator, operation, bytes: 7, bus_bytes: 7, collectives: 2, plan: None },
        CapturedLabel::Activity(HOSTILE.to_owned()),
        CapturedLabel::Activity("_ZN2my11gemm_kernelILi4EEEvPf".to_owned()),
        CapturedLabel::Copy { direction: Direction::HostToDevice, bytes: 3 },
        CapturedLabel::Function { kind: FunctionKind::Named, name: HOSTILE.to_owned() },
        CapturedLabel::Copy { direction: Direction::PeerToPeer, bytes: 5 },
    ]
}

fn part(rank: u32) -> CapturePart {
    let labels = labels();
    let mark = |step: u64| StepMark { completed: Step(step), at: Moment(1000 * MS + step * 20 * MS) };
    let operation = |label: u32| CapturedOperation {
        label: label % labels.len() as u32,
        after: Nanoseconds(MS),
        thread: label % 3,
        sequence: (label % 8 < 3).then_some(Sequence(label.into())),
        span: match label % 8 {
            6 | 7 => CapturedSpan::Host { took: Nanoseconds(MS) },
            _ => CapturedSpan::Gpu { stream: label % 3, late: MS as i64, took: Nanoseconds(3 * MS) },
        },
    };
    CapturePart {
        number: 7,
        job: "j".into(),
        rank: Rank(rank),
        part: 0,
        parts: 1,
        account: Some(CaptureAccount {
            marks: (0..3).map(mark).collect(),
            source: Some(StepSource::Marked),
            ended: CaptureEnd::Done,
            operations: 32,
            activity: Tracing::Recorded { records: 12, dropped: 0 },
            functions: Tracing::Refused { why: HOSTILE.to_owned() },
            ..CaptureAccount::default()
        }),
        since: Moment(1000 * MS),
        operations: (0..32).map(operation).collect(),
        labels,
    }
}

/// Sampled stacks of the same steps. One frame has a hostile name.
fn samples(rank: u32) -> PythonSamples {
    let mut samples = example::samples(rank);
    (samples.number, samples.since) = (7, Moment(1000 * MS));
    HOSTILE.clone_into(&mut samples.frames[1].function);
    samples
}

/// A capture file of those frames, each changed by `change`.
fn file(change: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    file_of(Body::CaptureSheet(sheet()), change)
}

/// As [`file`], with a period in place of steps.
fn file_of_time() -> Vec<u8> {
    let window = CaptureWindow { at: Moment(1000 * MS), length: Nanoseconds(20 * MS) };
    file_of(Body::TimedCaptureSheet(TimedCaptureSheet { sheet: sheet(), window }), |_| {})
}

fn file_of(sheet: Body, mut change: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut bodies = vec![sheet];
    bodies.extend((0..2).map(part).map(Body::CapturePart));
    bodies.extend((0..2).map(samples).map(Body::PythonSamples));
    let header = Header {
        job: "j".to_owned(),
        hosts: vec!["a".to_owned()],
        made: Moment(1000 * MS),
        by: "a test".to_owned(),
    };
    let mut writer = Writer::begin(Vec::new(), &header).expect("memory takes it");
    let mut packer = Packer::default();
    for body in bodies {
        let frame = Frame { host: "a".into(), number: 0, now: Moment(1000 * MS), lost: 0, body };
        let mut bytes = codec::encode(&frame);
        change(&mut bytes);
        let sealed = packer.push_encoded(Moment(1000 * MS), None, &bytes).expect("it is not too large");
        if let Some(block) = sealed {
            writer.write(&block).expect("memory takes it");
        }
    }
    for block in packer.rest().expect("it can be packed") {
        writer.write(&block).expect("memory takes it");
    }
    writer.finish().expect("memory takes it").0
}

fn flip(bytes: &mut [u8], chance: &mut Chance, from: usize) {
    for _ in 0..=chance.below(4) {
        let at = from + chance.below(bytes.len().saturating_sub(from));
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << chance.below(8);
        }
    }
}

/// Runs every command that reads captures, and returns the result of each.
fn all_read(place: &Path, bytes: &[u8]) -> Vec<Result<(), anyhow::Error>> {
    let path = place.join("mutated");
    fs::write(&path, bytes).expect("the place takes it");
    let (file, select) = (path.clone(), SelectArgs::default);
    // Outputs do not overwrite existing files, so the folder is emptied.
    let made = place.join("made");
    let _ = fs::remove_dir_all(&made);
    fs::create_dir(&made).expect("the place takes it");
    let out = |name: &str| Some(made.join(name));
    let looked = report(&ReportArgs { file, json: true, html: out("html"), top: 3, select: select() });
    let (file, fail_on) = (path.clone(), Vec::new());
    let written = export(&ExportArgs {
        file,
        perfetto: out("perfetto"),
        chrome: out("chrome"),
        kineto: out("kineto"),
        csv: out("csv"),
        parquet: out("parquet"),
        folded: out("folded"),
        flame: None,
        traces: None,
        flight_recorder: None,
        kind: Vec::new(),
        select: select(),
    });
    // This runs alone: a file without stacks is refused before anything is written.
    let drawn = export(&ExportArgs {
        file: path.clone(),
        perfetto: None,
        chrome: None,
        kineto: None,
        csv: None,
        parquet: None,
        folded: None,
        flame: out("flame"),
        traces: None,
        flight_recorder: None,
        kind: Vec::new(),
        select: select(),
    });
    let (before, after) = (path.clone(), path.clone());
    let compared = diff(&DiffArgs { before, after, json: false, top: 9, fail_on, select: select() });
    let simulated = WhatIfArgs {
        file: Some(path.clone()),
        json: true,
        top: 3,
        live: false,
        of: JobArgs::default(),
        every: Duration::MAX,
        steps: 2,
        times: None,
        priced: PricedArgs::default(),
    };
    let asked = what_if(&simulated);
    // A recording may be empty, and its screen then says so.
    let _ = replay_file::open(&path);
    [looked, written, drawn, compared, asked].into_iter().map(|said| said.map(drop)).collect()
}

#[test]
fn truncated_or_corrupted_files_are_read_as_far_as_possible_or_refused() {
    let place = Place::new();
    let (of_steps, of_time, mut refused) = (file(|_| {}), file_of_time(), 0);
    for seed in 1..=150 {
        let whole = if seed % 2 == 0 { &of_steps } else { &of_time };
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut bytes = whole.clone();
        match seed % 3 {
            0 => bytes.truncate(chance.below(whole.len())),
            1 => flip(&mut bytes, &mut chance, 0),
            _ => {
                let (at, from) = (chance.below(whole.len()), chance.below(whole.len()));
                bytes.splice(at..at, whole[from..].iter().copied());
            }
        }
        for said in all_read(&place.path("run"), &bytes) {
            if let Err(error) = said {
                assert!(error.is::<UsageError>(), "seed {seed}: {error:#}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "some are beyond reading");
}

#[test]
fn foreign_frames_are_ignored() {
    let place = Place::new();
    for seed in 1..=150 {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        // The checksums are right, but the data is wrong.
        let bytes = file(|frame| flip(frame, &mut chance, codec::HEADER));
        for said in all_read(&place.path("run"), &bytes) {
            assert!(said.as_ref().err().is_none_or(anyhow::Error::is::<UsageError>), "seed {seed}: {said:?}");
        }
    }
}

#[test]
fn a_file_that_is_no_capture_is_refused_by_all_commands() {
    let place = Place::new();
    for bytes in [&b""[..], b"something else", &file(|_| {})[..9], &[0; 4096]] {
        for said in all_read(&place.path("run"), bytes) {
            let error = said.expect_err("it is none");
            assert!(error.is::<UsageError>() && error.to_string().contains("cannot read "), "{error:#}");
        }
    }
}

#[test]
fn names_are_never_interpreted() {
    let place = Place::new();
    for said in all_read(&place.path("run"), &file(|_| {})) {
        said.expect("the file is whole");
    }
    let read =
        |name: &str| fs::read_to_string(place.path("run").join("made").join(name)).expect("it was written");
    let page = read("html");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains("http"), "{page}");
    for line in read("folded").lines() {
        let (frames, value) = line.rsplit_once(' ').expect("frames and a value");
        let frames: Vec<_> = frames.split(';').collect();
        // A line of stacks also has the thread, and two or three frames.
        let fits = if frames[2] == "python" { 5..=7 } else { 4..=4 };
        assert!(fits.contains(&frames.len()) && value.parse::<u64>().is_ok(), "{line:?}");
    }
    assert!(read("csv/host.csv").contains("<script>alert(1)</script>\"\"'&;"), "quotes are doubled");
}
