//! The stand-in `libcublasLt.so.13`: descriptors that keep their attributes, and GEMMs.
//!
//! Nothing is computed. The stand-in `libcublas` describes how launches reach the timeline.

#![allow(non_snake_case, reason = "the names are cublasLt's")]

mod attributes;
mod descriptors;
mod heuristic;
mod layouts;
mod matmul;
mod put;
