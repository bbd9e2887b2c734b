//! The stacks of all ranks as one tree: where they go together, and where one goes another way.
//!
//! Pure. A root is a role that threads have on every rank (the main thread first), below it are frames, outermost first.
//! Every node knows the ranks that are there and those that are not; where ranks part, the fewest come first.

mod call;
mod folded;
mod merge;
mod notes;
mod ranks;
mod role;
mod text;
mod word;

use serde::{Deserialize, Serialize};

pub use folded::{FoldedLine, folded, lines};
pub use merge::merge;
pub use notes::notes;
pub use ranks::Ranks;
pub use role::MAIN_THREAD;
pub use text::text;
pub use word::{Class, Word};

use xpu_wire::id::Rank;

/// The merged stacks of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// All ranks the tree is of, also those of which nothing could be read.
    pub ranks: Ranks,
    pub roots: Vec<Node>,
}

/// A role or a frame, with all who are in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    #[serde(flatten)]
    pub word: Word,
    pub here: Ranks,
    pub missing: Ranks,
    /// Ranks of which a thread is here and no deeper.
    pub ends: Ranks,
    /// Threads here, of all ranks.
    pub threads: usize,
    pub children: Vec<Node>,
}

impl Tree {
    /// Where the rank's main thread is: its innermost frame of Python, which people wrote; else its innermost.
    pub fn place_of(&self, rank: Rank) -> Option<&Word> {
        let main = |node: &&Node| node.word.name == MAIN_THREAD && node.here.contains(rank);
        let mut node = self.roots.iter().find(main)?;
        let mut place = &node.word;
        while let Some(deeper) = node.children.iter().find(|child| child.here.contains(rank)) {
            node = deeper;
            if deeper.word.is_python() || !place.is_python() {
                place = &deeper.word;
            }
        }
        Some(place)
    }
}
