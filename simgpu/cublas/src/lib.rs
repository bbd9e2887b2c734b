//! The stand-in `libcublas.so.13`: handles, and products that take as long as their FLOPs require.
//!
//! Nothing is computed. Launches reach the timeline through a private interface, as those of the real library
//! go through the driver, so an observer of the CUDA runtime does not see them.

#![allow(non_snake_case, reason = "the names are cuBLAS's")]

mod gemm;
mod handle;
mod multiply;
mod products;
