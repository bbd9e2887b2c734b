//! One event of a timeline, as all formats have it.

use serde_json::{Map, Value};

#[derive(Debug)]
pub struct Slice {
    /// Time by the clock of the first host.
    pub begin: u64,
    pub end: u64,
    pub name: String,
    pub category: &'static str,
    pub details: Map<String, Value>,
    /// Equal for operations that all ranks of a communicator did together.
    pub flow: Option<Flow>,
}

#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub id: u64,
    pub part: Part,
}

/// The position of a slice among those that belong together, by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    First,
    Between,
    Last,
}
