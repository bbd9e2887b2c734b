//! A thread's open calls, and their records.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{GENERATION, GENERATIONS, on, tally};
use crate::{
    interpose::{
        guard::{Entered, Mark},
        symbol::Kind,
    },
    observe::record::{HostCall, Record},
    process::clock::monotonic,
};

/// Maximum number of nested calls of watched functions in one thread; deeper ones are counted as dropped.
const DEEPEST: usize = 32;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The open calls of the recording `begun`. Calls that were opened before are unknown.
struct Open {
    begun: u32,
    depth: usize,
    calls: [(u16, u64); DEEPEST],
    /// When the running garbage collection began; 0 if none runs.
    collection: u64,
}

thread_local! {
    /// Without a destructor, like all thread-local data of the hook.
    static OPEN: RefCell<Open> =
        const { RefCell::new(Open { begun: 0, depth: 0, calls: [(0, 0); DEEPEST], collection: 0 }) };
}

pub(super) fn dropped() -> u64 {
    DROPPED.load(Relaxed)
}

pub(super) fn forget_dropped() {
    DROPPED.store(0, Relaxed);
}

/// This thread's open calls, if anything is recorded.
#[inline]
fn with<T>(body: impl FnOnce(&mut Open) -> Option<T>) -> Option<T> {
    let begun = on()?;
    OPEN.with(|open| {
        let mut open = open.try_borrow_mut().ok()?;
        if open.begun != begun {
            (open.begun, open.depth, open.collection) = (begun, 0, 0);
        }
        body(&mut open)
    })
}

pub(super) fn enter(number: u16) {
    with(|open| {
        if let Some(call) = open.calls.get_mut(open.depth) {
            *call = (number, monotonic());
        }
        open.depth += 1;
        Some(())
    });
}

/// Records the return of a watched function. Inner calls whose return was not seen are dropped.
pub(super) fn leave(number: u16) {
    let Some(at) = with(|open| {
        if open.depth > DEEPEST {
            open.depth -= 1;
            DROPPED.fetch_add(1, Relaxed);
            return None;
        }
        let place = open.calls[..open.depth].iter().rposition(|call| call.0 == number)?;
        open.depth = place;
        Some(open.calls[place].1)
    }) else {
        return;
    };
    record(number, at);
}

pub(super) fn collection_begins() {
    with(|open| {
        open.collection = monotonic();
        Some(())
    });
}

pub(super) fn collection_ends(generation: u16) {
    let began = with(|open| Some(std::mem::take(&mut open.collection)).filter(|&at| at > 0));
    if let Some(at) = began {
        record(GENERATION + generation.min(GENERATIONS - 1), at);
    }
}

fn record(number: u16, at: u64) {
    let until = monotonic();
    tally::count(number, until.saturating_sub(at));
    let record = Record::Host { call: HostCall::Function(number), bytes: 0, at, until };
    let mark = Mark::new();
    let mut is_pushed = false;
    if let Some(entered) = Entered::enter(Kind::Watched, &mark) {
        entered.leave(|lane| is_pushed = lane.push_if_roomy(record));
    }
    if !is_pushed {
        DROPPED.fetch_add(1, Relaxed);
    }
}
