//! What the hook asks of the GPU: timings, what is done, what streams wait for.

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
