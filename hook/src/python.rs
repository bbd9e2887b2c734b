//! What the hook observes in Python: the steps of PyTorch's optimizers, and functions during a capture.

pub(crate) mod functions;
pub(crate) mod optimizer;
