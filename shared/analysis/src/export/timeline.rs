//! A capture as processes, tracks and slices, for both formats.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use serde_json::Map;
use xpu_wire::{
    frame::{CapturedLabel, CapturedSpan},
    id::{HostName, Rank},
    unit::Moment,
};

use super::{
    counter::{self, Counter},
    profile::Profile,
    python,
    slice::{Flow, Part, Slice},
    words,
};
use crate::capture::{Capture, Clocks, Groups, Kind, Per, RankCapture, Sampled, Single};

#[derive(Debug, Default)]
pub struct Timeline {
    /// The origin of its times.
    pub begin: Moment,
    pub processes: Vec<Process>,
}

/// A rank.
#[derive(Debug)]
pub struct Process {
    pub rank: Rank,
    host: HostName,
    /// Its position in the given groups: `tp1 pp0`.
    place: String,
    /// Its position in the order of ranks.
    pub order: usize,
    pub tracks: Vec<Track>,
    pub counters: Vec<Counter>,
}

/// The kind of a track: the rank's steps; a thread, and its Python functions; a stream, and CUPTI's records
/// of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Steps,
    Thread(u32),
    Functions(u32),
    /// Sampled stacks of a thread, in the order of their names.
    Sampled(u32),
    Stream(u32),
    Activity(u32),
    /// Tracks of PyTorch's profiler: a thread, in the order of their names, and a stream.
    Profiled(u32),
    ProfiledStream(u32),
}

#[derive(Debug)]
pub struct Track {
    /// Unique within a process.
    pub number: u32,
    pub place: Place,
    /// One of several lanes of a track, which show concurrent work side by side.
    lane: usize,
    /// The name of the track, if it has no number.
    called: Option<String>,
    /// In order of start. Each slice lies within the slice in which it starts, or after it.
    pub slices: Vec<Slice>,
}

impl Track {
    pub fn name(&self) -> String {
        let name = self.called.clone().unwrap_or_else(|| self.place.name());
        if self.lane == 0 { name } else { format!("{name} ({})", self.lane + 1) }
    }
}

impl Place {
    fn name(self) -> String {
        match self {
            Self::Steps => "steps".to_owned(),
            Self::Thread(number) => format!("thread {number}"),
            Self::Functions(number) => format!("thread {number}, Python"),
            Self::Sampled(number) => format!("thread {number}, Python, sampled"),
            Self::Stream(number) => format!("stream {number}"),
            Self::Activity(number) => format!("stream {number}, by CUPTI"),
            Self::Profiled(number) => format!("thread {number}, PyTorch"),
            Self::ProfiledStream(number) => format!("stream {number}, PyTorch"),
        }
    }
}

impl Process {
    /// `rank 5 (tp1 pp0) on gpu-001`
    pub fn name(&self) -> String {
        let Self { rank, host, place, .. } = self;
        if place.is_empty() {
            format!("rank {rank} on {host}")
        } else {
            format!("rank {rank} ({place}) on {host}")
        }
    }
}

impl Timeline {
    /// Ranks in order of number, or of coordinates along the first axis, then the second and so on.
    pub fn of(capture: &Capture, groups: Option<&Groups>) -> Self {
        Self::with(capture, groups, BTreeMap::new())
    }

    /// Same as [`Self::of`], with additional traces of the same ranks by PyTorch's profiler, on one clock.
    pub fn with(capture: &Capture, groups: Option<&Groups>, mut profiles: BTreeMap<Rank, Profile>) -> Self {
        relate(&mut profiles);
        let clocks = Clocks::of(capture);
        let mut processes: Vec<_> = capture
            .ranks
            .iter()
            .map(|(&rank, of)| {
                let beside = Beside { sampled: capture.sampled.get(&rank), profile: profiles.remove(&rank) };
                process(rank, of, beside, &clocks, capture.per())
            })
            .collect();
        if let Some(groups) = groups {
            processes.sort_by_key(|process| groups.coordinates(process.rank));
            for process in &mut processes {
                process.place = groups.place(process.rank);
            }
        }
        for (order, process) in processes.iter_mut().enumerate() {
            process.order = order;
        }
        connect(&mut processes);
        let begins =
            processes.iter().flat_map(|process| &process.tracks).filter_map(|track| track.slices.first());
        let begin = Moment(begins.map(|slice| slice.begin).min().unwrap_or(0));
        Self { begin, processes }
    }
}

/// A rank's data in addition to its operations.
struct Beside<'a> {
    sampled: Option<&'a Sampled>,
    profile: Option<Profile>,
}

/// Matches collectives without numbers by their order, if all ranks have equally many.
fn relate(profiles: &mut BTreeMap<Rank, Profile>) {
    let mut counts = profiles.values().map(|profile| &profile.ordered);
    let first = counts.next();
    if counts.any(|ordered| Some(ordered) != first) {
        profiles.values_mut().filter(|profile| !profile.ordered.is_empty()).for_each(Profile::unconnected);
    }
}

fn process(rank: Rank, of: &RankCapture, beside: Beside<'_>, clocks: &Clocks, per: Per) -> Process {
    let at = |moment| clocks.aligned(&of.host, moment).0;
    let mut tracks: BTreeMap<Place, Vec<Slice>> = BTreeMap::new();
    let steps = of.steps().map(|(step, from, to)| Slice {
        begin: at(from),
        end: at(to),
        name: if per == Per::Step { format!("step {step}") } else { "window".to_owned() },
        category: if per == Per::Step { "step" } else { "window" },
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
    let mut names = BTreeMap::new();
    let Beside { sampled, profile } = beside;
    for (place, name, mut slices) in profile.into_iter().flat_map(profiled) {
        for slice in &mut slices {
            (slice.begin, slice.end) = (at(Moment(slice.begin)), at(Moment(slice.end)));
        }
        tracks.insert(place, slices);
        names.extend(name.map(|name| (place, name)));
    }
    let threads = sampled.map(python::calls).unwrap_or_default();
    for (((_, thread), calls), number) in threads.into_iter().zip(0..) {
        let slices = calls.into_iter().map(|call| Slice {
            begin: at(call.begin),
            end: at(call.end),
            name: call.name,
            category: "python",
            details: Map::from_iter([("samples".to_owned(), call.samples.into())]),
            flow: None,
        });
        tracks.insert(Place::Sampled(number), slices.collect());
        names.insert(Place::Sampled(number), format!("thread {thread}, Python, sampled"));
    }
    let lanes = tracks.into_iter().flat_map(|(place, slices)| {
        lanes(slices, blur(place)).into_iter().enumerate().map(move |(lane, slices)| (place, lane, slices))
    });
    let tracks = lanes.zip(0..).map(|((place, lane, slices), number)| {
        let called = names.get(&place).cloned();
        Track { number, place, lane, called, slices }
    });
    Process {
        rank,
        host: of.host.clone(),
        place: String::new(),
        order: 0,
        tracks: tracks.collect(),
        counters: counter::of(&of.operations, at),
    }
}

/// The tracks of a profile, and their names.
fn profiled(profile: Profile) -> impl Iterator<Item = (Place, Option<String>, Vec<Slice>)> {
    let threads = profile.threads.into_iter().zip(0..);
    let threads = threads.map(|((name, slices), number)| {
        (Place::Profiled(number), Some(format!("thread {name}, PyTorch")), slices)
    });
    let streams = profile.streams.into_iter();
    threads.chain(streams.map(|(stream, slices)| (Place::ProfiledStream(stream), None, slices)))
}

fn slice(single: &Single, begin: u64, end: u64) -> Slice {
    let matched = single.collective_id().filter(|_| single.on_gpu().is_some());
    let flow = matched.map(|of| Flow {
        id: of.communicator.0 ^ of.sequence.0.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        part: Part::Between,
    });
    let category = match single.span {
        CapturedSpan::Gpu { .. } => match single.kind() {
            // The category names are those of torch.profiler.
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

/// Largest apparent overlap of consecutive slices: event times are exact to half a microsecond, CUPTI's
/// except for their last digit.
fn blur(place: Place) -> u64 {
    if matches!(place, Place::Activity(_)) { 10 } else { 1_000 }
}

/// Distributes slices over lanes. On each lane they are in order, and no slice crosses the end of another.
/// Concurrent work of one stream, such as the branches of a graph, takes several lanes.
fn lanes(mut slices: Vec<Slice>, blur: u64) -> Vec<Vec<Slice>> {
    slices.sort_by_key(|slice| (slice.begin, Reverse(slice.end)));
    let mut lanes: Vec<Lane> = vec![Lane::default()];
    for mut slice in slices {
        let free = lanes.iter().enumerate();
        let free =
            free.map(|(place, lane)| (place, lane.begin_of(&slice, blur))).find(|(_, begin)| begin.is_some());
        let (place, begin) = free.unwrap_or_else(|| {
            lanes.push(Lane::default());
            (lanes.len() - 1, None)
        });
        let lane = &mut lanes[place];
        slice.begin = begin.unwrap_or(slice.begin);
        slice.end = slice.end.max(slice.begin);
        lane.open.retain(|&end| end > slice.begin);
        lane.open.push(slice.end);
        lane.slices.push(slice);
    }
    lanes.into_iter().map(|lane| lane.slices).collect()
}

#[derive(Debug, Default)]
struct Lane {
    slices: Vec<Slice>,
    /// Ends of the last slice and of the slices that enclose it, innermost first.
    open: Vec<u64>,
}

impl Lane {
    /// Its start on this lane; `None` if it would cross the end of another slice.
    fn begin_of(&self, slice: &Slice, blur: u64) -> Option<u64> {
        let across = self.open.iter().copied().filter(|&end| end > slice.begin && end < slice.end);
        let latest = self.slices.last().map(|last| last.begin);
        let begin = across.chain(latest).fold(slice.begin, u64::max);
        (begin - slice.begin <= blur).then_some(begin)
    }
}

/// Marks each flow's first and last slice; a flow of one slice is dropped.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn laid(spans: &[(u64, u64)]) -> Vec<Vec<(u64, u64)>> {
        let slices = spans.iter().map(|&(begin, end)| Slice {
            begin,
            end,
            name: String::new(),
            category: "kernel",
            details: Map::new(),
            flow: None,
        });
        let spans = |slices: Vec<Slice>| slices.iter().map(|slice| (slice.begin, slice.end)).collect();
        lanes(slices.collect(), blur(Place::Stream(0))).into_iter().map(spans).collect()
    }

    #[test]
    fn concurrent_slices_keep_their_length() {
        let (all_reduce, gemm) = ((10_000, 500_000), (30_000, 900_000));
        assert_eq!(laid(&[gemm, all_reduce]), [[all_reduce], [gemm]]);
        let after = (910_000, 950_000);
        assert_eq!(laid(&[gemm, all_reduce, after]), [vec![all_reduce, after], vec![gemm]]);
    }

    #[test]
    fn a_nested_slice_is_on_the_lane_of_the_outer_one() {
        let spans = [(0, 100_000), (10_000, 50_000), (60_000, 100_000)];
        assert_eq!(laid(&spans), [spans]);
    }

    #[test]
    fn a_blur_of_two_times_is_no_overlap() {
        assert_eq!(laid(&[(0, 100_000), (99_500, 150_000)]), [[(0, 100_000), (100_000, 150_000)]]);
        let short = laid(&[(0, 100_000), (99_500, 150_000), (99_600, 99_900)]);
        assert_eq!(short, [[(0, 100_000), (100_000, 150_000), (100_000, 100_000)]], "in order");
    }
}
