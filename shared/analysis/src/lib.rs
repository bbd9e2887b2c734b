//! Captures: every operation of a few steps on all ranks, summarised, compared, simulated without stragglers,
//! and exported. Also the conclusions of a qualification of GPUs.

pub mod behaviour;
pub mod capture;
pub mod export;
pub mod file;
pub mod flame;
pub mod qualify;
pub mod render;
pub mod what_if;
