//! Who sits where on a heatmap: hosts in the order of their lowest ranks, and on each its ranks.
//!
//! Ranks that the world size promises and nobody has seen keep their places: a hole is not left out.

use std::collections::HashMap;

use xpu_shared::id::{HostName, Rank};

use super::Row;
use crate::widget::grid::Shape;

/// One place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// By its index among the rows of the survey.
    Seen(usize),
    Unseen(Rank),
}

#[derive(Debug, Default)]
pub struct Seats {
    groups: Vec<Group>,
    size: usize,
}

#[derive(Debug)]
struct Group {
    /// `None`: nobody has seen these ranks, so nobody knows their host.
    host: Option<HostName>,
    seats: Vec<Seat>,
}

impl Seats {
    /// From rows in the order of their ranks.
    pub fn of(rows: &[Row], world_size: u32) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<&HostName, usize> = HashMap::new();
        let mut next = 0;
        for (index, row) in rows.iter().enumerate() {
            let rank = row.status.rank.0;
            groups.extend(hole(next..rank));
            next = rank + 1;
            let place = *known.entry(&row.status.host).or_insert_with(|| {
                groups.push(Group { host: Some(row.status.host.clone()), seats: Vec::new() });
                groups.len() - 1
            });
            groups[place].seats.push(Seat::Seen(index));
        }
        groups.extend(hole(next..world_size));
        let largest = |seen: bool| {
            let of_kind = groups.iter().filter(|group| group.host.is_some() == seen);
            of_kind.map(|group| group.seats.len()).max()
        };
        // A hole is cut into pieces as large as a host, as it most likely is.
        let size = largest(true).or_else(|| largest(false)).unwrap_or(0).max(1);
        let groups = groups.into_iter().flat_map(|group| group.cut(size)).collect();
        Self { groups, size }
    }

    pub fn shape(&self) -> Shape {
        Shape { groups: self.groups.len(), size: self.size.max(1) }
    }

    pub fn at(&self, slot: usize) -> Option<Seat> {
        let group = self.groups.get(slot / self.size.max(1))?;
        group.seats.get(slot % self.size.max(1)).copied()
    }

    /// The slot of a row.
    pub fn slot_of(&self, row: usize) -> Option<usize> {
        self.groups.iter().enumerate().find_map(|(index, group)| {
            let position = group.seats.iter().position(|seat| *seat == Seat::Seen(row))?;
            Some(index * self.size + position)
        })
    }

    /// The host a slot belongs to.
    pub fn host(&self, slot: usize) -> Option<&HostName> {
        self.groups.get(slot / self.size.max(1))?.host.as_ref()
    }
}

impl Group {
    fn cut(self, size: usize) -> Vec<Self> {
        if self.host.is_some() {
            return vec![self];
        }
        self.seats.chunks(size).map(|seats| Self { host: None, seats: seats.to_vec() }).collect()
    }
}

fn hole(ranks: std::ops::Range<u32>) -> Option<Group> {
    let seats: Vec<_> = ranks.map(|rank| Seat::Unseen(Rank(rank))).collect();
    (!seats.is_empty()).then_some(Group { host: None, seats })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::survey::tests::row;

    #[test]
    fn a_host_that_never_spoke_leaves_a_hole_of_its_size() {
        let rows: Vec<_> = (0..4).chain(8..12).map(|rank| row(rank, &format!("gpu-{}", rank / 4))).collect();
        let seats = Seats::of(&rows, 16);
        assert_eq!(seats.shape(), Shape { groups: 4, size: 4 });
        assert_eq!((seats.at(4), seats.host(4)), (Some(Seat::Unseen(Rank(4))), None));
        assert_eq!((seats.at(8), seats.slot_of(4)), (Some(Seat::Seen(4)), Some(8)));
        assert_eq!(seats.at(15), Some(Seat::Unseen(Rank(15))));
    }

    #[test]
    fn ranks_dealt_out_in_turn_still_sit_with_their_hosts() {
        let rows: Vec<_> = (0..6).map(|rank| row(rank, if rank % 2 == 0 { "a" } else { "b" })).collect();
        let seats = Seats::of(&rows, 6);
        assert_eq!(seats.shape(), Shape { groups: 2, size: 3 });
        assert_eq!((seats.at(1), seats.at(3)), (Some(Seat::Seen(2)), Some(Seat::Seen(1))));
    }
}
