//! The gauges of xpu-timer, by their own names, labels and units, so that existing readers continue to work.
//!
//! Latencies are whole microseconds, `FLOPS` is TFLOPS, and `BANDWIDTH` is Gbit/s on the bus. All cover the
//! last ten to twenty seconds. As in xpu-timer, the time of a collective includes waiting for other ranks.
//! The counts of garbage collections and data loaders exist if Python is recorded all the time
//! (`XPU_TOP_TRACE_FUNCS_ALWAYS`).

use std::{collections::BTreeMap, env};

use xpu_model::{
    job::{Job, RankView},
    peak::Peaks,
};
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{CollectiveTotals, Direction, GemmTotals, MemoryTotals, NcclReport, PythonTotals, Summary},
    gemm::Routine,
    histogram::Histogram,
    id::{CommunicatorId, Rank},
    plan::{Algorithm, Plan, Protocol},
    unit::{Moment, Nanoseconds},
};

use super::{
    Exposition, Label, Value,
    catalogue::{In, Kind, Metric},
    label,
    recent::{Cell, Recent},
};

/// Largest number of kinds of one rank: ten levels for a few element types, twenty for a few operations.
const KINDS: usize = 256;

/// xpu-timer's value for unknown.
const NOT_SET: &str = "NOT_SET";

/// Largest message, in bits over the bus, that counts as small.
const SMALL: f64 = 8192.0;

/// Number of levels of bandwidth, each a twentieth of xpu-timer's network bandwidth: 400 Gbit/s.
const LEVELS_OF_BANDWIDTH: f64 = 20.0;
const NETWORK: f64 = 400.0;

/// Number of levels of FLOPS, each a tenth of the peak.
const LEVELS_OF_FLOPS: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Multiplied {
    datatype: DataType,
    /// 0 if the GPU's peak is unknown.
    level: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moved {
    operation: Operation,
    datatype: DataType,
    within_host: bool,
    level: u32,
    small: bool,
    plan: Option<(Algorithm, Protocol)>,
}

/// A rank's recent operations, in xpu-timer's levels.
#[derive(Debug)]
pub(crate) struct Levels {
    peaks: Peaks,
    multiplied: Recent<Multiplied>,
    moved: Recent<Moved>,
    memory: MemoryTotals,
    python: Option<PythonTotals>,
}

impl Levels {
    pub(super) fn new(peaks: Peaks, now: Moment) -> Self {
        let (multiplied, moved) = (Recent::new(KINDS, now), Recent::new(KINDS, now));
        Self { peaks, multiplied, moved, memory: MemoryTotals::default(), python: None }
    }

    /// `on_host`: the number of a communicator's ranks on the rank's host.
    pub(super) fn take(
        &mut self,
        summary: &Summary,
        nccl: &NcclReport,
        on_host: impl Fn(CommunicatorId) -> u32,
        at: Moment,
    ) {
        self.memory.clone_from(&summary.memory);
        self.python = summary.python;
        let peaks = self.peaks.or_of(&summary.device);
        // xpu-timer's levels are of GEMMs only.
        let gemms = summary.gemms.iter().filter(|gemm| gemm.shape.routine == Routine::Gemm);
        for gemm in gemms.filter(|gemm| !gemm.durations.is_empty()) {
            for (kind, cell) in multiplied(gemm, &peaks) {
                self.multiplied.take(kind, &cell, at);
            }
        }
        for total in summary.collectives.iter().filter(|total| !total.durations.is_empty()) {
            let size = summary.communicators.iter().find(|state| state.id == total.communicator);
            let Some(size) = size.map(|state| state.size).filter(|&size| size > 1) else { continue };
            let plan = nccl.plan_of(total);
            for (kind, cell) in moved(total, plan, size, on_host(total.communicator) >= size) {
                self.moved.take(kind, &cell, at);
            }
        }
    }
}

/// Counts each operation at its own level, as in xpu-timer. The mean of a shape would mix fast and slow
/// operations.
fn by_level<K: Ord>(durations: &Histogram, work: f64, kind: impl Fn(Nanoseconds) -> K) -> BTreeMap<K, Cell> {
    let mut cells: BTreeMap<K, Cell> = BTreeMap::new();
    for (took, count) in durations.recorded() {
        let cell = cells.entry(kind(took)).or_default();
        cell.durations.record_n(took, count);
        cell.work += work * count as f64;
        cell.launched += count;
    }
    cells
}

fn multiplied(gemm: &GemmTotals, peaks: &Peaks) -> BTreeMap<Multiplied, Cell> {
    let (datatype, at_peak) = (gemm.shape.datatype, peaks.seconds(&gemm.shape));
    by_level(&gemm.durations, gemm.shape.flops(), |took| {
        let share = at_peak.map(|at_peak| at_peak / took.seconds());
        let level = share.map_or(0, |share| level(share * LEVELS_OF_FLOPS, LEVELS_OF_FLOPS + 1.0));
        Multiplied { datatype, level }
    })
}

fn moved(
    total: &CollectiveTotals,
    plan: Option<Plan>,
    size: u32,
    within_host: bool,
) -> BTreeMap<Moved, Cell> {
    let bits = total.bytes as f64 * total.operation.bus_factor(size) * 8.0;
    by_level(&total.durations, bits, |took| Moved {
        operation: total.operation,
        datatype: total.datatype,
        within_host,
        level: level(gigabits(bits, took) * LEVELS_OF_BANDWIDTH / NETWORK, LEVELS_OF_BANDWIDTH),
        small: bits <= SMALL,
        plan: plan.map(|plan| (plan.algorithm, plan.protocol)),
    })
}

/// The level, from 1 on.
fn level(part: f64, most: f64) -> u32 {
    (part.floor() + 1.0).clamp(1.0, most) as u32
}

fn gigabits(bits: f64, took: Nanoseconds) -> f64 {
    if took.0 > 0 { bits / took.0 as f64 } else { 0.0 }
}

/// xpu-timer's name of an element type.
fn dtype(datatype: DataType) -> String {
    let name = match datatype {
        DataType::Float64 => "fp64",
        DataType::Float32 | DataType::Tf32 => "fp32",
        DataType::Float16 => "fp16",
        DataType::Bfloat16 => "bf16",
        DataType::Float8E4m3 => "fp8_e4m3",
        DataType::Float8E5m2 => "fp8_e5m2",
        DataType::Int64 => "int64",
        DataType::Int32 => "int32",
        DataType::Int8 => "int8",
        DataType::Uint8 => "uint8",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// xpu-timer's name of an operation.
fn operation(operation: Operation) -> String {
    match operation {
        Operation::Send | Operation::Recv | Operation::SendRecv | Operation::AlltoAll => {
            "SendRecv".to_owned()
        }
        other => other.to_string(),
    }
}

/// xpu-timer's name of algorithm and protocol: `RING_LL128`.
fn algorithm(plan: Option<(Algorithm, Protocol)>) -> String {
    plan.map_or_else(
        || "UNKNOWN".to_owned(),
        |(algorithm, protocol)| format!("{}_{}", algorithm.name(), protocol.name()),
    )
}

/// Labels common to all metrics of the pod, from the collector's environment.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    name: String,
    ip: String,
    job: Option<String>,
}

impl Pod {
    pub(crate) fn of_environment() -> Self {
        let set = |name| env::var(name).ok().filter(|text| !text.is_empty());
        let or_not = |text: Option<String>| text.unwrap_or_else(|| NOT_SET.to_owned());
        Self { name: or_not(set("POD_NAME")), ip: or_not(set("POD_IP")), job: set("ENV_ARGO_WORKFLOW_NAME") }
    }

    /// Labels of a rank, in alphabetical order as in xpu-timer.
    fn labels(&self, job: &Job, rank: Rank, view: &RankView, more: &[(&'static str, String)]) -> Vec<Label> {
        let local = view
            .info()
            .and_then(|info| info.local_rank)
            .map_or_else(|| rank.to_string(), |local| local.to_string());
        // Two jobs of one host must not have the same labels.
        let job = self.job.as_deref().unwrap_or_else(|| job.name().as_str());
        let common = [
            ("ip", label(&self.ip)),
            ("job_name", label(job)),
            ("local_rank", label(&local)),
            ("pod_name", label(&self.name)),
            ("rank", rank.to_string().into()),
        ];
        let more = more.iter().map(|(name, text)| (*name, label(text)));
        common.into_iter().chain(more).collect::<BTreeMap<_, _>>().into_iter().collect()
    }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric::new(Kind::Gauge, In::Number, name, help)
}

/// Average, maximum, 99th percentile, minimum and rate.
type Five = [Metric; 5];

const GEMMS: Five = [
    gauge("XPU_TIMER_MM_KERNEL_AVG_LATENCY", "Microseconds"),
    gauge("XPU_TIMER_MM_KERNEL_MAX_LATENCY", "Microseconds"),
    gauge("XPU_TIMER_MM_KERNEL_P99_LATENCY", "Microseconds"),
    gauge("XPU_TIMER_MM_KERNEL_MIN_LATENCY", "Microseconds"),
    gauge("XPU_TIMER_MM_KERNEL_FLOPS", "TFLOPS"),
];

const COLLECTIVES: Five = [
    gauge("XPU_TIMER_COLL_KERNEL_AVG_LATENCY", "Microseconds, waiting included"),
    gauge("XPU_TIMER_COLL_KERNEL_MAX_LATENCY", "Microseconds, waiting included"),
    gauge("XPU_TIMER_COLL_KERNEL_P99_LATENCY", "Microseconds, waiting included"),
    gauge("XPU_TIMER_COLL_KERNEL_MIN_LATENCY", "Microseconds, waiting included"),
    gauge("XPU_TIMER_COLL_KERNEL_BANDWIDTH", "Gbit/s on the bus"),
];

const HANG: Metric = gauge("XPU_TIMER_COMMON_HANG", "1 for every living rank of a hung job");

const DUMPING: Metric = gauge("XPU_TIMER_COMMON_START_DUMP", "1 while a capture requested over HTTP runs");
const DUMPED: Metric = gauge("XPU_TIMER_COMMON_END_DUMP", "1 when the last of them is done");

/// Gauges of queues that this program does not have. They are always 0.
const NOTHING: [Metric; 2] = [
    gauge("XPU_TIMER_COMMON_POOL_QUEUE_SIZE", "Always 0"),
    gauge("XPU_TIMER_COMMON_WORK_QUEUE_SIZE", "Always 0"),
];

const COLLECTIONS: Metric = gauge("XPU_TIMER_COMMON_GC_COUNT", "Garbage collections of Python");
const BATCHES: Metric =
    gauge("XPU_TIMER_COMMON_DATA_LOADER_COUNT", "Batches requested from PyTorch's DataLoader");

/// The progress of the last capture over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dump {
    #[default]
    None,
    Making,
    Done,
}

const MEMORY: Metric = gauge("XPU_TIMER_MEMORY_COUNTER", "Calls");

pub(super) fn expose(
    exposition: &mut Exposition,
    pod: &Pod,
    job: &Job,
    rank: Rank,
    view: &RankView,
    levels: Option<&Levels>,
    is_stuck: bool,
    dump: Dump,
    now: Moment,
) {
    let labels = |more: &[(&'static str, String)]| pod.labels(job, rank, view, more);
    if view.is_alive() {
        exposition.put(HANG, &labels(&[]), Value::Whole(i64::from(is_stuck)));
        for (metric, is) in [(DUMPING, Dump::Making), (DUMPED, Dump::Done)] {
            exposition.put(metric, &labels(&[]), Value::Whole(i64::from(dump == is)));
        }
        for metric in NOTHING {
            exposition.put(metric, &labels(&[]), Value::Whole(0));
        }
    }
    let Some(levels) = levels else { return };
    if let Some(python) = levels.python {
        for (metric, count) in [(COLLECTIONS, python.collections), (BATCHES, python.batches)] {
            exposition.put(metric, &labels(&[]), Value::Whole(count as i64));
        }
    }
    // Several element types and operations may have the same name in xpu-timer.
    let mut multiplied: BTreeMap<Vec<Label>, Cell> = BTreeMap::new();
    for (Multiplied { datatype, level }, cell) in levels.multiplied.cells(now).0 {
        let more =
            [("dtype", dtype(datatype)), ("level", level.to_string()), ("operation", "Matmul".to_owned())];
        multiplied.entry(labels(&more)).or_default().add(&cell);
    }
    for (labels, cell) in multiplied {
        five(exposition, GEMMS, &labels, &cell, |cell| cell.work / 1e3);
    }
    let mut moved: BTreeMap<Vec<Label>, Cell> = BTreeMap::new();
    for (kind, cell) in levels.moved.cells(now).0 {
        let transport = if kind.within_host { "IntraNode" } else { "InterNode" };
        let labels = labels(&[
            ("algorithm", algorithm(kind.plan)),
            ("dtype", dtype(kind.datatype)),
            ("level", kind.level.to_string()),
            ("operation", operation(kind.operation)),
            ("small", u8::from(kind.small).to_string()),
            ("transport", transport.to_owned()),
        ]);
        moved.entry(labels).or_default().add(&cell);
    }
    for (labels, cell) in moved {
        five(exposition, COLLECTIVES, &labels, &cell, |cell| cell.work);
    }
    expose_memory(exposition, &levels.memory, labels);
}

fn five(
    exposition: &mut Exposition,
    metrics: Five,
    labels: &[Label],
    cell: &Cell,
    work: impl Fn(&Cell) -> f64,
) {
    let Cell { durations, .. } = cell;
    let [average, longest, p99, shortest, rate] = metrics;
    let took = durations.sum();
    let mean = Nanoseconds(took.0.checked_div(durations.count()).unwrap_or(0));
    exposition.put(average, labels, microseconds(mean));
    for (metric, quantile) in [(longest, 1.0), (p99, 0.99), (shortest, 0.0)] {
        exposition.put(metric, labels, microseconds(at(durations, quantile)));
    }
    // TFLOPS are FLOPs per nanosecond over a thousand, Gbit/s bits per nanosecond.
    exposition.put(rate, labels, Value::Gauge(gigabits(work(cell), took)));
}

fn at(durations: &Histogram, quantile: f64) -> Nanoseconds {
    durations.quantile(quantile).unwrap_or_default()
}

fn microseconds(time: Nanoseconds) -> Value {
    Value::Whole((time.0 as f64 / 1e3).round() as i64)
}

fn expose_memory(
    exposition: &mut Exposition,
    memory: &MemoryTotals,
    labels: impl Fn(&[(&'static str, String)]) -> Vec<Label>,
) {
    for (name, count) in [("cudaMalloc", memory.allocations), ("cudaFree", memory.frees)] {
        if count > 0 {
            let labels = labels(&[("operation", name.to_owned()), ("kind", String::new())]);
            exposition.put(MEMORY, &labels, Value::Whole(count as i64));
        }
    }
    let mut copies: BTreeMap<&str, u64> = BTreeMap::new();
    for copy in &memory.copies {
        let kind = match copy.direction {
            Direction::HostToHost => "H2H",
            Direction::HostToDevice => "H2D",
            Direction::DeviceToHost => "D2H",
            Direction::DeviceToDevice | Direction::PeerToPeer => "D2D",
            // xpu-timer's spelling.
            Direction::ByAddress => "Unkonwn",
        };
        *copies.entry(kind).or_default() += copy.count;
    }
    for (kind, count) in copies {
        let labels = labels(&[("operation", "cudaMemcpyAsync".to_owned()), ("kind", kind.to_owned())]);
        exposition.put(MEMORY, &labels, Value::Whole(count as i64));
    }
}

#[cfg(test)]
#[path = "compat_tests.rs"]
mod tests;
