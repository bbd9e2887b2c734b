//! Captures: every operation of a few steps on all ranks, summed up, compared, and simulated without stragglers.

pub mod capture;
pub mod what_if;
