//! Every native metric: name, unit, kind and what it is. The page, OTLP and docs/http.md have them from here.

use std::borrow::Cow;

use prometheus_client::registry::Unit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

/// What one is, in base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum In {
    /// A number of things, or a truth.
    Number,
    Seconds,
    Bytes,
    /// 1 is all.
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
    /// As the name of a metric ends.
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

    /// For the page: it is appended to the name.
    pub(crate) fn unit(self) -> Option<Unit> {
        self.word().map(|word| Unit::Other(word.to_owned()))
    }

    /// As OTLP has it (UCUM).
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

    /// As `PromQL` has it.
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
    JOB_WORLD_SIZE = Gauge Number "xpu_top_job_world_size" "Ranks the job says it has";
    JOB_RANKS_SEEN = Gauge Number "xpu_top_job_ranks_seen" "Ranks of the job that were heard of here";
    JOB_RANKS_LIVING = Gauge Number "xpu_top_job_ranks_living" "Ranks of the job that live";
    JOB_HANG = Gauge Number "xpu_top_job_hang" "1 while the job makes no progress, for a hang or a rank that died, as far as the ranks heard here tell";
    JOB_STEP_MEDIAN = Gauge Seconds "xpu_top_job_step_median" "Median over ranks of the median of their single steps";
    JOB_STEP_MEAN = Gauge Seconds "xpu_top_job_step_mean" "Median over ranks of their step time: elapsed time over the steps of the last half minute";
    JOB_JOINED = Gauge Ratio "xpu_top_job_joined" "Share of the timed collectives that every rank of the communicator reported: bandwidth on transfer and lateness are of these";
    JOB_TURNED_AWAY = Gauge Number "xpu_top_job_turned_away" "Living processes that claim ranks of this job which others are";
    JOB_LOST = Gauge Ratio "xpu_top_job_lost" "Share of the job's time that its findings cost, as far as that is known; 0 without findings";
    FINDINGS = Gauge Number "xpu_top_findings" "Findings by kind, class and confidence";
    FINDING_RANK = Gauge Number "xpu_top_finding_rank" "1 for each rank a finding names";
    FINDING_AGE = Gauge Seconds "xpu_top_finding_age" "How long the oldest finding of a kind has been so";
    // Ranks.
    RANK_INFO = Gauge Number "xpu_top_rank_info" "1, with what a rank is";
    RANK_STATE = Gauge Number "xpu_top_rank_state" "1 for the state a rank is in, 0 for the others";
    RANK_SILENCE = Gauge Seconds "xpu_top_rank_silence" "Time since a rank was last heard";
    STEPS = Counter Number "xpu_top_steps" "Steps completed";
    STEP_MEAN = Gauge Seconds "xpu_top_step_mean" "Elapsed time over the steps of the last half minute";
    STEP_MEDIAN = Gauge Seconds "xpu_top_step_median" "Median of the single steps of the last half minute";
    STEP_DURATION = Histogram Seconds "xpu_top_step_duration" "Step times";
    TOKENS = Counter Number "xpu_top_tokens" "Tokens, as the program says";
    SAMPLES = Counter Number "xpu_top_samples" "Samples, as the program says";
    LOSS = Gauge Number "xpu_top_loss" "The last loss, as the program says";
    MFU = Gauge Ratio "xpu_top_mfu" "Share of the last half minute in which the products could have been done at the GPU's peak";
    LATENESS = Gauge Seconds "xpu_top_lateness" "How much later than the first rank this one came to its collectives, at the median";
    BUS_BANDWIDTH = Gauge BytesPerSecond "xpu_top_bus_bandwidth" "Bus bandwidth on the transfer alone, waiting left out, at the median of the latest timed collectives";
    BLOCKED = Counter Seconds "xpu_top_blocked" "Time threads were held in calls that wait for the GPU";
    EXPOSED = Counter Seconds "xpu_top_exposed" "Time streams of products were held up by communication, estimated from a sample";
    LAUNCHES = Counter Number "xpu_top_launches" "Launches by kind";
    MEMORY_HELD = Gauge Bytes "xpu_top_memory_held" "Device memory allocated through the CUDA runtime and not freed";
    // Products.
    GEMM_RATE = Gauge FlopsPerSecond "xpu_top_gemm_rate" "Arithmetic rate of the timed products of the last half minute";
    GEMMS = Counter Number "xpu_top_gemms" "Matrix products launched";
    GEMM_FLOPS = Counter Flops "xpu_top_gemm" "Arithmetic of all matrix products launched";
    GEMM_TIMED_FLOPS = Counter Flops "xpu_top_gemm_timed" "Arithmetic of the timed ones";
    GEMM_TIMED = Counter Seconds "xpu_top_gemm_timed_duration" "Time of the timed ones: arithmetic over this is their rate";
    GEMM_DURATION = Histogram Seconds "xpu_top_gemm_duration" "Times of the timed ones, added up since these pages are read";
    // Python, where XPU_TOP_TRACE_FUNCS_ALWAYS is set.
    COLLECTIONS = Counter Number "xpu_top_python_garbage_collections" "Garbage collections of Python, with XPU_TOP_TRACE_FUNCS_ALWAYS";
    COLLECTING = Counter Seconds "xpu_top_python_garbage_collection" "Their time";
    BATCHES = Counter Number "xpu_top_data_loader_batches" "Batches asked of PyTorch's DataLoader, with XPU_TOP_TRACE_FUNCS_ALWAYS";
    LOADING = Counter Seconds "xpu_top_data_loader_wait" "Time until they were there";
    // Collectives.
    COLLECTIVES = Counter Number "xpu_top_collectives" "NCCL operations";
    COLLECTIVE_BYTES = Counter Bytes "xpu_top_collective" "Their bytes, as nccl-tests counts them";
    COLLECTIVE_DURATION = Histogram Seconds "xpu_top_collective_duration" "Times of the timed ones as the rank saw them, waiting for others included, added up since these pages are read";
    COLLECTIVE_BANDWIDTH = Gauge BytesPerSecond "xpu_top_collective_bus_bandwidth" "Bus bandwidth on the transfer alone, at the median of the latest timed ones of a kind";
    // GPUs.
    GPU_UTILISATION = Gauge Ratio "xpu_top_gpu_utilisation" "Share of the last moments in which any kernel ran, waiting ones included";
    GPU_SM_CLOCK = Gauge Hertz "xpu_top_gpu_sm_clock" "SM clock";
    GPU_SM_CLOCK_MAX = Gauge Hertz "xpu_top_gpu_sm_clock_max" "The highest SM clock this GPU can have";
    GPU_MEMORY_CLOCK = Gauge Hertz "xpu_top_gpu_memory_clock" "Memory clock";
    GPU_POWER = Gauge Watts "xpu_top_gpu_power" "Power drawn";
    GPU_POWER_LIMIT = Gauge Watts "xpu_top_gpu_power_limit" "Power limit that is enforced";
    GPU_TEMPERATURE = Gauge Celsius "xpu_top_gpu_temperature" "Temperature";
    GPU_MEMORY_USED = Gauge Bytes "xpu_top_gpu_memory_used" "Device memory used by all processes on the GPU";
    GPU_MEMORY_TOTAL = Gauge Bytes "xpu_top_gpu_memory_size" "Device memory there is";
    GPU_ECC_ERRORS = Counter Number "xpu_top_gpu_ecc_errors" "Memory errors since the driver was loaded";
    GPU_NVLINK_ERRORS = Counter Number "xpu_top_gpu_nvlink_errors" "Replays, recoveries and checksum errors of all NVLinks since the driver was loaded";
    GPU_XID_ERRORS = Counter Number "xpu_top_gpu_xid_errors" "Errors the driver told of since the collector started";
    GPU_HELD = Gauge Number "xpu_top_gpu_clocks_held" "1 while anything but rest holds the clocks down";
    GPU_READ = Gauge Seconds "xpu_top_gpu_reading_age" "How old the reading of the GPU is";
    // How much was seen, and what it cost.
    HOOK_ENABLED = Gauge Number "xpu_top_hook_enabled" "1 while the hook observes";
    OVERHEAD = Gauge Ratio "xpu_top_overhead" "Share of wall time that timing takes from launching threads";
    BUDGET = Gauge Ratio "xpu_top_overhead_budget" "Share that it may take";
    TIMED_ONE_IN = Gauge Number "xpu_top_timed_one_in" "One operation in so many is timed";
    DROPPED = Counter Number "xpu_top_dropped_records" "Records the hook lost because a ring was full";
    UNTIMED = Counter Number "xpu_top_untimed_operations" "Operations that should have been timed and were not";
    BLIND = Gauge Number "xpu_top_hook_blind" "Things the hook cannot see; /api/v1/jobs/JOB names them";
    // The collector.
    BUILD = Gauge Number "xpu_top_collector_info" "1, with version and host of each collector heard";
    STARTED = Gauge Seconds "xpu_top_collector_start_time" "When the collector was started, since 1970";
    FRAMES_LOST = Counter Number "xpu_top_frames_lost" "Frames the collectors heard could not send";
    FRAMES_MISSED = Counter Number "xpu_top_exporter_frames_missed" "Frames that were published and did not reach this page";
    FOLLOWED = Gauge Seconds "xpu_top_exporter_followed" "For how long these pages have been read without a pause: histograms are of this time";
    LABELS_FOLDED = Gauge Number "xpu_top_exporter_labels_folded" "Label sets that found no room and are counted under other";
    SHAPES_LEFT_OUT = Gauge Number "xpu_top_exporter_shapes_left_out" "Shapes that found no room, with --per-shape";
    RANKS_PLAIN = Gauge Number "xpu_top_exporter_ranks_without_detail" "Ranks whose histograms and element types are not known here";
    HTTP_REQUESTS = Counter Number "xpu_top_http_requests" "HTTP requests answered, by status";
    HTTP_REFUSED = Counter Number "xpu_top_http_connections_refused" "Connections closed unheard because there were too many";
    PROCESS_CPU = Counter Seconds "process_cpu" "CPU time of this collector";
    PROCESS_MEMORY = Gauge Bytes "process_resident_memory" "Resident memory of this collector";
    PROCESS_FILES = Gauge Number "process_open_fds" "Open descriptors of this collector";
}
