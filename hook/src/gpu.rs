//! What the hook measures on the GPU: durations, completed work, and what streams wait for.

pub(crate) mod completion;
pub(crate) mod event;
pub(crate) mod exposure;
pub(crate) mod gpus;
pub(crate) mod graphs;
pub(crate) mod proof;
pub(crate) mod queued;
pub(crate) mod runtime;
pub(crate) mod streams;
pub(crate) mod timer;
