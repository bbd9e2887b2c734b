//! Notes for the reader of the tree: what could not be read, and which processes were stopped for reading.

use std::collections::BTreeMap;

use xpu_wire::{
    frame::{RankStacks, Reading},
    id::Rank,
};

use super::Ranks;

/// Ranks named one by one.
const NAMED: usize = 10;

/// One sentence for each fact, with its ranks. `silent` did not answer.
pub fn notes<'a>(
    stacks: impl IntoIterator<Item = &'a RankStacks>,
    silent: impl IntoIterator<Item = Rank>,
) -> Vec<String> {
    let mut notes: BTreeMap<String, Ranks> = BTreeMap::new();
    let mut note = |text: &str, rank| notes.entry(text.to_owned()).or_default().insert(rank);
    for stacks in stacks {
        stacks.why.iter().for_each(|why| note(why, stacks.rank));
        if let Reading::Held(held) = stacks.reading {
            note(&format!("stopped for {:.0} ms while it was read", held.milliseconds().ceil()), stacks.rank);
        }
        if stacks.more_threads > 0 {
            note("has more threads than are shown", stacks.rank);
        }
    }
    for rank in silent {
        note("no answer: its host does not know this rank, or needs more time (--wait)", rank);
    }
    let mut lines: Vec<_> =
        notes.iter().map(|(text, ranks)| format!("{}: {text}", ranks.named(NAMED))).collect();
    let more = lines.len().saturating_sub(2 * NAMED);
    lines.truncate(2 * NAMED);
    if more > 0 {
        lines.push(format!("and {more} more notes, in --json"));
    }
    lines
}
