//! The stand-in `libnvidia-ml.so.1`: the health of the simulated machine's GPUs, observed from outside.
//!
//! The clock, the memory and the utilisation of a GPU come from the process that uses it. Power and
//! temperature are computed from those.

#![allow(non_snake_case, reason = "the names are NVML's")]

mod activity;
mod call;
mod event;
mod fault;
mod health;
mod inventory;
mod machine;
mod monitor;
