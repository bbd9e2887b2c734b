//! Every native metric: name, unit, kind and description. The page and OTLP are built from this table, and a test
//! compares docs/http.md with it.

use std::borrow::Cow;

use prometheus_client::registry::Unit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

/// The unit of a value, in base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum In {
    /// A count, or a boolean.
    Number,
    Seconds,
    Bytes,
    /// A share; 1 means all.
    Ratio,
    /// Floating-point operations.
    Flops,
    FlopsPerSecond,
    BytesPerSecond,
    Hertz,
    Watts,
    Celsius,
}

impl In {
    /// The suffix of a metric's name.
    fn word(self) -> Option<&'static str> {
        Some(match self {
            Self::Number => return None,
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Ratio => "ratio",
            Self::Flops => "flops",
            Self::FlopsPerSecond => "flops_per_second",
            Self::BytesPerSecond => "bytes_per_second",
            Self::Hertz => "hertz",
            Self::Watts => "watts",
            Self::Celsius => "celsius",
        })
    }

    /// The unit for the page, which appends it to the name.
    pub(crate) fn unit(self) -> Option<Unit> {
        self.word().map(|word| Unit::Other(word.to_owned()))
    }

    /// OTLP's unit (UCUM).
    pub(crate) fn ucum(self) -> &'static str {
        match self {
            Self::Number => "",
            Self::Seconds => "s",
            Self::Bytes => "By",
            Self::Ratio => "1",
            Self::Flops => "{FLOP}",
            Self::FlopsPerSecond => "{FLOP}/s",
            Self::BytesPerSecond => "By/s",
            Self::Hertz => "Hz",
            Self::Watts => "W",
            Self::Celsius => "Cel",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// The name without unit and without `_total`.
    pub stem: Cow<'static, str>,
    pub unit: In,
    pub kind: Kind,
    pub help: &'static str,
}

impl Metric {
    pub(crate) const fn new(kind: Kind, unit: In, stem: &'static str, help: &'static str) -> Self {
        Self { stem: Cow::Borrowed(stem), unit, kind, help }
    }

    /// The `PromQL` name.
    #[cfg(test)]
    pub(crate) fn name(&self) -> String {
        let unit = self.unit.word().map(|word| format!("_{word}")).unwrap_or_default();
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.stem)
    }
}

macro_rules! metrics {
    ($($name:ident = $kind:ident $unit:ident $stem:literal $help:literal;)*) => {
        $(pub(crate) const $name: Metric = Metric::new(Kind::$kind, In::$unit, $stem, $help);)*
        #[cfg(test)]
        pub(crate) const ALL: &[Metric] = &[$($name),*];
    };
}

metrics! {
    // Jobs.
    JOB_WORLD_SIZE = Gauge Number "xpu_top_job_world_size" "World size of the job";
    JOB_RANKS_SEEN = Gauge Number "xpu_top_job_ranks_seen" "Ranks of the job known here";
    JOB_RANKS_LIVING = Gauge Number "xpu_top_job_ranks_living" "Living ranks of the job";
    JOB_HANG = Gauge Number "xpu_top_job_hang" "1 while the job makes no progress (a hang or a dead rank), judged by the ranks known here";
    JOB_STEP_MEDIAN = Gauge Seconds "xpu_top_job_step_median" "Median over ranks of the median of their single steps";
    JOB_STEP_MEAN = Gauge Seconds "xpu_top_job_step_mean" "Median over ranks of their step time: elapsed time over the steps of the last half minute";
    JOB_JOINED = Gauge Ratio "xpu_top_job_joined" "Share of the timed collectives that are matched; only these give transfer bandwidth and arrival skew";
    JOB_TURNED_AWAY = Gauge Number "xpu_top_job_turned_away" "Living processes whose rank in this job belongs to another process";
    JOB_LOST = Gauge Ratio "xpu_top_job_lost" "Share of the job's time that its findings cost, if known; 0 without findings if all ranks are seen";
    FINDINGS = Gauge Number "xpu_top_findings" "Findings by kind, class, severity and confidence";
    FINDING_COST = Gauge Ratio "xpu_top_finding_cost" "Share of the job's time that the costliest of these findings costs, if known";
    FINDING_RANK = Gauge Number "xpu_top_finding_rank" "1 for each rank a finding names";
    FINDING_AGE = Gauge Seconds "xpu_top_finding_age" "Age of the oldest finding of a kind";
    // What-if.
    WHAT_IF_SLOWDOWN = Gauge Ratio "xpu_top_what_if_slowdown" "Slowdown S of a step by stragglers, by the last what-if capture: 1.1 is 10 % longer than the ideal step";
    WHAT_IF_STEP = Gauge Seconds "xpu_top_what_if_step" "Simulated step, by the last what-if capture";
    WHAT_IF_IDEAL = Gauge Seconds "xpu_top_what_if_ideal_step" "Predicted step without stragglers";
    WHAT_IF_REPAIRED = Gauge Seconds "xpu_top_what_if_repaired_step" "Predicted step without one cause";
    WHAT_IF_AGE = Gauge Seconds "xpu_top_what_if_age" "Time since the last what-if capture that gave an estimate";
    WHAT_IF_CAPTURES = Counter Number "xpu_top_what_if_captures" "What-if captures, by result";
    WHAT_IF_STEPS = Counter Number "xpu_top_what_if_steps" "Steps since the first what-if capture: the sums below cover these";
    WHAT_IF_GPU = Counter Seconds "xpu_top_what_if_gpu" "GPU time of all ranks in these steps";
    WHAT_IF_LOST = Counter Seconds "xpu_top_what_if_lost_gpu" "GPU time lost in these steps, by cause; causes overlap";
    WHAT_IF_MONEY = Counter Number "xpu_top_what_if_lost_money" "Cost of the GPU time lost in these steps, if a price is set";
    WHAT_IF_RANK_LOST = Counter Seconds "xpu_top_what_if_rank_lost_gpu" "GPU time lost by slow ranks, for the 16 costliest";
    WHAT_IF_HOST_LOST = Counter Seconds "xpu_top_what_if_host_lost_gpu" "GPU time lost by slow hosts, for the 16 costliest";
    // Ranks.
    RANK_INFO = Gauge Number "xpu_top_rank_info" "1, with the identity of a rank as labels";
    RANK_STATE = Gauge Number "xpu_top_rank_state" "1 for the state a rank is in, 0 for the others";
    RANK_SILENCE = Gauge Seconds "xpu_top_rank_silence" "Time since the last report of a rank";
    STEPS = Counter Number "xpu_top_steps" "Steps completed";
    STEP_MEAN = Gauge Seconds "xpu_top_step_mean" "Elapsed time over the steps of the last half minute";
    STEP_MEDIAN = Gauge Seconds "xpu_top_step_median" "Median of the single steps of the last half minute";
    STEP_DURATION = Histogram Seconds "xpu_top_step_duration" "Step times";
    TOKENS = Counter Number "xpu_top_tokens" "Tokens, as the program reports";
    SAMPLES = Counter Number "xpu_top_samples" "Samples, as the program reports";
    LOSS = Gauge Number "xpu_top_loss" "The last loss, as the program reports";
    MFU = Gauge Ratio "xpu_top_mfu" "Share of the last half minute that the rank's GEMMs would take at the GPU's peak";
    LATENESS = Gauge Seconds "xpu_top_lateness" "Arrival skew: how much later than the first rank this one entered its collectives, at the median";
    BUS_BANDWIDTH = Gauge BytesPerSecond "xpu_top_bus_bandwidth" "Bus bandwidth of the transfer, without waiting, at the median of the latest timed collectives";
    BLOCKED = Counter Seconds "xpu_top_blocked" "Time threads were blocked in calls that wait for the GPU, and in launches into a full queue";
    EXPOSED = Counter Seconds "xpu_top_exposed" "Exposed communication: time that GEMM streams waited for it, estimated from a sample";
    GPU_TIME = Gauge Ratio "xpu_top_gpu_time" "Share of the last half minute: GEMMs, CUDA graphs, exposed communication, other kernels, and an idle GPU by the driver";
    LAUNCHES = Counter Number "xpu_top_launches" "Launches by kind";
    NCCL_COUNTED = Gauge Ratio "xpu_top_nccl_counted" "Share of the NCCL calls seen that are counted";
    NCCL_CALLS = Counter Number "xpu_top_nccl_calls" "NCCL operations by how they are seen, and calls that are not counted";
    MEMORY_HELD = Gauge Bytes "xpu_top_memory_held" "Device memory allocated through the CUDA runtime and not freed";
    MEMORY_NCCL = Gauge Bytes "xpu_top_memory_nccl" "Device memory used by NCCL: the decrease of free memory during its calls";
    MEMORY_GROWTH = Gauge Bytes "xpu_top_memory_growth" "Steady growth of the device memory held, per step; absent if there is none";
    // GEMMs.
    GEMM_RATE = Gauge FlopsPerSecond "xpu_top_gemm_rate" "FLOPS of the timed GEMMs of the last half minute";
    GEMMS = Counter Number "xpu_top_gemms" "GEMMs launched";
    GEMM_FLOPS = Counter Flops "xpu_top_gemm" "FLOPs of all GEMMs launched";
    GEMM_TIMED_FLOPS = Counter Flops "xpu_top_gemm_timed" "FLOPs of the timed GEMMs, without gemv and trsm";
    GEMM_TIMED = Counter Seconds "xpu_top_gemm_timed_duration" "Time of the timed GEMMs, without gemv and trsm: their FLOPs over this is their rate";
    GEMM_DURATION = Histogram Seconds "xpu_top_gemm_duration" "Durations of the timed GEMMs, since this page has been read";
    // Python, if XPU_TOP_TRACE_FUNCS_ALWAYS is set.
    COLLECTIONS = Counter Number "xpu_top_python_garbage_collections" "Garbage collections of Python, with XPU_TOP_TRACE_FUNCS_ALWAYS";
    COLLECTING = Counter Seconds "xpu_top_python_garbage_collection" "Their time";
    BATCHES = Counter Number "xpu_top_data_loader_batches" "Batches requested from PyTorch's DataLoader, with XPU_TOP_TRACE_FUNCS_ALWAYS";
    LOADING = Counter Seconds "xpu_top_data_loader_wait" "Time until they were available";
    // Collectives.
    COLLECTIVES = Counter Number "xpu_top_collectives" "NCCL operations";
    COLLECTIVE_BYTES = Counter Bytes "xpu_top_collective" "Bytes of the timed collectives, as nccl-tests counts them";
    COLLECTIVE_DURATION = Histogram Seconds "xpu_top_collective_duration" "Durations of the timed collectives on the rank, including waits for others, since this page has been read";
    COLLECTIVE_BANDWIDTH = Gauge BytesPerSecond "xpu_top_collective_bus_bandwidth" "Bus bandwidth of the transfer, at the median of the latest timed collectives of a kind";
    // The rank's processes.
    RANK_CPU = Gauge Number "xpu_top_rank_cpu_cores" "Cores that the rank's process and those that it started used in the last second";
    RANK_DISK = Gauge BytesPerSecond "xpu_top_rank_disk" "Bytes that the rank's processes read from and wrote to storage";
    // GPUs.
    GPU_UTILISATION = Gauge Ratio "xpu_top_gpu_utilisation" "Share of NVML's last sampling period in which a kernel ran, including waiting kernels";
    GPU_SM_CLOCK = Gauge Hertz "xpu_top_gpu_sm_clock" "SM clock";
    GPU_SM_CLOCK_MAX = Gauge Hertz "xpu_top_gpu_sm_clock_max" "Highest SM clock of this GPU";
    GPU_MEMORY_CLOCK = Gauge Hertz "xpu_top_gpu_memory_clock" "Memory clock";
    GPU_POWER = Gauge Watts "xpu_top_gpu_power" "Power drawn";
    GPU_POWER_LIMIT = Gauge Watts "xpu_top_gpu_power_limit" "Enforced power limit";
    GPU_TEMPERATURE = Gauge Celsius "xpu_top_gpu_temperature" "Temperature";
    GPU_MEMORY_USED = Gauge Bytes "xpu_top_gpu_memory_used" "Device memory used by all processes on the GPU";
    GPU_MEMORY_TOTAL = Gauge Bytes "xpu_top_gpu_memory_size" "Device memory size";
    GPU_ECC_ERRORS = Counter Number "xpu_top_gpu_ecc_errors" "Memory errors since the driver was loaded";
    GPU_NVLINK_ERRORS = Counter Number "xpu_top_gpu_nvlink_errors" "Replays, recoveries and checksum errors of all NVLinks since the driver was loaded";
    GPU_XID_ERRORS = Counter Number "xpu_top_gpu_xid_errors" "Errors the driver reported since the collector started";
    GPU_SM = Gauge Ratio "xpu_top_gpu_sm_active" "Share of the last second in which a multiprocessor had work, the mean over them";
    GPU_DRAM = Gauge Ratio "xpu_top_gpu_dram_active" "Share of the memory's bandwidth that was used in the last second";
    GPU_PCIE = Gauge BytesPerSecond "xpu_top_gpu_pcie" "Bytes over PCIe";
    GPU_NVLINK = Gauge BytesPerSecond "xpu_top_gpu_nvlink" "Bytes over all NVLinks together";
    GPU_HELD = Gauge Number "xpu_top_gpu_clocks_held" "1 while a cause other than idleness limits the clocks";
    GPU_READ = Gauge Seconds "xpu_top_gpu_reading_age" "Age of the GPU reading";
    // Coverage and overhead.
    HOOK_ENABLED = Gauge Number "xpu_top_hook_enabled" "1 while the hook observes";
    OVERHEAD = Gauge Ratio "xpu_top_overhead" "Share of wall time that timing takes from launching threads";
    BUDGET = Gauge Ratio "xpu_top_overhead_budget" "Budget of that share";
    TIMED_ONE_IN = Gauge Number "xpu_top_timed_one_in" "One operation in this many is timed";
    DROPPED = Counter Number "xpu_top_dropped_records" "Records the hook lost because a ring was full";
    UNTIMED = Counter Number "xpu_top_untimed_operations" "Operations that were selected for timing and not timed";
    BLIND = Gauge Number "xpu_top_hook_blind" "Things the hook cannot see; /api/v1/jobs/JOB names them";
    // The machine.
    HOST_CPU = Counter Seconds "xpu_top_host_cpu" "CPU time of all processors of this collector's host, by mode";
    HOST_NETWORK = Counter Bytes "xpu_top_host_network" "Bytes through a network device of this collector's host";
    HOST_NETWORK_ERRORS = Counter Number "xpu_top_host_network_errors" "Packets lost by a network device of this collector's host, by errors and drops";
    HOST_DISK = Counter Bytes "xpu_top_host_disk" "Bytes read from and written to a disk of this collector's host";
    HOST_MEMORY = Gauge Bytes "xpu_top_host_memory_size" "Memory of this collector's host";
    HOST_MEMORY_AVAILABLE = Gauge Bytes "xpu_top_host_memory_available" "Memory of this collector's host that new programs could use";
    // The collector.
    BUILD = Gauge Number "xpu_top_collector_info" "1, with version and host of each known collector";
    STARTED = Gauge Seconds "xpu_top_collector_start_time" "Start time of the collector, since 1970";
    FRAMES_LOST = Counter Number "xpu_top_frames_lost" "Frames that the known collectors could not send";
    FRAMES_MISSED = Counter Number "xpu_top_exporter_frames_missed" "Frames that were published and did not reach this page";
    FOLLOWED = Gauge Seconds "xpu_top_exporter_followed" "Time for which this page has been read without a pause; histograms cover it";
    LABELS_FOLDED = Gauge Number "xpu_top_exporter_labels_folded" "Label sets beyond the limit, counted under other";
    SHAPES_LEFT_OUT = Gauge Number "xpu_top_exporter_shapes_left_out" "Shapes beyond the limit, with --per-shape";
    RANKS_PLAIN = Gauge Number "xpu_top_exporter_ranks_without_detail" "Ranks without histograms and element types here";
    HTTP_REQUESTS = Counter Number "xpu_top_http_requests" "HTTP requests answered, by status";
    HTTP_REFUSED = Counter Number "xpu_top_http_connections_refused" "Connections closed without an answer because there were too many";
    PROCESS_CPU = Counter Seconds "process_cpu" "CPU time of this collector";
    PROCESS_MEMORY = Gauge Bytes "process_resident_memory" "Resident memory of this collector";
    PROCESS_FILES = Gauge Number "process_open_fds" "Open descriptors of this collector";
}
