//! The stand-in `libcublas.so.13`: handles and GEMMs that take the time their FLOPs say.
//!
//! Nothing is computed. Launches go to the timeline by its private interface, as the real library's go through
//! the driver: an observer of the CUDA runtime does not see them.

#![allow(non_snake_case, reason = "the names are cuBLAS's")]

mod call;
mod gemm;
mod handle;
mod multiply;
