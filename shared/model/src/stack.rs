//! The stacks of all ranks as one tree, which shows where they agree and where one differs.
//!
//! Pure. A root is a role that threads have on every rank (the main thread first). Below it are frames,
//! outermost first. Every node has the ranks that are in it and those that are not. If ranks differ, the
//! branch with the fewest ranks comes first.

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

/// The merged stacks of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// All ranks of the tree, including those that could not be read.
    pub ranks: Ranks,
    pub roots: Vec<Node>,
}

/// A role or a frame, with its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    #[serde(flatten)]
    pub word: Word,
    pub here: Ranks,
    pub missing: Ranks,
    /// Ranks with a thread that ends here.
    pub ends: Ranks,
    /// Number of threads here, of all ranks.
    pub threads: usize,
    pub children: Vec<Node>,
}
