//! The CUDA runtime, with a module for each kind of call.

pub mod copy;
pub mod event;
pub mod graph;
pub mod graph_capture;
pub mod launch;
pub mod memory;
pub mod stream;
pub mod wait;
