//! The atomics of the ledger's lines. The model tests (`tests/models`) put others in their place.

pub(super) use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
