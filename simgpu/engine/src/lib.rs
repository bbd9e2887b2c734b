//! The simulated GPU below the stand-in CUDA libraries.
//!
//! A stream is a queue of operations. Their starts and ends are *computed* on the machine-wide monotonic
//! clock; no thread sleeps through them. The timeline runs ahead of the wall clock, and only the calls by
//! which a host observes the GPU (query, synchronize) wait until the wall clock has caught up. Therefore
//! durations read through events are exact on a loaded machine too, and the GPU still paces its host.
//!
//! The engine is separate from the C interfaces because all libraries share it. The timeline itself is only
//! in `libcudart`; the others reach it through [`driver`].

pub mod capture;
pub mod clock;
pub mod cublas;
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

/// Locks the mutex, also after a holder has panicked: every critical section here leaves its data whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
