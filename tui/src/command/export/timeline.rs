//! A capture as processes, tracks and slices: what both forms draw.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use serde_json::{Map, Value};
use xpu_shared::{
    capture::{Capture, Clocks, Kind, RankCapture, Single},
    frame::{CapturedLabel, CapturedSpan},
    id::{HostName, Rank},
    unit::Moment,
};

use super::{
    counter::{self, Counter},
    words,
};

#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// What its times are counted from.
    pub(super) begin: Moment,
    pub(super) processes: Vec<Process>,
}

/// A rank.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) rank: Rank,
    pub(super) host: HostName,
    pub(super) tracks: Vec<Track>,
    pub(super) counters: Vec<Counter>,
}

/// Its steps, a thread of it and Python's functions there, a stream and what CUPTI recorded there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    Steps,
    Thread(u32),
    Functions(u32),
    Stream(u32),
    Activity(u32),
}

#[derive(Debug)]
pub(super) struct Track {
    /// Different for each of a process.
    pub(super) number: u32,
    pub(super) place: Place,
    /// In order of their beginnings; each is within the one that it begins in, or after it.
    pub(super) slices: Vec<Slice>,
}

#[derive(Debug)]
pub(super) struct Slice {
    /// By the clock of the first host.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) name: String,
    pub(super) category: &'static str,
    pub(super) details: Map<String, Value>,
    /// The same for what all ranks of a communicator did together.
    pub(super) flow: Option<Flow>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) id: u64,
    pub(super) part: Part,
}

/// Which of those that belong together it is, by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    First,
    Between,
    Last,
}

impl Place {
    pub(super) fn name(self) -> String {
        match self {
            Self::Steps => "steps".to_owned(),
            Self::Thread(number) => format!("thread {number}"),
            Self::Functions(number) => format!("thread {number}, Python"),
            Self::Stream(number) => format!("stream {number}"),
            Self::Activity(number) => format!("stream {number}, by CUPTI"),
        }
    }
}

impl Timeline {
    pub(super) fn of(capture: &Capture) -> Self {
        let clocks = Clocks::of(capture);
        let mut processes: Vec<_> =
            capture.ranks.iter().map(|(&rank, of)| process(rank, of, &clocks)).collect();
        connect(&mut processes);
        let begins =
            processes.iter().flat_map(|process| &process.tracks).filter_map(|track| track.slices.first());
        let begin = Moment(begins.map(|slice| slice.begin).min().unwrap_or(0));
        Self { begin, processes }
    }
}

fn process(rank: Rank, of: &RankCapture, clocks: &Clocks) -> Process {
    let at = |moment| clocks.aligned(&of.host, moment).0;
    let mut tracks: BTreeMap<Place, Vec<Slice>> = BTreeMap::new();
    let steps = of.steps().map(|(step, from, to)| Slice {
        begin: at(from),
        end: at(to),
        name: format!("step {step}"),
        category: "step",
        details: Map::new(),
        flow: None,
    });
    tracks.insert(Place::Steps, steps.collect());
    for single in &of.operations {
        let (place, from, to) = match single.span {
            CapturedSpan::Gpu { stream, .. } => {
                let Some((from, to)) = single.on_gpu() else { continue };
                let by_cupti = matches!(*single.label, CapturedLabel::Activity(_));
                (if by_cupti { Place::Activity(stream) } else { Place::Stream(stream) }, from, to)
            }
            CapturedSpan::Host { took } => {
                let python = matches!(*single.label, CapturedLabel::Function { .. });
                let place = if python { Place::Functions } else { Place::Thread };
                (place(single.thread), single.at, Moment(single.at.0.saturating_add(took.0)))
            }
            CapturedSpan::Unknown | CapturedSpan::Timed { .. } => {
                (Place::Thread(single.thread), single.at, single.at)
            }
        };
        tracks.entry(place).or_default().push(slice(single, at(from), at(to)));
    }
    let tracks = tracks.into_iter().zip(0..);
    let tracks = tracks.map(|((place, slices), number)| Track { number, place, slices: nested(slices) });
    Process {
        rank,
        host: of.host.clone(),
        tracks: tracks.collect(),
        counters: counter::of(&of.operations, at),
    }
}

fn slice(single: &Single, begin: u64, end: u64) -> Slice {
    let meeting = single.meeting().filter(|_| single.on_gpu().is_some());
    let flow = meeting.map(|(communicator, sequence, _)| Flow {
        id: communicator.0 ^ sequence.0.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        part: Part::Between,
    });
    let category = match single.span {
        CapturedSpan::Gpu { .. } => match single.kind() {
            // As torch.profiler calls them.
            Kind::ActivityKernel => "kernel",
            Kind::Copy => "gpu_memcpy",
            Kind::Set => "gpu_memset",
            _ => "gpu",
        },
        CapturedSpan::Host { .. } | CapturedSpan::Timed { .. } | CapturedSpan::Unknown => "host",
    };
    let (name, details) = (words::name(single), words::details(single));
    Slice { begin, end, name, category, details, flow }
}

/// In order, and none across the end of another: times of the GPU are exact to half a microsecond.
fn nested(mut slices: Vec<Slice>) -> Vec<Slice> {
    slices.sort_by_key(|slice| (slice.begin, Reverse(slice.end)));
    let mut open: Vec<u64> = Vec::new();
    for slice in &mut slices {
        while let Some(&end) = open.last() {
            if end > slice.begin {
                break;
            }
            open.pop();
        }
        if let Some(&end) = open.last().filter(|&&end| end < slice.end) {
            // It began within the one before, and goes on after it: on a stream one runs after another.
            slice.begin = end;
            while open.last().is_some_and(|&end| end <= slice.begin) {
                open.pop();
            }
            if let Some(&end) = open.last() {
                slice.end = slice.end.min(end);
            }
        }
        slice.end = slice.end.max(slice.begin);
        open.push(slice.end);
    }
    slices.sort_by_key(|slice| (slice.begin, Reverse(slice.end)));
    slices
}

/// Says of each flow which slice is its first and its last; a flow of one slice is none.
fn connect(processes: &mut [Process]) {
    let all = || processes.iter().flat_map(|process| &process.tracks).flat_map(|track| &track.slices);
    let mut begins: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, slice) in all().enumerate() {
        if let Some(flow) = slice.flow {
            begins.entry(flow.id).or_default().push(place);
        }
    }
    let when: Vec<_> = all().map(|slice| slice.begin).collect();
    for places in begins.values_mut() {
        places.sort_by_key(|&place| when[place]);
    }
    let mut slices: Vec<_> = processes
        .iter_mut()
        .flat_map(|process| &mut process.tracks)
        .flat_map(|track| &mut track.slices)
        .collect();
    for places in begins.values() {
        for (order, &place) in places.iter().enumerate() {
            let part = match order {
                _ if places.len() == 1 => None,
                0 => Some(Part::First),
                last if last + 1 == places.len() => Some(Part::Last),
                _ => Some(Part::Between),
            };
            slices[place].flow = slices[place].flow.zip(part).map(|(flow, part)| Flow { part, ..flow });
        }
    }
}
