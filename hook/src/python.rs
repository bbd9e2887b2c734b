//! What the hook reads of Python: the steps of PyTorch's optimizers, and functions during a capture.

pub(crate) mod functions;
pub(crate) mod optimizer;
