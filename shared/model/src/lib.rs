//! What frames add up to.
//!
//! [`job`] folds frames into what is known now, [`status`] is that as a document, [`finding`] what is wrong with it, [`divergence`]
//! where the NCCL calls of a hung job's ranks part. [`stack`] merges the stacks of many ranks into one tree. [`baseline`] is what was
//! normal in an earlier run. [`hosts`] reads which hosts there are.
//!
//! Nothing here reads a clock or the network: time comes in as an argument.

pub mod baseline;
pub mod change_point;
pub mod divergence;
pub mod expected;
pub mod figure;
pub mod finding;
pub mod hangs;
pub mod hosts;
pub mod job;
pub mod peak;
pub mod stack;
pub mod status;
