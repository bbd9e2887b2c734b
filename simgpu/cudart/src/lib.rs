//! The stand-in `libcudart.so.13`: the CUDA runtime's C interface over the simulated timeline.
//!
//! Programs and interposers reach the library through the dynamic linker; nothing in it depends on an
//! observer. Each file has one group of calls. [`gpu`] has the objects that they work on, and [`call`] the
//! entry of every call.
//!
//! `simgpu/timeline` builds the same sources with `cfg(private)`: the calls are then reached only by the
//! siblings' private interface ([`private`]), like those of a runtime that is linked statically.
//!
//! Differences from CUDA: the legacy stream does not synchronise with others, streams do not slow each other
//! down, memory is only addresses (nothing is copied), and no kernel runs.

#![allow(non_snake_case, reason = "the names are CUDA's")]
#![cfg_attr(private, allow(dead_code, reason = "only the calls that the driver makes are used"))]

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
