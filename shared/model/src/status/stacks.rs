//! Where all ranks are, by their stacks.

use serde::{Deserialize, Serialize};
use xpu_wire::unit::Moment;

use crate::{
    job::Job,
    stack::{self, Tree},
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackStatus {
    /// When the oldest was read, in nanoseconds since 1970.
    pub read_at: Moment,
    pub tree: Tree,
    /// The tree as text, one line for each leaf: `function@path@here|missing;... ranks`.
    pub folded: String,
    /// What could not be read and why, and which processes were stopped for reading.
    pub notes: Vec<String>,
}

impl StackStatus {
    /// `None` without stacks.
    pub fn of(job: &Job) -> Option<Self> {
        let tree = job.merged_stacks()?;
        let folded = stack::folded(&tree);
        Some(Self { read_at: job.stacks_since()?, tree, folded, notes: stack::notes(job.stacks(), []) })
    }
}
