//! The state of jobs, folded from frames.
//!
//! [`job`] folds frames into the present state, [`status`] turns that state into a document. [`finding`]
//! finds the problems of a job, [`divergence`] the first difference between the NCCL calls of a hung job's
//! ranks. [`ras`] compares the answers of NCCL's RAS service with xpu-top's own data. [`stack`] merges the
//! stacks of many ranks into one tree. [`baseline`] describes the normal state of an earlier run. [`what_if`]
//! writes what stragglers have cost a job. [`hosts`] parses host lists.
//!
//! Nothing here reads a clock or the network: time comes in as an argument.

pub mod baseline;
pub mod change_point;
pub mod divergence;
pub mod duration;
pub mod expected;
pub mod figure;
pub mod finding;
pub mod hangs;
pub mod hosts;
pub mod job;
pub mod peak;
mod phrase;
pub mod ras;
pub mod stack;
pub mod status;
pub mod step_times;
pub mod what_if;
