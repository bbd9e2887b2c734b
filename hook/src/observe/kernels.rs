//! Kernel launches. All are counted; those with requested names are also counted by pattern, and timed.

mod known_names;
mod names;
mod pattern;

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use cudarc::{driver::sys::CUfunction, runtime::sys::cudaStream_t};
use xpu_wire::ledger::{KERNEL_NAME, Work};

use crate::{
    gpu::graphs::GraphCaptureId,
    observe::{
        lane::{Lane, Timing},
        launches,
        record::Record,
    },
    process::clock::approximate,
    publish::rate::{self, Class},
};
pub(crate) use known_names::known_name;
use names::Known;
pub(crate) use names::{forget as forget_names, missed, pattern, patterns, set_from};
pub(crate) use pattern::PATTERNS;

/// The blocks of a grid, and the threads of a block.
pub(crate) type Sizes = ([u32; 3], [u32; 3]);

/// The launched function, as the call names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    /// Through the runtime: an address in the program, or a `cudaKernel_t`.
    Runtime(*const c_void),
    /// A `cudaKernel_t`, which is the driver's `CUkernel`.
    Kernel(*const c_void),
    /// Through the driver: a `CUfunction` or a `CUkernel`.
    Driver(CUfunction),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    /// The function and its stream, if the work before NCCL operations is tracked.
    noted: Option<(Function, cudaStream_t)>,
    /// `None` if the launch is only counted.
    kept: Option<Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    function: Function,
    known: Known,
    stream: cudaStream_t,
    graph_capture: Option<GraphCaptureId>,
    timing: Timing,
    /// The launch time, in the record's units.
    at: u64,
}

impl Launch {
    /// Begins a launch, before the call. `sizes` and `stream` are called only if they are needed.
    #[inline]
    pub(crate) fn begin(
        lane: &Lane,
        function: Function,
        sizes: impl FnOnce() -> Sizes,
        stream: impl Fn() -> cudaStream_t,
    ) -> Self {
        lane.launch_begins();
        let launch = || {
            let (grid, block) = sizes();
            launches::Launch::kernel(function.address(), grid, block)
        };
        launches::before(lane, launch, || Some(stream()));
        lane.before_launch(|| Some(stream()));
        let observer = lane.observer();
        let known = names::look_up(function);
        let may_capture_graph = observer.may_capture_graph();
        let is_noted = !may_capture_graph && observer.exposure.has_communication();
        let noted = is_noted.then(|| (function, stream()));
        if known == Known::Plain && !may_capture_graph {
            return Self { noted, kept: None };
        }
        let number = lane.counters.named_kernels.get();
        let timed = matches!(known, Known::Matches(_)) && rate::of(Class::Kernel).times(number);
        let mut launch = Kept {
            function,
            known,
            stream: ptr::null_mut(),
            graph_capture: None,
            timing: Timing::Not,
            at: 0,
        };
        if timed || may_capture_graph {
            launch.stream = stream();
            launch.graph_capture = observer.graph_capture_of(launch.stream);
            if timed && launch.graph_capture.is_none() {
                launch.at = approximate();
                launch.timing = lane.start_timing(launch.stream);
                lane.counters.untimed.add(u64::from(matches!(launch.timing, Timing::Not)));
            }
        }
        Self { noted, kept: Some(launch) }
    }

    /// Ends the launch, after the call. A refused launch is not counted.
    #[inline]
    pub(crate) fn end(self, lane: &Lane, result: c_int) {
        lane.launch_ends();
        if let Some((function, stream)) = self.noted.filter(|_| result == 0) {
            lane.observer().streams.launched(stream, function.work().pack(), lane.launched_at());
            known_names::launched(function);
        }
        match self.kept {
            Some(kept) => kept.end(lane, result),
            None if result == 0 => lane.count_kernel(),
            None => {}
        }
    }
}

/// The pattern that the name of this function of the driver matches.
pub(crate) fn pattern_of(function: CUfunction) -> Option<u8> {
    let function = Function::Driver(function);
    match names::look_up(function) {
        Known::Plain => None,
        Known::Matches(pattern) => Some(pattern),
        Known::NotYet => names::ask(function),
    }
}

impl Kept {
    fn end(self, lane: &Lane, result: c_int) {
        if result != 0 {
            return lane.drop_timing(self.timing);
        }
        let timer = lane.stop_timing(self.timing, self.stream);
        let pattern = match self.known {
            Known::Plain => None,
            Known::Matches(pattern) => Some(pattern),
            // Queried after the launch, because a launched function is loaded and has a name.
            Known::NotYet => names::ask(self.function),
        };
        let place = pattern.map(usize::from).filter(|&pattern| pattern < PATTERNS);
        if let Some(graph_capture) = self.graph_capture {
            lane.graph_captured(graph_capture);
            return lane.observer().graphs.add(graph_capture, |contents| {
                contents.kernels += 1;
                if let Some(place) = place {
                    contents.named[place] += 1;
                }
            });
        }
        lane.count_kernel();
        if let Some(place) = place {
            lane.counters.named_kernels.add(1);
            lane.counters.named[place].add(1);
        }
        if let Some(pattern) = pattern.filter(|_| self.at > 0) {
            lane.push(Record::Kernel { pattern, at: self.at, timer });
        }
    }
}

impl Function {
    /// The launch in the ledger's format, without the name.
    fn work(self) -> Work {
        Work::Kernel { function: self.address() as u64, name: [0; KERNEL_NAME] }
    }
}
