//! The events of one rank: steps, calls on the host, work on the GPU, and the calls that launched it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
};

use serde_json::{Map, Value, json};
use xpu_analysis::{
    capture::{Capture, CapturedCommunicator, Kind, Single, copied, host_function, kernel},
    export::{chrome::microseconds, words},
};
use xpu_wire::frame::{CapturedLabel, CapturedOperation, CapturedSpan, Direction, FunctionKind};

use super::{
    Trace,
    launches::{Launches, is_launch},
};

/// In Kineto's traces, a GPU is a process too, with the GPU's number. A rank uses one GPU, which always gets
/// this number.
const GPU: u32 = 0;

pub(super) type Put<'a> = dyn FnMut(&Value) -> io::Result<()> + 'a;

pub(super) struct Events<'a> {
    trace: &'a Trace<'a>,
    /// Process id of the program.
    process: u32,
    /// Whether CUPTI recorded all kernels. If so, the operations that the hook timed around them are not
    /// additional kernels.
    has_kernels: bool,
    /// A separate thread for calls whose time and thread are unknown.
    unseen: u32,
    launches: Launches<'a>,
    /// Correlation ids of operations that launched kernels.
    known: HashMap<*const Single, u64>,
    next: u64,
}

impl<'a> Events<'a> {
    pub(super) fn of(trace: &'a Trace<'a>) -> Self {
        let threads = trace.of.operations.iter().map(|single| single.thread);
        let most = threads.filter(|&thread| thread != CapturedOperation::NO_THREAD).max();
        let has_kernels = trace.of.operations.iter().any(|single| single.kind() == Kind::ActivityKernel);
        Self {
            trace,
            process: trace
                .capture
                .pids
                .get(&trace.rank)
                .map_or_else(|| trace.rank.process().0 + 1, |pid| pid.0),
            unseen: most.map_or(0, |most| most + 1),
            has_kernels,
            launches: if has_kernels { Launches::of(&trace.of.operations) } else { Launches::default() },
            known: HashMap::new(),
            next: 1,
        }
    }

    pub(super) fn write(mut self, put: &mut Put<'_>) -> io::Result<()> {
        self.name(put)?;
        self.steps(put)?;
        self.functions(put)?;
        let operations = &self.trace.of.operations;
        for single in operations {
            match (&*single.label, single.span) {
                (CapturedLabel::Function { .. }, _) => {}
                (CapturedLabel::Activity(name), CapturedSpan::Gpu { .. }) => {
                    self.kernel(single, name, put)?;
                }
                (_, CapturedSpan::Host { .. }) => self.call(single, put)?,
                (_, CapturedSpan::Gpu { .. }) if is_launch(single) && self.has_kernels => {
                    // CUPTI recorded the kernels of this operation.
                    self.correlation(single, put)?;
                }
                (_, CapturedSpan::Gpu { .. }) => {
                    let correlation = self.correlation(single, put)?;
                    self.on_gpu(
                        single,
                        device_name(single),
                        correlation,
                        details(self.trace.capture, single),
                        put,
                    )?;
                }
                // Members of a group, and sampled operations.
                (_, CapturedSpan::Unknown | CapturedSpan::Timed { .. }) => {}
            }
        }
        Ok(())
    }

    /// Names of processes and threads.
    fn name(&self, put: &mut Put<'_>) -> io::Result<()> {
        let (rank, host, process) = (self.trace.rank, &self.trace.of.host, self.process);
        let mut say = |pid: u32, tid: u32, what: &str, args: Value| {
            put(&json!({ "name": what, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args }))
        };
        say(process, 0, "process_name", json!({ "name": format!("rank {rank} on {host}") }))?;
        say(process, 0, "process_labels", json!({ "labels": "CPU" }))?;
        say(process, 0, "process_sort_index", json!({ "sort_index": process }))?;
        say(GPU, 0, "process_name", json!({ "name": format!("rank {rank} on {host}") }))?;
        say(GPU, 0, "process_labels", json!({ "labels": "GPU" }))?;
        say(GPU, 0, "process_sort_index", json!({ "sort_index": 5_000_000 }))?;
        let (mut threads, mut streams) = (BTreeSet::new(), BTreeSet::new());
        for single in &self.trace.of.operations {
            threads.insert(single.thread);
            if let CapturedSpan::Gpu { stream, .. } = single.span {
                streams.insert(stream_number(stream));
            }
        }
        for thread in threads {
            let (tid, name) = match thread {
                CapturedOperation::NO_THREAD => (self.unseen, "launches not seen by xpu-top".to_owned()),
                thread => (thread, format!("thread {thread}")),
            };
            say(process, tid, "thread_name", json!({ "name": name }))?;
            say(process, tid, "thread_sort_index", json!({ "sort_index": tid }))?;
        }
        for stream in streams {
            say(GPU, stream, "thread_name", json!({ "name": format!("stream {stream}") }))?;
            say(GPU, stream, "thread_sort_index", json!({ "sort_index": stream }))?;
        }
        Ok(())
    }

    /// Steps, on the thread with the first launch. A captured period is not named like a step of the
    /// profiler.
    fn steps(&self, put: &mut Put<'_>) -> io::Result<()> {
        let of = self.trace.of;
        let threads = of.operations.iter().map(|single| single.thread);
        let thread = threads.filter(|&thread| thread != CapturedOperation::NO_THREAD).min().unwrap_or(0);
        for (step, from, to) in of.steps().filter(|&(step, ..)| !of.is_sampled(step)) {
            let name = match self.trace.capture.window {
                Some(_) => "xpu-top window".to_owned(),
                None => format!("ProfilerStep#{step}"),
            };
            let (from, to) = ((self.trace.at)(from), (self.trace.at)(to));
            put(&self.slice("user_annotation", name, self.place(thread), from, to, Map::new()))?;
        }
        Ok(())
    }

    /// Python functions, with their callers, and spans that the program named.
    fn functions(&self, put: &mut Put<'_>) -> io::Result<()> {
        let mut threads: BTreeMap<u32, Vec<(u64, u64, FunctionKind, &str)>> = BTreeMap::new();
        for single in &self.trace.of.operations {
            let (CapturedLabel::Function { kind, name }, CapturedSpan::Host { took }) =
                (&*single.label, single.span)
            else {
                continue;
            };
            let from = (self.trace.at)(single.at);
            threads.entry(single.thread).or_default().push((from, from.saturating_add(took.0), *kind, name));
        }
        let mut id = 0_u64;
        for (thread, mut calls) in threads {
            calls.sort_by_key(|&(from, to, ..)| (from, Reverse(to)));
            let mut within: Vec<(u64, u64)> = Vec::new();
            for (from, to, kind, name) in calls {
                within.retain(|&(end, _)| end >= to);
                let mut args = Map::new();
                let category = if kind == FunctionKind::Span {
                    "user_annotation"
                } else {
                    id += 1;
                    args.insert("Python id".to_owned(), json!(id));
                    args.insert("Python parent id".to_owned(), json!(within.last().map(|&(_, id)| id)));
                    args.insert("Python thread".to_owned(), json!(thread));
                    within.push((to, id));
                    "python_function"
                };
                put(&self.slice(category, name.to_owned(), self.place(thread), from, to, args))?;
            }
        }
        Ok(())
    }

    /// A call that blocks its thread: one that waits for the GPU, or a copy without a stream.
    fn call(&self, single: &Single, put: &mut Put<'_>) -> io::Result<()> {
        let CapturedSpan::Host { took } = single.span else { return Ok(()) };
        let name = match (host_function(&single.label), single.kind()) {
            (Some((_, name)), _) => name,
            (None, Kind::Set) => "cudaMemset",
            (None, _) => "cudaMemcpy",
        };
        let from = (self.trace.at)(single.at);
        let to = from.saturating_add(took.0);
        let args = details(self.trace.capture, single);
        put(&self.slice("cuda_runtime", name.to_owned(), self.place(single.thread), from, to, args))
    }

    fn kernel(&mut self, single: &Single, name: &str, put: &mut Put<'_>) -> io::Result<()> {
        let (correlation, args) = match self.launches.that_launched(single) {
            Some(launch) => (self.correlation(launch, put)?, details(self.trace.capture, launch)),
            None => (self.correlation(single, put)?, Map::new()),
        };
        self.on_gpu(single, kernel::demangled(name), correlation, args, put)
    }

    /// The correlation id of the call that launched the operation. The call is written before the id is first
    /// used. Its duration is unknown, and for a kernel of a library only its step is known.
    fn correlation(&mut self, launch: &Single, put: &mut Put<'_>) -> io::Result<u64> {
        if let Some(&known) = self.known.get(&std::ptr::from_ref(launch)) {
            return Ok(known);
        }
        let correlation = self.next;
        self.next += 1;
        self.known.insert(std::ptr::from_ref(launch), correlation);
        let name = match launch.kind() {
            Kind::Copy => "cudaMemcpyAsync",
            Kind::Set => "cudaMemsetAsync",
            Kind::Graph => "cudaGraphLaunch",
            _ => "cudaLaunchKernel",
        };
        let is_seen = launch.thread != CapturedOperation::NO_THREAD;
        let thread = if is_seen { launch.thread } else { self.unseen };
        let at = (self.trace.at)(launch.at);
        let args = Map::from_iter([("correlation".to_owned(), json!(correlation))]);
        put(&self.slice("cuda_runtime", name.to_owned(), self.place(thread), at, at, args))?;
        if is_seen {
            put(&self.arrow("s", correlation, self.place(thread), at))?;
        }
        Ok(correlation)
    }

    fn on_gpu(
        &self,
        single: &Single,
        name: String,
        correlation: u64,
        mut args: Map<String, Value>,
        put: &mut Put<'_>,
    ) -> io::Result<()> {
        let (CapturedSpan::Gpu { stream, .. }, Some((from, to))) = (single.span, single.on_gpu()) else {
            return Ok(());
        };
        let (from, to) = ((self.trace.at)(from), (self.trace.at)(to));
        let stream = stream_number(stream);
        for (name, value) in [
            ("device", json!(GPU)),
            ("context", json!(1)),
            ("stream", json!(stream)),
            ("correlation", json!(correlation)),
        ] {
            args.insert(name.to_owned(), value);
        }
        if let Some((_, bytes)) = copied(&single.label) {
            // Bytes a nanosecond are GB a second.
            let rate = bytes as f64 / to.saturating_sub(from).max(1) as f64;
            args.insert("memory bandwidth (GB/s)".to_owned(), json!(rate));
        }
        let category = match single.kind() {
            Kind::Copy => "gpu_memcpy",
            Kind::Set => "gpu_memset",
            _ => "kernel",
        };
        let place = Place { process: GPU, thread: stream };
        put(&self.slice(category, name, place, from, to, args))?;
        let is_seen = single.kind() != Kind::ActivityKernel || self.launches.that_launched(single).is_some();
        if is_seen { put(&self.arrow("f", correlation, place, from)) } else { Ok(()) }
    }

    /// A place on a thread of the rank.
    fn place(&self, thread: u32) -> Place {
        Place { process: self.process, thread }
    }

    fn slice(
        &self,
        category: &str,
        name: String,
        Place { process: pid, thread: tid }: Place,
        from: u64,
        to: u64,
        args: Map<String, Value>,
    ) -> Value {
        let ts = self.microseconds(from);
        // `TensorBoard` refuses steps that overlap, even in the last digit.
        let dur = self.microseconds(to) - ts;
        json!({ "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args })
    }

    /// Draws an arrow from a call to the launched work.
    fn arrow(
        &self,
        part: &str,
        correlation: u64,
        Place { process: pid, thread: tid }: Place,
        at: u64,
    ) -> Value {
        let ts = self.microseconds(at);
        json!({ "ph": part, "id": correlation, "pid": pid, "tid": tid, "ts": ts, "cat": "ac2g", "name": "ac2g",
                "bp": "e" })
    }

    fn microseconds(&self, at: u64) -> f64 {
        microseconds(at.saturating_sub(self.trace.begin))
    }
}

/// The line of a trace in which an event is drawn. On a GPU, the thread is a stream.
#[derive(Clone, Copy)]
struct Place {
    process: u32,
    thread: u32,
}

/// The report counts from 0, but HTA reads 0 as no stream.
fn stream_number(stream: u32) -> u32 {
    stream.saturating_add(1)
}

/// The operation's name on the GPU, by which readers distinguish communication and copies from compute.
fn device_name(single: &Single) -> String {
    match &*single.label {
        CapturedLabel::Collective { operation, .. } | CapturedLabel::Group { operation, .. } => {
            format!("ncclKernel_{operation}")
        }
        CapturedLabel::Copy { direction, .. } => match direction {
            Direction::HostToHost => "Memcpy HtoH",
            Direction::HostToDevice => "Memcpy HtoD",
            Direction::DeviceToHost => "Memcpy DtoH",
            Direction::DeviceToDevice => "Memcpy DtoD",
            Direction::PeerToPeer => "Memcpy PtoP",
            Direction::ByAddress => "Memcpy",
        }
        .to_owned(),
        CapturedLabel::Set { .. } => "Memset (Device)".to_owned(),
        _ => words::name(single),
    }
}

/// Details of an operation, under Kineto's names if there are any.
fn details(capture: &Capture, single: &Single) -> Map<String, Value> {
    let mut all = words::details(single);
    if let CapturedLabel::Gemm(shape) = &*single.label {
        for (name, value) in [("m", shape.m), ("n", shape.n), ("k", shape.k)] {
            all.insert(name.to_owned(), json!(value));
        }
    }
    if let CapturedLabel::Collective { operation, communicator, .. }
    | CapturedLabel::Group { operation, communicator, .. } = &*single.label
    {
        all.insert("Collective name".to_owned(), json!(operation.to_string().to_lowercase()));
        if let Some(CapturedCommunicator { name, size, .. }) = capture.communicators.get(communicator) {
            all.insert("Group size".to_owned(), json!(size));
            all.insert("Process Group Description".to_owned(), json!(name));
        }
    }
    for (ours, theirs) in [("datatype", "dtype"), ("communicator", "Process Group Name"), ("sequence", "Seq")]
    {
        if let Some(value) = all.remove(ours) {
            all.insert(theirs.to_owned(), value);
        }
    }
    all
}
