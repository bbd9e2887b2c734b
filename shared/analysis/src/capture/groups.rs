//! The position of a rank among tensor, context, data and pipeline parallel groups: `tp4-cp2-dp4-pp2`. The
//! first axis varies fastest, as in Megatron.

use std::str::FromStr;

use xpu_wire::id::Rank;

/// The axes, and the number of ranks along each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups(Vec<(String, u32)>);

/// Ranks of these coordinates: `tp=0,pp=1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only(Vec<(String, u32)>);

impl FromStr for Groups {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut axes: Vec<(String, u32)> = Vec::new();
        for item in text.split('-') {
            let end = item.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(item.len());
            let (name, number) = item.split_at(end);
            let size = number.parse().ok().filter(|&size: &u32| size > 0 && !name.is_empty());
            let size =
                size.ok_or_else(|| format!("`{item}`: write axes and their sizes like tp4-cp2-dp4-pp2"))?;
            if axes.iter().any(|(known, _)| known == name) {
                return Err(format!("`{name}` is given twice"));
            }
            axes.push((name.to_owned(), size));
        }
        Ok(Self(axes))
    }
}

impl FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |item: &str| {
            let (name, at) = item.split_once('=')?;
            Some((name.to_owned(), at.parse().ok()?))
        };
        let all: Option<Vec<_>> = text.split(',').map(one).collect();
        all.map(Self).ok_or_else(|| "write coordinates like tp=0,pp=1".to_owned())
    }
}

impl Groups {
    pub fn world_size(&self) -> u64 {
        self.0.iter().fold(1, |all: u64, &(_, size)| all.saturating_mul(size.into()))
    }

    pub fn axes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// A rank's coordinate along each axis.
    pub fn coordinates(&self, rank: Rank) -> Vec<u32> {
        let mut left = rank.process().0;
        let mut along = |size: u32| {
            let at = left % size;
            left /= size;
            at
        };
        self.0.iter().map(|&(_, size)| along(size)).collect()
    }

    /// The group of a rank along an axis: its coordinates along all other axes with several coordinates.
    pub fn beside(&self, axis: &str, rank: Rank) -> String {
        let places = self.0.iter().zip(self.coordinates(rank));
        let others = places.filter(|((name, size), _)| name != axis && *size > 1);
        others.map(|((name, _), at)| format!("{name}{at}")).collect::<Vec<_>>().join(" ")
    }

    /// A rank's coordinates along every axis with several coordinates: `tp1 pp0`.
    pub fn place(&self, rank: Rank) -> String {
        let places = self.0.iter().zip(self.coordinates(rank)).filter(|((_, size), _)| *size > 1);
        places.map(|((name, _), at)| format!("{name}{at}")).collect::<Vec<_>>().join(" ")
    }

    /// The axes with several coordinates.
    pub fn wide(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, size)| *size > 1).map(|(name, _)| name.as_str())
    }

    /// Whether the filter's axes and coordinates exist.
    pub fn check(&self, only: &Only) -> Result<(), String> {
        for (name, at) in &only.0 {
            let Some((_, size)) = self.0.iter().find(|(known, _)| known == name) else {
                let known: Vec<_> = self.axes().collect();
                return Err(format!("--only {name}={at}: --groups has {}", known.join(", ")));
            };
            if at >= size {
                return Err(format!("--only {name}={at}: {name} goes from 0 to {}", size - 1));
            }
        }
        Ok(())
    }

    pub fn takes(&self, only: &Only, rank: Rank) -> bool {
        let place = self.coordinates(rank);
        only.0.iter().all(|(name, at)| self.axes().zip(&place).any(|(axis, its)| axis == name && its == at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_axis_is_the_fastest() {
        let groups: Groups = "tp4-cp2-dp4-pp2".parse().expect("it is well formed");
        assert_eq!(groups.world_size(), 64);
        assert_eq!(groups.coordinates(Rank(0)), [0, 0, 0, 0]);
        assert_eq!(groups.coordinates(Rank(5)), [1, 1, 0, 0]);
        assert_eq!(groups.coordinates(Rank(63)), [3, 1, 3, 1]);
        assert_eq!(
            (groups.beside("tp", Rank(37)), groups.beside("dp", Rank(37))),
            ("cp1 dp0 pp1".into(), "tp1 cp1 pp1".into())
        );
        let only: Only = "tp=1,pp=1".parse().expect("it is well formed");
        assert_eq!(groups.check(&only), Ok(()));
        let taken: Vec<_> = (0..64).filter(|&rank| groups.takes(&only, Rank(rank))).collect();
        assert_eq!(taken, [33, 37, 41, 45, 49, 53, 57, 61]);
    }

    #[test]
    fn an_invalid_grouping_is_reported() {
        for text in ["", "tp", "tp0", "4", "tp4-", "tp4-tp2", "TP4", "tp4,dp2", "tp99999999999"] {
            assert!(text.parse::<Groups>().is_err(), "{text}");
        }
        for text in ["", "tp", "tp=", "tp=x", "tp=-1"] {
            assert!(text.parse::<Only>().is_err(), "{text}");
        }
        let groups: Groups = "tp4-dp2".parse().expect("it is well formed");
        for text in ["tp=4", "pp=0"] {
            assert!(groups.check(&text.parse().expect("it is well formed")).is_err(), "{text}");
        }
    }
}
