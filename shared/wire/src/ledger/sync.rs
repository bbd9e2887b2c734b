//! The atomics of the ledger's lines. The model tests (`tests/models`) replace them.

pub(super) use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
