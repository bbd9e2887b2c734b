//! The atomics the lines of a ledger are made of. Models of them put others in this place (`tests/models`).

pub(super) use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
