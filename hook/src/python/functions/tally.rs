//! Counts garbage collections and waits for batches, if these are recorded all the time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xpu_wire::{
    frame::{FunctionKind, PythonTotals},
    unit::Nanoseconds,
};

use super::{are_always_recorded, kind};

static COLLECTIONS: Calls = Calls::new();
static BATCHES: Calls = Calls::new();

/// The number of completed calls, and their time in nanoseconds.
struct Calls {
    count: AtomicU64,
    time: AtomicU64,
}

impl Calls {
    const fn new() -> Self {
        Self { count: AtomicU64::new(0), time: AtomicU64::new(0) }
    }
}

pub(super) fn count(number: u16, time: u64) {
    let calls = match kind(number) {
        FunctionKind::GarbageCollection => &COLLECTIONS,
        FunctionKind::DataLoader => &BATCHES,
        FunctionKind::Named | FunctionKind::Span => return,
    };
    calls.count.fetch_add(1, Relaxed);
    calls.time.fetch_add(time, Relaxed);
}

/// The totals. `None` if only captures record calls, because a part would look like the total.
pub(crate) fn totals() -> Option<PythonTotals> {
    are_always_recorded().then(|| PythonTotals {
        collections: COLLECTIONS.count.load(Relaxed),
        collecting: Nanoseconds(COLLECTIONS.time.load(Relaxed)),
        batches: BATCHES.count.load(Relaxed),
        loading: Nanoseconds(BATCHES.time.load(Relaxed)),
    })
}

/// Clears the totals in a forked child.
pub(super) fn forget() {
    for calls in [&COLLECTIONS, &BATCHES] {
        calls.count.store(0, Relaxed);
        calls.time.store(0, Relaxed);
    }
}
