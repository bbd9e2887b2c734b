//! The pretended GPU under the stand-in CUDA libraries.
//!
//! A stream is a queue of operations whose start and end are *computed* on the machine-wide monotonic clock
//! and never slept through: the timeline runs ahead of the wall clock, and only calls by which a host looks at
//! the GPU (query, synchronize) hold it back until the wall clock has caught up. Durations read through
//! events are therefore exact on a loaded machine too, and the host is still paced by its GPU.
//!
//! It is apart from the C interfaces because four libraries share it. The timeline itself is alive in
//! `libcudart` only; the others reach it through [`driver`].

pub mod capture;
pub mod clock;
pub mod driver;
pub mod event;
pub mod futex;
pub mod gauge;
pub mod gemm;
pub mod handles;
pub mod machine;
pub mod op;
pub mod process;
pub mod resident;
pub mod settings;
pub mod stream;
pub mod trace;
pub mod worker;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, and takes what a panicked holder left: every critical section here leaves its data whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
