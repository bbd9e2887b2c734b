//! What the hook notes about each call, in the calling thread.

pub(crate) mod activity;
pub(crate) mod allocations;
pub(crate) mod call_site;
pub(crate) mod communicator;
pub(crate) mod gemm;
pub(crate) mod group;
pub(crate) mod kernels;
pub(crate) mod lane;
pub(crate) mod launches;
pub(crate) mod observer;
pub(crate) mod physical;
pub(crate) mod record;
pub(crate) mod ring;
#[cfg(test)]
mod ring_tests;
pub(crate) mod shapes;
pub(crate) mod spans;
pub(crate) mod steps;
pub(crate) mod sync;
pub(crate) mod work;
