//! Matches the program's streams with CUPTI's.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use xpu_wire::frame::CapturedLabel;

use super::{Kept, Span};

/// Largest difference between the times of CUDA events and of CUPTI, nanoseconds: on H200s up to 16 us.
const APART: i64 = 20_000;

/// Least overlap of a timed operation with its kernel, in thousandths.
const ALIKE: u64 = 500;

/// Overlap that leaves no doubt, in thousandths.
const SURELY: u64 = 900;

/// The begin and the end of some work.
pub(super) type Time = (i64, i64);

/// Matches CUPTI's stream numbers with the streams that the hook knows. A timed operation ran on the stream
/// that was busy during most of the operation's time and at few other times. A CUDA call cannot safely report
/// a stream's number, because the stream may no longer exist.
pub(super) fn streams(
    labels: &HashMap<CapturedLabel, u32>,
    operations: &[Kept],
    works: impl Iterator<Item = (Time, u32)>,
) -> HashMap<u32, usize> {
    let mut works: Vec<_> = works.collect();
    works.sort_unstable();
    let places = |is: fn(&CapturedLabel) -> bool| -> HashSet<u32> {
        labels.iter().filter(|(label, _)| is(label)).map(|(_, &place)| place).collect()
    };
    // Copies have no records, and a graph has many.
    let copies = places(|label| matches!(label, CapturedLabel::Copy { .. } | CapturedLabel::Set { .. }));
    let graphs = places(|label| matches!(label, CapturedLabel::Graph(_)));
    let timed = || {
        operations.iter().filter(|kept| !copies.contains(&kept.label)).filter_map(|kept| match kept.span {
            Span::Gpu { stream, begin, took } => {
                Some((stream, (begin, begin + took as i64), graphs.contains(&kept.label)))
            }
            _ => None,
        })
    };
    let singles = timed().filter(|&(.., is_graph)| !is_graph);
    let off = offset(singles.map(|(_, time, _)| time), &works);
    let mut votes: HashMap<(usize, u32), u64> = HashMap::new();
    for (stream, (begin, end), is_graph) in timed() {
        let time = (begin + off, end + off);
        let vote = if is_graph { most_of(time, &works) } else { most_like(time, &works) };
        if let Some((likeness, theirs)) = vote.filter(|&(likeness, _)| likeness > ALIKE) {
            *votes.entry((stream, theirs)).or_default() += likeness;
        }
    }
    let mut votes: Vec<_> = votes.into_iter().collect();
    votes.sort_unstable_by_key(|&(pair, votes)| Reverse((votes, pair)));
    let mut found: HashMap<u32, usize> = HashMap::new();
    for ((stream, theirs), _) in votes {
        // A stream has one number.
        if found.values().all(|&one| one != stream) {
            found.entry(theirs).or_insert(stream);
        }
    }
    found
}

/// The offset from an event's time to CUPTI's, derived from certain matches.
fn offset(timed: impl Iterator<Item = Time>, works: &[(Time, u32)]) -> i64 {
    let apart = timed.filter_map(|time| {
        let near = near(time, works).map(|&(work, _)| (likeness(time, work), work));
        let (_, work) = near.max().filter(|&(likeness, _)| likeness > SURELY)?;
        Some((work.0 - time.0).midpoint(work.1 - time.1))
    });
    let mut apart: Vec<_> = apart.collect();
    apart.sort_unstable();
    apart.get(apart.len() / 2).copied().unwrap_or(0)
}

/// Work that may have run at that time.
fn near(time: Time, works: &[(Time, u32)]) -> impl Iterator<Item = &(Time, u32)> {
    let first = works.partition_point(|&((begin, _), _)| begin < time.0 - APART);
    works[first..].iter().take_while(move |&&((begin, _), _)| begin < time.1)
}

fn most_like(time: Time, works: &[(Time, u32)]) -> Option<(u64, u32)> {
    near(time, works).map(|&(work, theirs)| (likeness(time, work), theirs)).max()
}

/// The stream that was busy during most of this time, and how long.
fn most_of(time: Time, works: &[(Time, u32)]) -> Option<(u64, u32)> {
    let mut busy: HashMap<u32, i64> = HashMap::new();
    for &(work, theirs) in near(time, works) {
        *busy.entry(theirs).or_default() += (work.1.min(time.1) - work.0.max(time.0)).max(0);
    }
    let (busy, theirs) = busy.into_iter().map(|(theirs, busy)| (busy, theirs)).max()?;
    Some((busy.saturating_mul(1_000).checked_div(time.1 - time.0)? as u64, theirs))
}

/// Intersection over union of the two times, in thousandths.
fn likeness(one: Time, other: Time) -> u64 {
    let both = one.1.min(other.1) - one.0.max(other.0);
    let either = one.1.max(other.1) - one.0.min(other.0);
    both.max(0).saturating_mul(1_000).checked_div(either).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::Direction;

    use super::*;

    #[test]
    fn streams_are_matched_by_overlap_with_timed_operations() {
        let labels = [
            CapturedLabel::Kernel("k".to_owned()),
            CapturedLabel::Copy { direction: Direction::HostToDevice, bytes: 1 },
            CapturedLabel::Graph(100),
        ];
        let labels = labels.into_iter().zip(0..).collect();
        let work = |begin, took, stream| ((begin, begin + took), stream);
        let timed = |label, begin, took, stream| {
            let span = Span::Gpu { stream, begin, took };
            Kept { at: 0, label, thread: 0, sequence: None, span }
        };
        let (kernel, copy, graph) = (0, 1, 2);
        let (compute, nccl, copies, graphs, short) = (0xa0, 0xb0, 0xc0, 0xd0, 0xe0);
        let operations = [
            // GEMMs within which NCCL runs.
            timed(kernel, 50_000, 900_000, compute),
            timed(kernel, 100_000, 500_000, nccl),
            timed(kernel, 1_050_000, 900_000, compute),
            timed(kernel, 1_200_000, 500_000, nccl),
            timed(kernel, 2_000_000, 5_000, short),
            // A copy, during a kernel of a stream on which nothing is timed.
            timed(copy, 5_000_000, 100_000, copies),
            timed(graph, 6_000_000, 100_000, graphs),
        ];
        // CUPTI's clock is 13 us behind.
        let works = [
            work(37_000, 900_000, 7),
            work(87_000, 500_000, 13),
            work(1_037_000, 900_000, 7),
            work(1_187_000, 500_000, 13),
            work(1_987_000, 5_000, 14),
            work(1_993_000, 5_000, 7),
            work(4_987_000, 100_000, 20),
            work(5_988_000, 30_000, 21),
            work(6_020_000, 20_000, 7),
            work(6_042_000, 30_000, 21),
        ];
        let wanted = HashMap::from([(7, compute), (13, nccl), (14, short), (21, graphs)]);
        assert_eq!(streams(&labels, &operations, works.into_iter()), wanted);
    }
}
