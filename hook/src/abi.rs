//! The hook's own C functions, declared in `xpu_top.h`. Any thread may call each of them at any time.

use std::{
    ffi::{CStr, c_char, c_int},
    sync::atomic::Ordering::Relaxed,
};

use xpu_wire::{frame::StepSource, sampling::Rate};

use crate::{
    interpose::{
        guard::{Entered, Mark},
        plugin,
        symbol::Kind,
    },
    observe::{
        lane::{Count, Lane},
        observer::Observer,
        spans, steps,
    },
    process::{clock::monotonic, switch},
    publish::{
        budget,
        rate::{self, Class},
    },
};

/// Marks the end of training step number `completed`, or of the next step if `completed` is negative.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_step(completed: i64) {
    let completed = u64::try_from(completed).ok();
    if !steps::counts(StepSource::Marked) {
        return;
    }
    let mark = Mark::new();
    if let Some(entered) = Entered::enter(Kind::Watched, &mark) {
        entered.leave(|lane| lane.observer().step(lane, completed));
    } else if let Some(observer) = Observer::get().filter(|_| !switch::is_on()) {
        // Steps are counted even while observing is off: ranks are switched one after another, and must agree
        // on a step's number.
        observer.count_step(completed);
    }
}

/// Marks the end of a step, as [`xpu_top_step`] does, with its tokens and samples. `loss` is the last known
/// loss: NaN if none is known, infinite if the loss itself is NaN or infinite.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_step_with(completed: i64, tokens: u64, samples: u64, loss: f64) {
    let mark = Mark::new();
    if let Some(entered) = Entered::enter(Kind::Watched, &mark) {
        // The work comes first, so a reader that sees the step also sees its work.
        entered.leave(|lane| lane.observer().work.add(tokens, samples, loss));
    }
    xpu_top_step(completed);
}

/// Begins a span of the program; [`xpu_top_span_end`] names it. Returns 0 while observing is off.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_span_begin() -> u64 {
    if switch::is_on() { monotonic() } else { 0 }
}

/// Ends a span, on the thread that began it: `begun` is the result of [`xpu_top_span_begin`].
///
/// # Safety
/// `name` is a NUL-terminated string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn xpu_top_span_end(name: *const c_char, begun: u64) {
    if begun == 0 || name.is_null() {
        return;
    }
    let mark = Mark::new();
    if let Some(entered) = Entered::enter(Kind::Watched, &mark) {
        // SAFETY: the caller promises a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) };
        entered.leave(|lane| spans::ended(lane, name, begun));
    }
}

/// Turns observing off (0) or on. While it is off, a launch costs one load. The hook still keeps what it
/// cannot learn later: numbers that must agree on all ranks, the sizes of allocations, and the contents of
/// graphs.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_set_enabled(on: c_int) {
    switch::set(on != 0);
}

/// Whether calls are observed now.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_enabled() -> c_int {
    c_int::from(switch::is_on())
}

/// Times one in `gemm` GEMMs and one in `collective` collectives (powers of two up to 2^20), whatever it
/// costs. Returns 0, or -1 and changes nothing if a number is not such a power.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_set_sampling(gemm: u32, collective: u32) -> c_int {
    match (Rate::one_in(gemm.into()), Rate::one_in(collective.into())) {
        (Some(gemm), Some(collective)) => {
            rate::fix(Class::Gemm, Some(gemm));
            rate::fix(Class::Collective, Some(collective));
            0
        }
        _ => -1,
    }
}

/// Sets the overhead budget as a percentage of wall time: the hook chooses what it times. A negative budget
/// times everything, zero times nothing. Overrides [`xpu_top_set_sampling`]. Returns 0, or -1 if `percent` is
/// NaN.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_set_budget(percent: f64) -> c_int {
    if !budget::set(percent) {
        return -1;
    }
    if let Some(observer) = Observer::get() {
        observer.wake();
    }
    0
}

/// Sets when the hook requests events from NCCL's profiler plugin interface: 0 only for communicators whose
/// calls the preload does not see, 1 also when it needs more detail, 2 always. Returns 0, or -1 and changes
/// nothing for another number.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_set_plugin(mode: c_int) -> c_int {
    if plugin::set(mode) { 0 } else { -1 }
}

/// A counter of this process by name, or `u64::MAX` if no counter has that name: `kernels`, `graphs`,
/// `gemms`, `collectives`, `point_to_point`, `captured`, `waits` (of GEMMs for communication), `timed`,
/// `untimed`, `dropped`, `panics`, `steps`; `spent`, `event_cost` and `event_gap` in nanoseconds; `gemm_rate`
/// and `collective_rate`, each as the n of one in n.
///
/// # Safety
/// `name` is a NUL-terminated string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn xpu_top_counter(name: *const c_char) -> u64 {
    if name.is_null() {
        return u64::MAX;
    }
    // SAFETY: the caller promises a NUL-terminated string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(observer) = Observer::get() else { return 0 };
    let sum = |counter: fn(&Lane) -> &Count| observer.lanes().map(|lane| counter(lane).get()).sum::<u64>();
    // Adds up direct launches and launches in graphs.
    let both = |[own, replayed]: [fn(&Lane) -> &Count; 2]| sum(own) + sum(replayed);
    match name.to_bytes() {
        b"kernels" => both([|lane| &lane.counters.kernels, |lane| &lane.counters.replayed.kernels]),
        b"graphs" => sum(|lane| &lane.counters.graphs),
        b"gemms" => both([|lane| &lane.counters.gemms, |lane| &lane.counters.replayed.gemms]),
        b"collectives" => {
            both([|lane| &lane.counters.collectives, |lane| &lane.counters.replayed.collectives])
        }
        b"point_to_point" => {
            both([|lane| &lane.counters.point_to_point, |lane| &lane.counters.replayed.point_to_point])
        }
        b"captured" => sum(|lane| &lane.counters.graph_captured),
        b"waits" => sum(|lane| &lane.counters.waits),
        b"timed" => sum(|lane| &lane.counters.timed),
        b"untimed" => sum(|lane| &lane.counters.untimed),
        b"dropped" => observer.lanes().map(|lane| lane.ring.dropped()).sum(),
        b"panics" => switch::panics(),
        b"spent" => observer.overhead.spent.load(Relaxed),
        b"event_cost" => observer.overhead.event_cost.load(Relaxed),
        b"event_gap" => observer.overhead.event_gap.load(Relaxed),
        b"gemm_rate" => rate::of(Class::Gemm).denominator(),
        b"collective_rate" => rate::of(Class::Collective).denominator(),
        b"steps" => observer.steps.load(Relaxed),
        _ => u64::MAX,
    }
}

/// The hook's version, a NUL-terminated string that is never freed.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn xpu_top_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}
