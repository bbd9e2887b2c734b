//! The stand-in `libcuda.so.1`: the part of the CUDA driver's C interface that programs, or the runtime, look
//! up.
//!
//! The real runtime is built on the driver. Here the timeline is in `libcudart`, and launches through the
//! driver reach it by the siblings' private interface.

#![allow(non_snake_case, reason = "the names are CUDA's")]

mod call;
mod context;
mod device;
mod graph;
mod launch;
mod lookup;
mod memory;
mod module;
mod work;
