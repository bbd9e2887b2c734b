//! Reports launches to the search for steps. Once the period is known, counts the launch that begins each
//! step.
//!
//! If the program or an optimizer marks steps, nothing is reported, and a launch costs one more load and
//! branch.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::{
    collective::Operation,
    gemm::{GemmShape, Routine},
    sampling::priority,
};

use crate::{
    observe::{lane::Lane, record::Record, shapes},
    process::clock::approximate,
};

/// A launch's kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gemm,
    Collective,
    Kernel,
    Graph,
    /// A copy from host to device. A prefetching thread may launch it at any time, so it is evidence of a
    /// batch but not part of the sums.
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Launch {
    /// A hash of the launch, with its sizes.
    pub(crate) name: u32,
    /// A hash of the launch, without its sizes.
    pub(crate) form: u32,
    pub(crate) kind: Kind,
    /// Threads of a kernel, bytes of a collective or a copy. A whole number, because inexact conversions in
    /// the program's thread may trap there.
    pub(crate) weight: u64,
    /// For a GEMM without a batch: m, n and k. Other products do not show which side has the tokens.
    pub(crate) extents: [u32; 3],
    /// Monotonic nanoseconds.
    pub(crate) at: u64,
}

impl Launch {
    /// Extents of a launch that is not a GEMM.
    pub(crate) const UNKNOWN: [u32; 3] = [0; 3];

    fn new(kind: Kind, form: u64, sizes: u64, weight: u64) -> Self {
        let form = priority(form ^ ((kind as u64 + 1) << 56));
        let name = priority(form ^ sizes.wrapping_mul(GOLDEN_RATIO)) as u32;
        Self { name, form: form as u32, kind, weight, extents: Self::UNKNOWN, at: 0 }
    }

    pub(crate) fn gemm(shape: &GemmShape) -> Self {
        let form = shapes::hash(&(shape.datatype, shape.transposed, shape.routine));
        let extents = match (shape.routine, shape.batch) {
            (Routine::Gemm, 1) => {
                [shape.m, shape.n, shape.k].map(|extent| u32::try_from(extent).unwrap_or(u32::MAX))
            }
            _ => Self::UNKNOWN,
        };
        Self { extents, ..Self::new(Kind::Gemm, form, shapes::hash(shape), 0) }
    }

    /// The launch of a collective on a communicator of `size` ranks.
    pub(crate) fn collective(operation: Operation, bytes: u64, size: u32) -> Self {
        let form = u64::from(operation as u8) << 32 | u64::from(size);
        Self::new(Kind::Collective, form, bytes, bytes)
    }

    /// The launch of the function at this address, with the blocks of the grid and the threads of a block.
    pub(crate) fn kernel(function: usize, grid: [u32; 3], block: [u32; 3]) -> Self {
        let sizes = grid.into_iter().chain(block).fold(0_u64, |sizes, one| priority(sizes ^ u64::from(one)));
        let threads =
            grid.into_iter().chain(block).fold(1, |threads: u64, one| threads.saturating_mul(one.into()));
        Self::new(Kind::Kernel, function as u64, sizes, threads)
    }

    pub(crate) fn graph(number: u32, signature: u32) -> Self {
        Self::new(Kind::Graph, u64::from(number) << 32 | u64::from(signature), 0, 0)
    }

    pub(crate) fn copy(bytes: u64) -> Self {
        Self::new(Kind::Copy, 0, bytes, bytes)
    }
}

/// 2^64 over the golden ratio, rounded to an odd number: the multiplier of Fibonacci hashing.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits of [`WANTED`]: every launch is wanted, and the launch that begins a step.
const ALL: u8 = 1;
const MARKER: u8 = 2;

static WANTED: AtomicU8 = AtomicU8::new(0);
/// Whether a launch was not reported because the ring was full.
static LOST: AtomicBool = AtomicBool::new(false);

/// The launch that begins a step.
static FIRST: First = First::nothing();

/// A [`Marker`], and its progress in the current step.
#[derive(Debug)]
struct First {
    name: AtomicU32,
    is_form: AtomicBool,
    count: AtomicU32,
    /// Its launches since the step began.
    seen: AtomicU32,
    /// The name of [`Marker::other`]; 0 for none.
    other: AtomicU32,
    other_seen: AtomicBool,
    /// The lane whose launches count, by its address; 0 for all.
    thread: AtomicUsize,
    steps: AtomicU64,
}

impl First {
    const fn nothing() -> Self {
        Self {
            name: AtomicU32::new(0),
            is_form: AtomicBool::new(false),
            count: AtomicU32::new(1),
            seen: AtomicU32::new(0),
            other: AtomicU32::new(0),
            other_seen: AtomicBool::new(false),
            thread: AtomicUsize::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// The number of steps begun so far, if this launch begins one.
    fn takes(&self, lane: usize, launch: &Launch) -> Option<u64> {
        let thread = self.thread.load(Relaxed);
        if thread != 0 && thread != lane {
            return None;
        }
        let name = if self.is_form.load(Relaxed) { launch.form } else { launch.name };
        let other = self.other.load(Relaxed);
        if name == other {
            self.other_seen.store(true, Relaxed);
        }
        if name != self.name.load(Relaxed) {
            return None;
        }
        let seen = self.seen.fetch_add(1, Relaxed);
        let begins =
            seen == 0 || (seen >= self.count.load(Relaxed) && (other == 0 || self.other_seen.load(Relaxed)));
        if !begins {
            return None;
        }
        self.seen.store(1, Relaxed);
        self.other_seen.store(false, Relaxed);
        Some(self.steps.fetch_add(1, Relaxed) + 1)
    }
}

/// The launch that begins a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) name: u32,
    /// Whether the name is one without sizes.
    pub(crate) is_form: bool,
    /// Number of its launches in a step.
    pub(crate) count: u32,
    /// Another launch that must come in between, because an evaluation may have the first launch but lacks
    /// the other.
    pub(crate) other: Option<u32>,
    /// The lane whose launches count, by its address; `None` for all.
    pub(crate) thread: Option<usize>,
}

/// Reports every launch, or stops doing so.
pub(crate) fn report_all(all: bool) {
    if all {
        WANTED.fetch_or(ALL, Relaxed)
    } else {
        WANTED.fetch_and(!ALL, Relaxed)
    };
}

/// Counts the steps that begin with this launch, starting at 0.
pub(crate) fn count_steps_by(marker: Option<Marker>) {
    WANTED.fetch_and(!MARKER, Relaxed);
    let Some(marker) = marker else { return };
    FIRST.name.store(marker.name, Relaxed);
    FIRST.is_form.store(marker.is_form, Relaxed);
    FIRST.count.store(marker.count, Relaxed);
    FIRST.other.store(marker.other.unwrap_or(0), Relaxed);
    FIRST.thread.store(marker.thread.unwrap_or(0), Relaxed);
    FIRST.seen.store(0, Relaxed);
    FIRST.other_seen.store(false, Relaxed);
    FIRST.steps.store(0, Relaxed);
    WANTED.fetch_or(MARKER, Relaxed);
}

/// Whether any launch since the last call was not reported.
pub(crate) fn were_lost() -> bool {
    LOST.swap(false, Relaxed)
}

/// Reports a launch if that is wanted. Called before the launch. `stream` is called only if it is needed.
#[inline]
pub(crate) fn before(
    lane: &Lane,
    launch: impl FnOnce() -> Launch,
    stream: impl FnOnce() -> Option<cudaStream_t>,
) {
    let wanted = WANTED.load(Relaxed);
    if wanted != 0 {
        // Work that is captured into a graph is not launched now.
        let observer = lane.observer();
        if !observer.may_capture_graph()
            || stream().is_some_and(|stream| observer.graph_capture_of(stream).is_none())
        {
            report(lane, wanted, launch());
        }
    }
}

/// Like [`before`], for a launch that is certainly not captured into a graph.
#[inline]
pub(crate) fn launched(lane: &Lane, launch: impl FnOnce() -> Launch) {
    let wanted = WANTED.load(Relaxed);
    if wanted != 0 {
        report(lane, wanted, launch());
    }
}

#[cold]
fn report(lane: &Lane, wanted: u8, launch: Launch) {
    if wanted & ALL != 0 {
        let at = approximate();
        if !lane.push_if_roomy(Record::Launched { launch: Launch { at, ..launch } }) {
            LOST.store(true, Relaxed);
        }
    }
    if wanted & MARKER != 0
        && let Some(begun) = FIRST.takes(lane.address(), &launch)
    {
        lane.step_ended(begun);
        lane.push(Record::Begun { steps: begun, at: approximate() });
    }
}

/// What a launch on this thread returns: the number of steps begun so far, if it begins one.
#[cfg(test)]
pub(crate) fn begun(thread: usize, launch: &Launch) -> Option<u64> {
    (WANTED.load(Relaxed) & MARKER != 0).then(|| FIRST.takes(thread, launch)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(function: usize) -> Launch {
        Launch::kernel(function, [4, 1, 1], [128, 1, 1])
    }

    #[test]
    fn launch_names_distinguish_sizes_and_forms_do_not() {
        let of = |blocks| Launch::kernel(77, [blocks, 1, 1], [128, 1, 1]);
        assert_ne!(of(4).name, of(5).name);
        assert_eq!((of(4).form, of(4).name), (of(5).form, of(4).name));
        assert_ne!(kernel(77).form, kernel(78).form);
        let sum = |bytes, size| Launch::collective(Operation::AllReduce, bytes, size);
        assert_eq!(sum(4, 8).form, sum(8, 8).form);
        assert_ne!(sum(4, 8).form, sum(4, 16).form);
        assert_eq!(of(4).weight, 512);
    }

    #[test]
    fn an_evaluation_begins_no_step() {
        let first = First::nothing();
        first.name.store(kernel(1).name, Relaxed);
        first.count.store(2, Relaxed);
        first.other.store(kernel(2).name, Relaxed);
        let mut begun = Vec::new();
        let step = [1, 3, 1, 2];
        let test = [1, 3, 1, 1, 1, 1];
        for function in [step, step].concat().iter().chain(&test).chain(&[step, step].concat()) {
            begun.extend(first.takes(1, &kernel(*function)));
        }
        assert_eq!(begun, [1, 2, 3, 4]);
    }

    #[test]
    fn only_one_of_several_threads_counts() {
        let first = First::nothing();
        first.name.store(kernel(1).name, Relaxed);
        first.thread.store(7, Relaxed);
        let begun = [7, 8, 8, 7, 8].map(|lane| first.takes(lane, &kernel(1)));
        assert_eq!(begun, [Some(1), None, None, Some(2), None]);
    }
}
