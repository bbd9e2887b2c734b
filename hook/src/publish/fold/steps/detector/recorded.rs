//! Replays the launches of real programs on two GPUs (tests/launches). The detected steps must equal those
//! that each program counted, or be unknown.

use std::{cell::Cell, fs::File, io::Read, path::PathBuf};

use flate2::read::GzDecoder;

use super::*;

/// The unit of the times in the files, in nanoseconds. The launches are also replayed faster and slower,
/// because the result depends on time.
const UNIT: u64 = 50_000;
const UNITS: [u64; 4] = [UNIT, UNIT / 3, 2 * UNIT, 10 * UNIT];

/// Each search takes a random time up to one of these, which determines when the next search begins. With the
/// second value, a part of a pipeline's step was once mistaken for the step.
const LOOKS: [u64; 3] = [0, 80_000_000, SECOND];

thread_local! {
    /// The time now, and the most time that passes at each reading.
    static CLOCK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

fn begin_looks(of: u64) {
    CLOCK.set((0, of));
    RANDOM.set(99);
}

fn clock() -> u64 {
    let (now, most) = CLOCK.get();
    let random = RANDOM.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_605);
    RANDOM.set(random);
    CLOCK.set((now + (random >> 30) % most.max(1), most));
    now
}

/// The interval at which the publisher calls `settle`.
const TURN: u64 = SECOND / 20;

struct Program {
    launches: Vec<(usize, Launch)>,
    /// When each step was completed.
    own: Vec<(u64, u64)>,
}

fn read(name: &str, unit: u64) -> Program {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/launches").join(format!("{name}.gz"));
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(&path).unwrap()).read_to_end(&mut bytes).unwrap();
    let mut rest = &bytes[..];
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at(count);
        rest = after;
        taken.to_vec()
    };
    let words = |bytes: Vec<u8>| -> Vec<u32> {
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let names = words(take(4))[0] as usize;
    let columns: [Vec<u32>; 8] = std::array::from_fn(|_| words(take(4 * names)));
    let launch = |which: usize| {
        let [name, form, kind, weight, m, n, k, thread] = columns.each_ref().map(|column| column[which]);
        let kinds = [Kind::Gemm, Kind::Collective, Kind::Kernel, Kind::Graph, Kind::Copy];
        let (kind, weight) = (kinds[kind as usize], f32::from_bits(weight) as u64);
        (thread as usize, Launch { name, form, kind, weight, extents: [m, n, k], at: 0 })
    };
    let count = words(take(4))[0] as usize;
    let which: Vec<_> = take(2 * count)
        .chunks_exact(2)
        .map(|two| usize::from(u16::from_le_bytes(two.try_into().unwrap())))
        .collect();
    let mut at = SECOND;
    let launches = which.into_iter().zip(words(take(4 * count))).map(|(which, after)| {
        at += u64::from(after) * unit;
        let (thread, what) = launch(which);
        (thread, Launch { at, ..what })
    });
    let launches = launches.collect();
    let steps = words(take(4))[0] as usize;
    // The first steps may be before the first launch.
    let at = words(take(4 * steps))
        .into_iter()
        .map(|at| SECOND.saturating_add_signed(i64::from(at as i32) * unit as i64));
    let own =
        at.collect::<Vec<_>>().into_iter().zip(words(take(4 * steps)).into_iter().map(u64::from)).collect();
    Program { launches, own }
}

/// The detected steps of a program: each ended step, and whether its number is a lower bound.
fn detect(program: &Program) -> Vec<(Ended, bool)> {
    let mut detector = Detector { clock, ..Detector::default() };
    let (mut ended, mut turn, mut pace) = (Vec::<(Ended, bool)>::new(), 0, None);
    for (thread, launch) in &program.launches {
        while launch.at > turn + TURN {
            turn += TURN;
            if detector.settle(turn, pace) {
                pace = None;
            }
        }
        let begun = launches::begun(*thread, launch);
        if matches!(detector.phase, Phase::Searching { .. }) {
            detector.launched(*thread, *launch);
        }
        let step = match launch.kind {
            Kind::Gemm => {
                detector.count(launch, 0);
                None
            }
            Kind::Collective => detector.collective(launch, 2),
            _ => None,
        };
        if let Some(step) = begun.and_then(|steps| detector.begun(steps, launch.at)).or(step) {
            if let Some((before, _)) = ended.last() {
                pace = Some((step.1 - before.1) / (step.0.saturating_sub(before.0)).max(1));
            }
            ended.push((step, detector.is_late()));
        }
    }
    ended
}

/// Number of shown step numbers that are wrong by more than one; number of steps shown after the first; and
/// number of steps that the program completed from then to the end.
fn errors(program: &Program, unit: u64, shown: &[(Ended, bool)]) -> (usize, u64, u64) {
    let own_at = |at: u64| {
        let before = program.own.iter().take_while(|&&(own, _)| own <= at);
        before.last().map_or(0, |&(_, number)| number)
    };
    // A program reports a step as completed shortly after the step's last launch.
    let moment = 200 * unit;
    let is_off = |&&((number, at), is_lower_bound): &&(Ended, bool)| {
        let (least, most) = (own_at(at), own_at(at + moment));
        number > most + 1 || (!is_lower_bound && number + 1 < least)
    };
    // The first number may stand for several steps that the program made during the search.
    let ((from, since), _) = shown[shown.len().min(2) - 1];
    let ((to, until), is_lower_bound) = shown[shown.len() - 1];
    let end = program.launches.last().map_or(0, |(_, launch)| launch.at);
    let (steps, own) = (to.saturating_sub(from), own_at(end).saturating_sub(own_at(since)));
    // A lower bound may miss some steps when the period is found again, but it must count up to the end.
    let is_missed = is_lower_bound && steps < own && 2 * steps > own && own_at(end) - own_at(until) <= 2;
    (shown.iter().filter(is_off).count(), if is_missed { own } else { steps }, own)
}

fn all() -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/launches");
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".gz").map(str::to_owned)).collect();
    names.sort();
    names
}

/// Programs without a known step: the lengths of a step's parts differ on every rank and step, there are too
/// few repetitions, or the period may be several steps and the work after them.
const UNKNOWN: [&str; 4] = ["DDP-uneven-PowerSGD", "PPO", "inference-server", "local-SGD"];

/// Four updates follow each rollout, so the shortest period that contains everything is the whole iteration.
const SEVERAL: (&str, u64) = ("rollouts-and-updates", 4);

#[test]
fn detected_steps_of_real_programs_are_their_own_count_or_unknown() {
    let mut wrong = Vec::new();
    let paces = UNITS.into_iter().flat_map(|unit| LOOKS.map(|look| (unit, look)));
    for (name, (unit, look)) in
        all().into_iter().flat_map(|name| paces.clone().map(move |pace| (name.clone(), pace)))
    {
        let program = read(&name, unit);
        begin_looks(look);
        launches::count_steps_by(None);
        let shown = detect(&program);
        if (unit, look) == (UNIT, 0) && shown.is_empty() != UNKNOWN.contains(&name.as_str()) {
            wrong.push(format!("{name}: {} steps", shown.len()));
        }
        if shown.is_empty() {
            continue;
        }
        let (off, steps, own) = errors(&program, unit, &shown);
        let (own, is_counted) = if name == SEVERAL.0 { (own / SEVERAL.1, false) } else { (own, true) };
        if (is_counted && off > 0) || steps.abs_diff(own) > 1 + own / 50 {
            let shown = shown.len();
            wrong.push(format!(
                "{name} in units of {unit} ns, looks of up to {look} ns: {off} of {shown} numbers off; {steps} steps for {own}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
