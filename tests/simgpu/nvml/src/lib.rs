//! The stand-in `libnvidia-ml.so.1`: the health of the pretended machine's GPUs, for whoever looks from outside.
//!
//! Clock, memory and how busy a GPU is come from the process that works on it. Power and temperature follow from those.

#![allow(non_snake_case, reason = "the names are NVML's")]

mod call;
mod event;
mod fault;
mod health;
mod inventory;
mod machine;
mod monitor;
