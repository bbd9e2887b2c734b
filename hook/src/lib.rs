//! Monitors one training process from inside, preloaded before CUDA, cuBLAS and NCCL.
//!
//! ```text
//! cublasGemmEx ─┐  interpose!   lane (one per thread)      thread "xpu-top"              collector
//! ncclAllReduce ┼─ Entered ───▶ ring, timers, counters ───▶ poll, fold ──── Summary ────▶
//! step()        ┘                       └────▶ ledger page (shared memory) ─────────────▶ read even when hung
//! ```
//!
//! It runs inside a user's job, and promises: it never blocks, prints, exits, unwinds, or changes a result or
//! `errno`. Without symbols, collector or memory, training goes on and the hook counts why it is blind.
//! Nothing exists before the first intercepted call. A forked child forgets what it inherited and starts
//! clean at its own first call. A panic in the observer is caught, counted, and turns observing off.

#![allow(non_snake_case, reason = "the interposed functions carry the names of the libraries")]

pub mod abi;
mod activity;
pub mod addresses;
mod allocations;
mod bell;
mod budget;
mod call_site;
mod capture;
mod clock;
mod communicator;
mod completion;
pub mod cublas;
pub mod cublaslt;
pub mod cudart;
pub mod cupti;
pub mod driver;
mod event;
pub mod exit_note;
mod exposure;
mod fold;
mod functions;
mod gemm;
mod governor;
mod gpus;
mod graphs;
mod group;
mod guard;
mod identity;
mod interpose;
mod kernels;
mod lane;
mod launches;
mod line;
mod memory;
pub mod nccl;
mod observer;
mod optimizer;
mod peek;
pub mod plugin;
mod proof;
mod publisher;
mod queued;
mod rate;
mod record;
mod ring;
#[cfg(test)]
mod ring_tests;
mod runtime;
mod shapes;
mod single;
mod spans;
mod steps;
mod streams;
mod switch;
pub mod symbol;
mod sync;
mod system;
mod thread;
pub mod thread_sanitizer;
mod timer;
mod unwinder;
mod work;
