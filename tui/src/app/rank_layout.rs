//! The places on a heatmap: hosts in the order of their lowest ranks, and on each its ranks.
//!
//! Ranks below the world size that were not seen keep their places, so that a hole is visible.

use std::{collections::HashMap, ops::Range};

use xpu_wire::id::{HostName, Rank};

use super::Row;
use crate::widget::grid::Shape;

/// One place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankSlot {
    /// A rank that was seen, by its index among the rows of the job view.
    Seen(usize),
    Unseen(Rank),
}

#[derive(Debug, Default)]
pub struct RankLayout {
    /// The groups, in the order of their first ranks.
    groups: Vec<Group>,
    size: usize,
}

#[derive(Debug)]
struct Group {
    /// Its place among the groups of the map.
    at: usize,
    of: Of,
}

#[derive(Debug)]
enum Of {
    /// Rows of the job view.
    Host(HostName, Vec<usize>),
    /// Unseen ranks, whose hosts are unknown. They are divided into groups of a host's likely size.
    Hole(Range<u32>),
}

impl RankLayout {
    /// The places of rows, which are in the order of their ranks.
    pub fn of(rows: &[Row], world_size: u32) -> Self {
        let mut all: Vec<Of> = Vec::new();
        let mut known: HashMap<&HostName, usize> = HashMap::new();
        let mut next = 0;
        for (index, row) in rows.iter().enumerate() {
            let rank = row.status.rank.process().0;
            all.extend((next < rank).then_some(Of::Hole(next..rank)));
            next = rank + 1;
            let place = *known.entry(&row.status.host).or_insert_with(|| {
                all.push(Of::Host(row.status.host.clone(), Vec::new()));
                all.len() - 1
            });
            if let Of::Host(_, rows) = &mut all[place] {
                rows.push(index);
            }
        }
        all.extend((next < world_size).then_some(Of::Hole(next..world_size)));
        let largest = |seen: bool| {
            all.iter()
                .filter(|of| matches!(of, Of::Host(..)) == seen)
                .map(Of::len)
                .max()
                .filter(|&len| len > 0)
        };
        let size = largest(true).or_else(|| largest(false)).unwrap_or(1);
        let mut at = 0;
        let place = |of: Of| {
            let group = Group { at, of };
            at += group.of.len().div_ceil(size);
            group
        };
        Self { groups: all.into_iter().map(place).collect(), size }
    }

    pub fn shape(&self) -> Shape {
        let groups = self.groups.last().map_or(0, |last| last.at + last.of.len().div_ceil(self.size));
        Shape { groups, size: self.size.max(1) }
    }

    pub fn at(&self, slot: usize) -> Option<RankSlot> {
        let (group, place) = self.group(slot)?;
        match &group.of {
            Of::Host(_, rows) => rows.get(place).copied().map(RankSlot::Seen),
            Of::Hole(ranks) => ranks.clone().nth(place).map(|rank| RankSlot::Unseen(Rank(rank))),
        }
    }

    /// The group to which a slot belongs, and the slot's place in it.
    fn group(&self, slot: usize) -> Option<(&Group, usize)> {
        let after = self.groups.partition_point(|group| group.at * self.size <= slot);
        let group = self.groups.get(after.checked_sub(1)?)?;
        Some((group, slot - group.at * self.size))
    }

    /// The slot of a row.
    pub fn slot_of(&self, row: usize) -> Option<usize> {
        self.groups.iter().find_map(|group| {
            let Of::Host(_, rows) = &group.of else { return None };
            Some(group.at * self.size + rows.iter().position(|&seat| seat == row)?)
        })
    }

    /// The host to which a slot belongs.
    pub fn host(&self, slot: usize) -> Option<&HostName> {
        match self.group(slot)? {
            (Group { of: Of::Host(host, _), .. }, place) => (place < self.size).then_some(host),
            _ => None,
        }
    }
}

impl Of {
    fn len(&self) -> usize {
        match self {
            Self::Host(_, rows) => rows.len(),
            Self::Hole(ranks) => ranks.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::job_view::tests::row;

    #[test]
    fn a_silent_host_leaves_a_gap_of_its_size() {
        let rows: Vec<_> = (0..4).chain(8..12).map(|rank| row(rank, &format!("gpu-{}", rank / 4))).collect();
        let rows = RankLayout::of(&rows, 16);
        assert_eq!(rows.shape(), Shape { groups: 4, size: 4 });
        assert_eq!((rows.at(4), rows.host(4)), (Some(RankSlot::Unseen(Rank(4))), None));
        assert_eq!((rows.at(8), rows.slot_of(4)), (Some(RankSlot::Seen(4)), Some(8)));
        assert_eq!(rows.at(15), Some(RankSlot::Unseen(Rank(15))));
    }

    #[test]
    fn ranks_dealt_out_in_turn_still_sit_with_their_hosts() {
        let rows: Vec<_> = (0..6).map(|rank| row(rank, if rank % 2 == 0 { "a" } else { "b" })).collect();
        let rows = RankLayout::of(&rows, 6);
        assert_eq!(rows.shape(), Shape { groups: 2, size: 3 });
        assert_eq!((rows.at(1), rows.at(3)), (Some(RankSlot::Seen(2)), Some(RankSlot::Seen(1))));
    }

    #[test]
    fn a_false_world_size_takes_no_memory() {
        let rows = RankLayout::of(&[row(5, "a"), row(Rank::WORLD - 9, "b")], Rank::WORLD);
        assert_eq!((rows.groups.len(), rows.size), (5, 1));
        assert_eq!(rows.at(4), Some(RankSlot::Unseen(Rank(4))));
        let far = Rank::WORLD as usize - 9;
        assert_eq!((rows.at(far), rows.slot_of(1)), (Some(RankSlot::Seen(1)), Some(far)));
        assert_eq!((rows.host(far).map(HostName::as_str), rows.at(far + 9)), (Some("b"), None));
        assert_eq!(rows.shape().groups, Rank::WORLD as usize);
    }
}
