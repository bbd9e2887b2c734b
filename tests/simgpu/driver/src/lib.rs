//! The stand-in `libcuda.so.1`: so much of the CUDA driver's C interface as a program, or the runtime, asks for by name.
//!
//! The real runtime stands on the driver. Here it is the other way round: the timeline is alive in `libcudart`, and what
//! is launched through the driver goes there by the siblings' private way.

#![allow(non_snake_case, reason = "the names are CUDA's")]

mod ask;
mod call;
mod device;
mod launch;
mod module;
mod work;
