//! Finds the period of a program's launches: the shortest one that includes everything, even launches that
//! occur once in a step.
//!
//! If a name occurs `count` times in every step, the launches from any of its occurrences to the `count`th
//! one after it are always the same multiset. Parts of a step (layers, buckets, micro-batches) have this
//! property too, except in the segment with the unique launches. So each period that is found is judged by
//! the launches that it does *not* contain: an optimizer's kernels after every fourth micro-batch show that
//! the period is a part of a step; the copy of a figure for the log does not. If both are possible, the step
//! is unknown.

mod beside;
mod forward;

use std::collections::HashMap;

use beside::{Beside, beside};

use super::log::{Event, Log, Sums};
use crate::observe::launches::{Kind, Launch};

/// A name with fewer launches is not considered.
const FEWEST: usize = 8;

/// Maximum number of launches of one name that are considered, the latest ones, and of its launches in a
/// step. A more frequent name shows no period.
const LOOKED_AT: usize = 2048;
const IN_A_STEP: usize = 64;

/// Maximum number of names considered, two of each frequency.
const NAMES: usize = 48;

/// Fraction of a period's segments that must be alike.
const ALIKE: f64 = 0.7;

/// Repetitions must make up at least this fraction of all launches, and this fraction of the repetitions must
/// follow directly on one another.
const COVERED: f64 = 0.5;

/// A copy to the device counts as a copy of batches if it occurs at least this often at regular intervals.
const BATCHES: usize = 4;
/// Largest relative difference of a mean from the exact number.
const SAME_NUMBER: f64 = 0.005;
/// A collective of fewer bytes carries a figure, not gradients.
pub(super) const FIGURE: u64 = 4096;

/// A log entry that reads whole tensors may have at most this many kernels; an update has one for each
/// parameter, unless it is fused.
const FEW: usize = 4;
/// Maximum number of launches of a step that are compared one by one.
const COMPARED: usize = 2048;
/// Common numbers of micro-batches in a step. Numbers like five, ten or a hundred are not included, because
/// launches after that many repetitions may be a log entry. If one micro-batch has other launches, the number
/// of equal ones plus one is a common number.
const ACCUMULATED: [u32; 11] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// A period is accepted after at least this many repetitions over at least this many seconds; one of these
/// pairs suffices.
const ENOUGH_REPETITIONS: [(usize, f64); 4] = [(1000, 0.3), (32, 3.0), (12, 15.0), (6, 60.0)];

/// Maximum number of repetitions whose GEMMs are compared.
const REPETITIONS: usize = 16;

/// The contents of one step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Period {
    /// Number of launches in a step, and the sum of their names.
    pub(super) launches: u32,
    pub(super) names: u64,
    /// Number of repetitions seen.
    pub(super) seen: usize,
    /// Duration of the last repetition in nanoseconds.
    pub(super) took: u64,
    /// Number of launches before the first repetition; `None` if the log does not have the first launches.
    pub(super) before: Option<u32>,
    /// The launches, in order of first occurrence; for a very long step, only the rarer ones.
    pub(super) members: Vec<Member>,
    /// Whether its GEMMs train; `None` if they do not show this.
    pub(super) trains: Option<bool>,
}

/// A launch that occurs `count` times in every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Member {
    pub(super) launch: Launch,
    pub(super) count: u32,
    /// Number of launches of the step before its first occurrence.
    pub(super) offset: u32,
}

/// A period found by one name.
#[derive(Debug)]
struct Candidate {
    sums: Sums,
    /// Begin and end of the repetitions, as positions in the log. They do not overlap.
    segments: Vec<(usize, usize)>,
}

/// Verdicts on a period, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Judgement {
    Step,
    /// The period may be the step, or a part of one.
    Ambiguous,
    /// Other work occurs too often between repetitions, but the period makes up most launches.
    MicroBatch,
    /// The same, and one of several micro-batches has other launches.
    VariedMicroBatch,
    /// Other work occurs too often between repetitions.
    Part,
    /// The period does not contain a whole number of batches, though several periods together may.
    OfABatch,
    /// The period makes up only a small share of the launches.
    Minor,
}

/// Finds the period. `None` while more launches are needed.
pub(super) fn find(log: &Log) -> Option<Period> {
    let mut judged: HashMap<Sums, (Judgement, Candidate)> = HashMap::new();
    for positions in rarest_launches(log) {
        for candidate in candidates(log, &positions) {
            judged.entry(candidate.sums).or_insert_with(|| (judge(log, &candidate), candidate));
        }
    }
    let mut judged: Vec<_> = judged.into_values().collect();
    judged.retain(|(judgement, _)| *judgement != Judgement::Minor);
    judged.sort_by_key(|(_, candidate)| candidate.sums.count);
    // A multiple of a part of a step is not a step.
    let parts: Vec<_> = judged
        .iter()
        .filter(|(judgement, _)| *judgement != Judgement::OfABatch)
        .map(|(_, candidate)| candidate.sums)
        .collect();
    judged.retain(|(_, candidate)| !parts.iter().any(|&part| candidate.sums.is_several(part)));
    // The launches of a micro-batch, and how many further micro-batches with differences a step may have.
    let mut part: Option<(u32, u32)> = None;
    for (judgement, candidate) in &judged {
        let launches = candidate.sums.count;
        match judgement {
            Judgement::Step => {
                let accumulates = part.is_none_or(|(part, most_others)| {
                    let parts = launches / part;
                    (parts..=parts + most_others).any(|parts| ACCUMULATED.contains(&parts))
                });
                if !accumulates || may_be_several(log, candidate) || !is_repeated_enough(log, candidate) {
                    return None;
                }
                return Some(period(log, candidate));
            }
            Judgement::Part | Judgement::OfABatch | Judgement::Minor => {}
            Judgement::MicroBatch => part = part.or(Some((launches, 0))),
            Judgement::VariedMicroBatch => part = part.or(Some((launches, 1))),
            Judgement::Ambiguous => return None,
        }
    }
    None
}

/// Positions of the launches of the names considered: two of each frequency, the rarest first.
fn rarest_launches(log: &Log) -> Vec<Vec<usize>> {
    let mut positions: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, event) in log.events().iter().enumerate() {
        positions.entry(event.launch.name).or_default().push(place);
    }
    let mut all: Vec<_> = positions.into_values().filter(|places| places.len() >= FEWEST).collect();
    all.sort_by_key(|places| (places.len(), places[0]));
    let mut taken: Vec<Vec<usize>> = Vec::new();
    for places in all {
        let same = taken.iter().rev().take_while(|other| other.len() == places.len()).count();
        if same < 2 && taken.len() < NAMES {
            taken.push(places);
        }
    }
    for places in &mut taken {
        let surplus = places.len().saturating_sub(LOOKED_AT);
        places.drain(..surplus);
    }
    taken
}

/// Candidate periods by one name, the shortest first. Segments with a candidate's number of launches of the
/// name are equal more often than segments with one launch more or less.
fn candidates(log: &Log, positions: &[usize]) -> impl Iterator<Item = Candidate> {
    let events = log.events();
    let pairs = |count: usize| positions.iter().copied().zip(positions[count..].iter().copied());
    let between = |(from, to): (usize, usize)| events[to].before.since(events[from].before);
    let most = (positions.len() / 4).min(IN_A_STEP);
    let usual: Vec<_> = (1..=most)
        .map(|count| {
            let usual = majority(pairs(count).map(between)).unwrap_or_default();
            let same = pairs(count).filter(|&pair| between(pair) == usual).count();
            (usual, same as f64 / (positions.len() - count) as f64)
        })
        .collect();
    let share =
        |place: Option<usize>| place.and_then(|place| usual.get(place)).map_or(0.0, |&(_, share)| share);
    let stands_out = |place: usize| {
        let own = share(Some(place));
        own >= ALIKE && own >= share(place.checked_sub(1)) && own >= share(Some(place + 1))
    };
    let found: Vec<_> = (0..most).filter(|&place| usual[place].0.count > 0 && stands_out(place)).collect();
    found.into_iter().map(move |place| {
        let sums = usual[place].0;
        let mut segments: Vec<(usize, usize)> = Vec::new();
        for pair in pairs(place + 1).filter(|&pair| between(pair) == sums) {
            if segments.last().is_none_or(|&(_, end)| pair.0 >= end) {
                segments.push(pair);
            }
        }
        Candidate { sums, segments }
    })
}

/// The value of more than half of all, if there is one (majority vote of Boyer and Moore).
fn majority<T: PartialEq>(all: impl Iterator<Item = T>) -> Option<T> {
    let mut leader = None;
    let mut votes = 0_usize;
    for one in all {
        if votes == 0 {
            (leader, votes) = (Some(one), 1);
        } else if leader.as_ref() == Some(&one) {
            votes += 1;
        } else {
            votes -= 1;
        }
    }
    leader
}

fn judge(log: &Log, candidate: &Candidate) -> Judgement {
    let (events, segments) = (log.events(), &candidate.segments);
    let (first, last) = (segments[0].0, segments[segments.len() - 1].1);
    let whole = events[last].before.since(events[first].before).count;
    let covered = segments.len() as f64 * f64::from(candidate.sums.count) / f64::from(whole.max(1));
    let adjoining = segments.windows(2).filter(|pair| pair[0].1 == pair[1].0).count();
    let over = log.sums().since(events[last].before).count > whole / 4;
    if over || covered < COVERED || (adjoining as f64) < COVERED * (segments.len() - 1) as f64 {
        return Judgement::Minor;
    }
    if !batches(&events[first..last])
        .into_iter()
        .all(|apart| apart.iter().any(|&apart| divides(candidate.sums.count, apart)))
    {
        return Judgement::OfABatch;
    }
    let recent = beside(log, candidate, &HashMap::new(), |from, to| {
        let launches = log.recent(events[from].before, events[to].before)?;
        Some(launches.map(|launch| (*launch, launch.name)))
    });
    let inside = recent.as_ref().map(|recent| recent.inside.clone()).unwrap_or_default();
    let kept = beside(log, candidate, &inside, |from, to| {
        Some(events[from..to].iter().map(|event| (event.launch, event.original)))
    });
    // The recent launches also include names that are not kept.
    let whole = if log.is_thinned() { &recent } else { &kept };
    let (is_plain, unlike) =
        whole.as_ref().map_or((false, false), |beside| (is_plain(&beside.inside), beside.unlike));
    let updates = whole.as_ref().filter(|beside| beside.occasions() > 0).map(|beside| beside.updates);
    let has_graphs = whole.as_ref().is_some_and(Beside::has_graphs);
    if candidate.sums.gemms == 0 && !has_graphs && log.sums().gemms as usize >= FEWEST {
        // It may be an optimizer that updates one parameter after another.
        return Judgement::Part;
    }
    if whole.as_ref().is_some_and(Beside::lacks_forward) {
        return Judgement::Part;
    }
    if whole.as_ref().is_some_and(Beside::varies) {
        return Judgement::VariedMicroBatch;
    }
    let judge = |mut beside: Beside| {
        beside.updates = updates.unwrap_or(beside.updates);
        beside.judge(covered, is_plain, unlike)
    };
    let recent = recent.filter(|beside| beside.occasions() > 1);
    kept.map(judge).max(recent.map(judge)).unwrap_or(Judgement::Minor)
}

/// Whether a period only alternates between few names. A step of eight equal parts would then look like eight
/// steps. A graph launch is never such a part.
fn is_plain(inside: &HashMap<u32, (Kind, usize)>) -> bool {
    let has = |wanted: Kind| inside.values().any(|&(kind, _)| kind == wanted);
    let mut counts = inside.values().map(|&(_, count)| count);
    let first = counts.next();
    inside.len() <= 2 && !has(Kind::Graph) && !has(Kind::Copy) && counts.all(|count| Some(count) == first)
}

/// Copies to the device that are as regular as batches: for each, the mean and the usual number of launches
/// from one copy to the next.
fn batches(events: &[Event]) -> Vec<[f64; 2]> {
    let mut copies: HashMap<u32, Vec<u32>> = HashMap::new();
    for event in events.iter().filter(|event| event.launch.kind == Kind::Copy) {
        copies.entry(event.launch.name).or_default().push(event.before.count);
    }
    let apart = |at: Vec<u32>| {
        let mut gaps: Vec<_> = at.windows(2).map(|pair| f64::from(pair[1].wrapping_sub(pair[0]))).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let (Some(least), Some(most)) = (gaps.first(), gaps.last()) else { return None };
        let (mean, median) = (gaps.iter().sum::<f64>() / gaps.len() as f64, gaps[gaps.len() / 2]);
        (gaps.len() >= BATCHES && most - least <= least / 8.0).then_some([mean, median])
    };
    copies.into_values().filter_map(apart).collect()
}

/// Whether a period of this many launches contains a whole number of batches.
fn divides(launches: u32, apart: f64) -> bool {
    let batches = f64::from(launches) / apart;
    batches >= 0.5 && (batches / batches.round() - 1.0).abs() <= SAME_NUMBER
}

/// Whether a candidate repeats one unit, followed by a few kernels: equal layers and their loss, or steps and
/// a log entry. Single launches of frequent names are known only for the recent past.
fn may_be_several(log: &Log, candidate: &Candidate) -> bool {
    let (from, to) = candidate.segments[candidate.segments.len() - 1];
    let Some(launches) = log.recent(log.events()[from].before, log.events()[to].before) else { return false };
    let launches: Vec<&Launch> = launches.take(COMPARED + 1).collect();
    let length = launches.len();
    if length > COMPARED {
        return false;
    }
    (1..=length / 2).any(|period| {
        // Launches without an equal launch one period later. After the end, the comparison continues at the
        // beginning.
        let unlike = |place: &usize| launches[*place].name != launches[(*place + period) % length].name;
        let unlike: Vec<usize> = (0..length).filter(unlike).collect();
        // If there are n repetitions and a tail, only launches of the last repetition and of the tail are
        // unequal.
        let (Some(&first), Some(&last)) = (unlike.first(), unlike.last()) else { return false };
        let around = unlike.windows(2).map(|pair| (pair[1] - pair[0], pair[0])).max();
        let (gap, before) = around.unwrap_or_default();
        let wrapped = first + length - last;
        let (run, begin) = if wrapped >= gap { (wrapped - 1, last + 1) } else { (gap - 1, before + 1) };
        let repeated = run + period;
        let rest = (repeated..length).map(|place| launches[(begin + place) % length]);
        run >= period
            && length > repeated
            && length - repeated <= FEW
            && rest.into_iter().all(|launch| launch.kind == Kind::Kernel)
    })
}

/// Whether there were enough repetitions.
fn is_repeated_enough(log: &Log, candidate: &Candidate) -> bool {
    let segments = &candidate.segments;
    let at = |place: usize| log.events()[place].launch.at;
    let lasted = at(segments[segments.len() - 1].1).saturating_sub(at(segments[0].0)) as f64 / 1e9;
    ENOUGH_REPETITIONS.iter().any(|&(times, seconds)| segments.len() >= times && lasted >= seconds)
}

/// Whether the candidate's GEMMs train. If a forward pass has as many tokens as the model has features, its
/// GEMMs look like those of training; so several repetitions are considered, which may have other numbers of
/// tokens.
fn trains(log: &Log, candidate: &Candidate) -> Option<bool> {
    let last = candidate.segments.iter().rev().take(REPETITIONS);
    let verdicts = last.filter_map(|&(from, to)| {
        forward::trains(log.recent(log.events()[from].before, log.events()[to].before)?)
    });
    verdicts.min()
}

fn period(log: &Log, candidate: &Candidate) -> Period {
    let (from, to) = candidate.segments[candidate.segments.len() - 1];
    let events = &log.events()[from..to];
    let took = log.events()[to].launch.at.saturating_sub(events[0].launch.at);
    let (from, to) = (events[0].before, log.events()[to].before);
    let kept = || {
        events.iter().filter(|event| event.original == event.launch.name && event.launch.kind != Kind::Copy)
    };
    let (launches, is_whole): (Vec<(u32, Launch)>, bool) = match log.recent(from, to) {
        Some(recent) => ((0..).zip(recent.copied()).collect(), true),
        None => (kept().map(|event| (event.before.since(from).count, event.launch)).collect(), false),
    };
    let trains = trains(log, candidate).filter(|_| is_whole);
    let mut members: Vec<Member> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    for (offset, launch) in launches {
        let place = *places.entry(launch.name).or_insert(members.len());
        match members.get_mut(place) {
            Some(member) => member.count += 1,
            None => members.push(Member { launch, count: 1, offset }),
        }
    }
    Period {
        launches: candidate.sums.count,
        names: candidate.sums.names,
        seen: candidate.segments.len(),
        took,
        before: (!log.is_cut()).then(|| log.events()[candidate.segments[0].0].before.count),
        members,
        trains,
    }
}

#[cfg(test)]
mod tests;
