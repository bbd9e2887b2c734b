//! One rank's activity other than GEMMs and collectives, and the cost of monitoring it; only for ranks with
//! requested details.

use serde::{Deserialize, Serialize};
use xpu_wire::{
    frame::{
        Blocked, BlockingCall, Direction, GraphTotals, KernelTotals, MemoryTotals, PythonTotals, SpanTotals,
        Summary,
    },
    unit::Nanoseconds,
};

use super::{MemorySiteStatus, microseconds};
use crate::job::RankView;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Name of the GPU, as CUDA gives it; empty while unknown.
    pub device: String,
    /// Its UUID, as `nvidia-smi -L` lists it, without `GPU-` or `MIG-`.
    #[serde(default)]
    pub device_uuid: Option<String>,
    pub graphs: Vec<GraphStatus>,
    /// Kernels with names requested by `XPU_TOP_KERNELS`.
    pub kernels: Vec<KernelStatus>,
    pub memory: MemoryStatus,
    /// Calls that wait for the GPU, most time first.
    pub blocked: Vec<BlockedStatus>,
    /// Present with `XPU_TOP_TRACE_FUNCS_ALWAYS`.
    #[serde(default)]
    pub python: Option<PythonStatus>,
    /// Spans that the program names with `Tracer.span`, since the rank started.
    #[serde(default)]
    pub spans: Vec<SpanStatus>,
    /// The measured cost of timing one operation, for its thread and for the GPU.
    pub event_us: f64,
    pub event_gap_us: f64,
    /// Memory the hook holds.
    pub hook_bytes: u64,
}

/// One CUDA graph, launched as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphStatus {
    pub graph: u32,
    /// The contents of one launch.
    pub gemms: u32,
    pub gflop: f64,
    pub collectives: u32,
    pub bus_bytes: u64,
    pub launches: u64,
    pub timed: u64,
    pub us_p50: Option<f64>,
    pub us_p99: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelStatus {
    pub pattern: String,
    pub launches: u64,
    pub timed: u64,
    pub us_p50: Option<f64>,
    pub us_p99: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryStatus {
    pub held_bytes: u64,
    pub peak_bytes: u64,
    pub host_held_bytes: u64,
    pub allocations: u64,
    pub frees: u64,
    pub set_bytes: u64,
    pub copies: Vec<CopiesStatus>,
    /// Call sites by growth since the first steps, largest first; before those steps, by the memory they
    /// hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<MemorySiteStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesStatus {
    /// `host_to_device` and the like.
    pub direction: String,
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockedStatus {
    /// `stream_synchronize` and the like.
    pub call: String,
    pub count: u64,
    pub waited_s: f64,
    pub longest_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PythonStatus {
    pub garbage_collections: u64,
    pub garbage_collection_s: f64,
    /// Batches of PyTorch's `DataLoader`.
    pub batches: u64,
    pub batch_wait_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanStatus {
    pub name: String,
    pub count: u64,
    pub took_s: f64,
}

impl From<&SpanTotals> for SpanStatus {
    fn from(totals: &SpanTotals) -> Self {
        Self { name: totals.name.clone(), count: totals.count, took_s: totals.took.seconds() }
    }
}

impl From<PythonTotals> for PythonStatus {
    fn from(totals: PythonTotals) -> Self {
        Self {
            garbage_collections: totals.collections,
            garbage_collection_s: totals.collecting.seconds(),
            batches: totals.batches,
            batch_wait_s: totals.loading.seconds(),
        }
    }
}

impl Activity {
    /// `None` for a rank that is not watched.
    pub(super) fn of(view: &RankView) -> Option<Self> {
        let Summary { device, device_uuid, memory, blocked, python, spans, hook, .. } = view.summary()?;
        let mut blocked: Vec<_> = blocked.iter().map(waiting).collect();
        blocked.sort_by(|a, b| b.waited_s.total_cmp(&a.waited_s));
        let us = |time: Nanoseconds| time.0 as f64 / 1e3;
        Some(Self {
            device: device.clone(),
            device_uuid: device_uuid.map(|uuid| uuid.to_string()),
            graphs: view.graphs().map(graph).collect(),
            kernels: view.kernels().map(kernel).collect(),
            memory: held(memory),
            blocked,
            python: python.map(PythonStatus::from),
            spans: spans.iter().map(SpanStatus::from).collect(),
            event_us: us(hook.event_cost),
            event_gap_us: us(hook.event_gap),
            hook_bytes: hook.memory,
        })
    }
}

fn graph(total: &GraphTotals) -> GraphStatus {
    GraphStatus {
        graph: total.graph,
        gemms: total.gemms,
        gflop: total.flops / 1e9,
        collectives: total.collectives,
        bus_bytes: total.bus_bytes,
        launches: total.count,
        timed: total.timed,
        us_p50: microseconds(&total.durations, 0.5),
        us_p99: microseconds(&total.durations, 0.99),
    }
}

fn kernel(total: &KernelTotals) -> KernelStatus {
    KernelStatus {
        pattern: total.pattern.clone(),
        launches: total.count,
        timed: total.timed,
        us_p50: microseconds(&total.durations, 0.5),
        us_p99: microseconds(&total.durations, 0.99),
    }
}

fn held(memory: &MemoryTotals) -> MemoryStatus {
    let copies = memory.copies.iter().map(|copies| CopiesStatus {
        direction: match copies.direction {
            Direction::HostToHost => "host_to_host",
            Direction::HostToDevice => "host_to_device",
            Direction::DeviceToHost => "device_to_host",
            Direction::DeviceToDevice => "device_to_device",
            Direction::ByAddress => "by_address",
            Direction::PeerToPeer => "peer_to_peer",
        }
        .to_owned(),
        count: copies.count,
        bytes: copies.bytes,
    });
    MemoryStatus {
        held_bytes: memory.held,
        peak_bytes: memory.peak,
        host_held_bytes: memory.host_held,
        allocations: memory.allocations,
        frees: memory.frees,
        set_bytes: memory.set,
        copies: copies.collect(),
        sites: memory.sites.iter().map(MemorySiteStatus::from).collect(),
    }
}

fn waiting(blocked: &Blocked) -> BlockedStatus {
    BlockedStatus {
        call: match blocked.call {
            BlockingCall::StreamSynchronize => "stream_synchronize",
            BlockingCall::DeviceSynchronize => "device_synchronize",
            BlockingCall::EventSynchronize => "event_synchronize",
            BlockingCall::Copy => "copy",
            BlockingCall::Launch => "launch",
        }
        .to_owned(),
        count: blocked.count,
        waited_s: blocked.waited.seconds(),
        longest_ms: blocked.longest.milliseconds(),
    }
}
