//! Monitors one training process from inside, preloaded before CUDA, cuBLAS and NCCL.
//!
//! ```text
//! cublasGemmEx ─┐  interpose!   lane (one per thread)      thread "xpu-top"              collector
//! ncclAllReduce ┼─ Entered ───▶ ring, timers, counters ───▶ poll, fold ──── Summary ────▶
//! step()        ┘                       └────▶ ledger page (shared memory) ─────────────▶ read even when hung
//! ```
//!
//! The hook runs inside a user's job. It never blocks, prints, exits or unwinds, and never changes a result
//! or `errno`. Without symbols, a collector or memory, training goes on, and the hook counts what it could
//! not observe. The hook creates nothing before the first intercepted call. A forked child forgets what it
//! inherited, and starts again at its own first call. A panic in the observer is caught and counted, and
//! turns observing off.

#![allow(non_snake_case, reason = "the interposed functions carry the names of the libraries")]

pub mod abi;
pub mod capture;
pub mod exit_note;
pub mod gpu;
pub mod interpose;
pub mod observe;
pub mod process;
pub mod publish;
pub mod python;
