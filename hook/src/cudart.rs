//! The CUDA runtime, a module for each kind of call.

pub mod capture;
pub mod copy;
pub mod event;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod stream;
pub mod wait;
