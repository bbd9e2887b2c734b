//! What to add to the clock of each rank's host, if no collective is of all ranks: the ends of shared
//! collectives align the clocks, and the ends of messages those between stages without one.

use std::collections::BTreeMap;

use xpu_wire::id::{HostName, Rank};

use super::{
    launches::LaunchIndex,
    link::{Ends, Link},
    stages::Stages,
    track::Whole,
};
use crate::capture::{Capture, Clocks, offsets_of};

/// Stage by stage, in nanoseconds. `None` if a host is left over.
pub(super) fn offsets<'a>(
    capture: &Capture,
    stages: &Stages,
    steps: impl Iterator<Item = &'a Whole<'a>>,
    links: &[Link],
) -> Option<Vec<Vec<i64>>> {
    let clocks = Clocks::of(capture);
    let host = |rank: &Rank| &capture.ranks[rank].host;
    let mut known: BTreeMap<HostName, i64> =
        clocks.offsets().map(|(host, offset)| (host.clone(), offset)).collect();
    if capture.ranks.keys().any(|rank| !known.contains_key(host(rank))) {
        // Ends that are already aligned are as good as the ends of one collective.
        let aligned: BTreeMap<&HostName, i64> =
            known.iter().map(|(host, offset)| (host, offset.saturating_neg())).collect();
        let mut matched = vec![aligned];
        for step in steps {
            for link in links.iter().filter(|link| matches!(link.ends, Ends::Message { .. })) {
                matched.extend((0..stages.replicas()).map(|replica| {
                    let end = |of: &LaunchIndex| {
                        let rank = &stages.ranks[of.stage][replica];
                        Some((host(rank), step.launch(*rank, of.at)?.on_gpu()?.1.0 as i64))
                    };
                    link.members.iter().filter_map(end).collect()
                }));
            }
        }
        known = offsets_of(&matched);
    }
    let of = |rank: &Rank| known.get(host(rank)).copied();
    stages.ranks.iter().map(|ranks| ranks.iter().map(of).collect()).collect()
}
