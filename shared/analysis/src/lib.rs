//! Captures: every operation of a few steps on all ranks, summarised, compared, and simulated without
//! stragglers.

pub mod capture;
pub mod what_if;
