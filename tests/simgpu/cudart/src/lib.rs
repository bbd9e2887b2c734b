//! The stand-in `libcudart.so.13`: the CUDA runtime's C interface over the pretended timeline.
//!
//! It knows nothing of who may be watching. Programs reach it by the dynamic linker, and so does anybody who
//! interposes. Each file holds one group of calls; [`gpu`] holds what they act on and [`call`] the one way in.
//!
//! Differences from the real thing: the legacy stream does not synchronise with others, streams do not slow
//! each other down, memory is only addresses (nothing is copied), and no kernel runs.

#![allow(non_snake_case, reason = "the names are CUDA's")]

mod call;
mod capture;
mod core_dump;
mod device;
mod driver;
mod error;
mod event;
mod gpu;
mod graph;
mod kernel;
mod launch;
mod memory;
mod private;
mod stream;
