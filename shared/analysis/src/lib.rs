//! Captures: every operation of a few steps on all ranks, summed up and compared.

pub mod capture;
