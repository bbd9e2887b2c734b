//! Ranks in words.

use xpu_wire::id::Rank;

use crate::figure;

/// Number of ranges that are named; the rest is only counted.
const RANGES: usize = 6;

/// `rank 5`, `ranks 0-3, 7`
pub(crate) fn ranks(ranks: &[Rank]) -> String {
    let mut ranges: Vec<(Rank, Rank)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if rank.follows(*last) => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let shown = ranges.iter().take(RANGES).map(|&(first, last)| match last.0 - first.0 {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    });
    let text = shown.collect::<Vec<_>>().join(", ");
    let more: u32 = ranges.iter().skip(RANGES).map(|(first, last)| last.0 - first.0 + 1).sum();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {text}{more}", if ranks.len() == 1 { "rank" } else { "ranks" })
}

/// `8 ranks`, `1 rank`
pub(crate) fn counted(ranks: usize) -> String {
    figure::counted(ranks, "rank", "ranks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_shown_in_ranges() {
        let of_numbers =
            |numbers: &[u32]| ranks(&numbers.iter().map(|&number| Rank(number)).collect::<Vec<_>>());
        assert_eq!(of_numbers(&[5]), "rank 5");
        assert_eq!(of_numbers(&[0, 1, 2, 3, 7]), "ranks 0-3, 7");
        assert_eq!(of_numbers(&[0, 2, 4, 6, 8, 10, 12, 13]), "ranks 0, 2, 4, 6, 8, 10 and 2 more");
    }
}
