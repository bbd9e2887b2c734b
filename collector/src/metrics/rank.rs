//! Metrics of one rank: its steps, GEMMs, collectives, GPU, and coverage.

use std::{collections::BTreeMap, time::Duration};

use xpu_model::{
    finding::{self, Finding},
    job::{Job, Load, RankView, Sample},
    status::{GpuTime, RankState, STALE, age_of, stale_since},
};
use xpu_wire::{
    frame::{DeviceReading, RankDigest, RankLoad, Traffic},
    id::Rank,
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

use super::{
    Exposition, Label, Tally, Value, catalogue as all, label,
    tally::{communicator_label, size_label},
    with,
};

const STATES: [RankState; 6] = [
    RankState::Ok,
    RankState::Waiting,
    RankState::Slow,
    RankState::Hung,
    RankState::Silent,
    RankState::Exited,
];

pub(super) fn expose(
    exposition: &mut Exposition,
    job: &Job,
    rank: Rank,
    view: &RankView,
    tally: Option<&Tally>,
    findings: &[Finding],
    now: Moment,
) {
    let labels: Vec<Label> = vec![
        ("job_name", label(job.name().as_str())),
        ("rank", rank.to_string().into()),
        ("host", label(view.host().as_str())),
    ];
    expose_identity(exposition, &labels, view, tally);
    let state = finding::state(findings, rank, view);
    for each in STATES {
        let labels = with(&labels, &[("state", &word(&each))]);
        exposition.gauge(all::RANK_STATE, &labels, f64::from(u8::from(each == state)));
    }
    if is_live(job, findings, rank, view, now) {
        expose_figures(exposition, &labels, job, view);
    }
    exposition.gauge(all::LOSS, &labels, view.loss());
    if let Some(digest) = view.latest() {
        let heard = job.common(view.host(), digest.heard);
        expose_digest(exposition, &labels, digest, now.since(heard));
    }
    if let Some(tally) = tally {
        expose_tally(exposition, &labels, rank, tally);
    }
    if let Some(load) = view.load().filter(|load| now.since(job.common(view.host(), load.at)) < STALE) {
        expose_load(exposition, &labels, load);
    }
    if let Some(reading) = view.device() {
        let age = age_of(reading, |then| now.since(job.common(view.host(), then)));
        expose_device(exposition, &labels, reading, age, view.is_alive());
    }
}

/// The word for a value in JSON documents.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Whether a rank's figures are current. Stale figures have no gauges.
pub(super) fn is_live(job: &Job, findings: &[Finding], rank: Rank, view: &RankView, now: Moment) -> bool {
    let silence = now.since(job.common(view.host(), view.last_report()));
    stale_since(view, finding::state(findings, rank, view), silence).is_none()
}

fn expose_figures(exposition: &mut Exposition, labels: &[Label], job: &Job, view: &RankView) {
    let (bus, late) = job.bus_and_skew(view);
    exposition.gauge(all::STEP_MEAN, labels, view.step_time().map(Nanoseconds::seconds));
    exposition.gauge(all::STEP_MEDIAN, labels, view.step_p50().map(Nanoseconds::seconds));
    exposition.gauge(all::MFU, labels, view.utilisation());
    if let Some(time) = GpuTime::of(view, job.is_alone()) {
        for (part, pct) in [
            ("gemms", time.gemms_pct),
            ("communication", time.communication_pct),
            ("graphs", time.graphs_pct),
            ("other_kernels", time.other_kernels_pct),
            ("idle", time.idle_pct),
        ] {
            exposition.gauge(all::GPU_TIME, &with(labels, &[("part", part)]), pct / 100.0);
        }
    }
    exposition.gauge(all::LATENESS, labels, late.map(Nanoseconds::seconds));
    exposition.gauge(all::BUS_BANDWIDTH, labels, bus.map(|rate| rate.0 * 1e9));
    exposition.gauge(all::GEMM_RATE, labels, view.gemm_rate().map(|rate| rate.0 * 1e12));
    expose_bandwidth(exposition, labels, job, view);
}

fn expose_identity(exposition: &mut Exposition, labels: &[Label], view: &RankView, tally: Option<&Tally>) {
    let local = view.info().and_then(|info| info.local_rank).map(|local| local.to_string());
    let uuid = view.device().map(|reading| reading.uuid.to_string());
    let more = [
        ("local_rank", local.as_deref().unwrap_or_default()),
        ("pid", &view.pid().to_string()),
        ("gpu", uuid.as_deref().unwrap_or_default()),
        ("gpu_name", tally.map(Tally::gpu).unwrap_or_default()),
        ("version", view.info().map(|info| info.version.as_str()).unwrap_or_default()),
    ];
    exposition.gauge(all::RANK_INFO, &with(labels, &more), 1.0);
}

fn expose_digest(exposition: &mut Exposition, labels: &[Label], digest: &RankDigest, silence: Duration) {
    exposition.gauge(all::RANK_SILENCE, labels, silence.as_secs_f64());
    exposition.counter(all::STEPS, labels, digest.step.map(|step| step.0 as f64));
    let said = |count: u64| (count > 0).then_some(count as f64);
    exposition.counter(all::TOKENS, labels, said(digest.work.tokens));
    exposition.counter(all::SAMPLES, labels, said(digest.work.samples));
    let blocked = Some(digest.blocked_for.seconds()).filter(|_| digest.rank.gpu().is_none());
    exposition.counter(all::BLOCKED, labels, blocked);
    exposition.counter(all::EXPOSED, labels, digest.exposed_for.map(Nanoseconds::seconds));
    exposition.gauge(all::MEMORY_HELD, labels, said(digest.memory_held));
    exposition.gauge(all::MEMORY_NCCL, labels, digest.memory_nccl.map(|bytes| bytes as f64));
    exposition.gauge(all::MEMORY_GROWTH, labels, digest.memory_growth.map(|growth| growth.per_step));
    let launches = digest.launches;
    for (kind, count) in [
        ("kernel", launches.kernels),
        ("graph", launches.graphs),
        ("gemm", launches.gemms),
        ("collective", launches.collectives),
        ("point_to_point", launches.point_to_point),
        ("captured", launches.captured),
    ] {
        exposition.counter(all::LAUNCHES, &with(labels, &[("kind", kind)]), count as f64);
    }
    exposition.gauge(all::HOOK_ENABLED, labels, f64::from(u8::from(digest.enabled)));
    exposition.gauge(all::OVERHEAD, labels, f64::from(digest.overhead_ppm) / 1e6);
    exposition.gauge(all::BUDGET, labels, digest.budget_ppm.map(|budget| f64::from(budget) / 1e6));
    for (kind, rate) in [("gemm", digest.gemm_rate), ("collective", digest.collective_rate)] {
        let one_in = (rate != Rate::NEVER).then(|| rate.denominator() as f64);
        exposition.gauge(all::TIMED_ONE_IN, &with(labels, &[("kind", kind)]), one_in);
    }
    exposition.counter(all::DROPPED, labels, digest.dropped_records as f64);
    exposition.counter(all::UNTIMED, labels, digest.untimed as f64);
    exposition.gauge(all::BLIND, labels, digest.blind.len() as f64);
}

fn expose_tally(exposition: &mut Exposition, labels: &[Label], rank: Rank, tally: &Tally) {
    if let Some(steps) = tally.steps() {
        exposition.put(all::STEP_DURATION, labels, Value::Histogram(steps.clone()));
    }
    // How a process calls NCCL is known only for all its GPUs together.
    if let Some(calls) = tally.nccl().filter(|_| rank.gpu().is_none()) {
        let [dlsym, plugin] = [calls.dlsym, calls.plugin];
        let preload = calls.counted - dlsym - plugin;
        for (by, count) in
            [("preload", preload), ("dlsym", dlsym), ("plugin", plugin), ("uncounted", calls.uncounted)]
        {
            exposition.counter(all::NCCL_CALLS, &with(labels, &[("by", by)]), count as f64);
        }
        exposition.gauge(all::NCCL_COUNTED, labels, calls.counted_pct / 100.0);
    }
    if let Some(python) = tally.python() {
        exposition.counter(all::COLLECTIONS, labels, python.collections as f64);
        exposition.counter(all::COLLECTING, labels, python.collecting.seconds());
        exposition.counter(all::BATCHES, labels, python.batches as f64);
        exposition.counter(all::LOADING, labels, python.loading.seconds());
    }
    for (datatype, gemms) in tally.gemms() {
        let labels = with(labels, &[("dtype", &datatype.to_string())]);
        exposition.counter(all::GEMMS, &labels, gemms.count as f64);
        exposition.counter(all::GEMM_FLOPS, &labels, gemms.flops);
        exposition.counter(all::GEMM_TIMED_FLOPS, &labels, gemms.timed_flops);
        exposition.counter(all::GEMM_TIMED, &labels, gemms.timed_for.seconds());
        exposition.put(all::GEMM_DURATION, &labels, Value::Histogram(gemms.durations.clone()));
    }
    for (kind, messages) in tally.messages() {
        let (operation, more) = (kind.operation(), kind);
        let more = [("communicator", more.communicator.as_str()), ("op", &operation), ("size", more.size)];
        let labels = with(labels, &more);
        exposition.counter(all::COLLECTIVES, &labels, messages.count as f64);
        exposition.counter(all::COLLECTIVE_BYTES, &labels, messages.bytes);
        exposition.put(all::COLLECTIVE_DURATION, &labels, Value::Histogram(messages.durations.clone()));
    }
}

/// Exposes the bandwidth of the latest timed collectives. There are a few tens of them, which bounds the
/// label sets.
fn expose_bandwidth(exposition: &mut Exposition, labels: &[Label], job: &Job, view: &RankView) {
    let Some(digest) = view.latest() else { return };
    let mut kinds: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
    for sample in view.samples().chain(view.messages()) {
        let known = digest.communicators.iter().find(|state| state.id == sample.communicator);
        let Some(state) = known else { continue };
        let factor = sample.operation.bus_factor(state.size);
        let bytes = if factor > 0.0 { sample.bus_bytes as f64 / factor } else { 0.0 };
        let communicator = communicator_label(&state.name, state.size, digest.world_size);
        kinds.entry((communicator, sample.operation, size_label(bytes as u64))).or_default().push(sample);
    }
    for ((communicator, operation, size), samples) in kinds {
        let more = [("communicator", communicator.as_str()), ("op", &operation.to_string()), ("size", size)];
        let rate = job.bus_bandwidth_of(samples.into_iter()).map(|rate| rate.0 * 1e9);
        exposition.gauge(all::COLLECTIVE_BANDWIDTH, &with(labels, &more), rate);
    }
}

fn expose_device(
    exposition: &mut Exposition,
    labels: &[Label],
    reading: &DeviceReading,
    age: Duration,
    is_alive: bool,
) {
    exposition.gauge(all::GPU_READ, labels, age.as_secs_f64());
    if age > DeviceReading::STALE || !is_alive {
        return;
    }
    let hertz = |mega: Option<u32>| mega.map(|mega| f64::from(mega) * 1e6);
    let watts = |milli: Option<u32>| milli.map(|milli| f64::from(milli) / 1e3);
    let count = |count: Option<u64>| count.map(|count| count as f64);
    exposition.gauge(
        all::GPU_UTILISATION,
        labels,
        reading.utilisation.map(|percent| f64::from(percent) / 100.0),
    );
    exposition.gauge(all::GPU_SM_CLOCK, labels, hertz(reading.sm_clock));
    exposition.gauge(all::GPU_SM_CLOCK_MAX, labels, hertz(reading.sm_clock_max));
    exposition.gauge(all::GPU_MEMORY_CLOCK, labels, hertz(reading.memory_clock));
    exposition.gauge(all::GPU_POWER, labels, watts(reading.power));
    exposition.gauge(all::GPU_POWER_LIMIT, labels, watts(reading.power_limit));
    exposition.gauge(all::GPU_TEMPERATURE, labels, reading.temperature.map(f64::from));
    exposition.gauge(all::GPU_MEMORY_USED, labels, count(reading.memory_used));
    exposition.gauge(all::GPU_MEMORY_TOTAL, labels, count(reading.memory_total));
    for (kind, errors) in [("corrected", reading.ecc_corrected), ("uncorrected", reading.ecc_uncorrected)] {
        exposition.counter(all::GPU_ECC_ERRORS, &with(labels, &[("kind", kind)]), count(errors));
    }
    exposition.counter(all::GPU_NVLINK_ERRORS, labels, count(reading.nvlink_errors));
    exposition.counter(all::GPU_XID_ERRORS, labels, reading.xids.map(f64::from));
    let held = reading.throttle.map(|throttle| f64::from(u8::from(throttle.is_held())));
    exposition.gauge(all::GPU_HELD, labels, held);
}

fn expose_load(exposition: &mut Exposition, labels: &[Label], load: &Load) {
    let Load { interval, rank: RankLoad { cpu, disk, gpu, .. }, .. } = load;
    let cores = cpu.map(|cpu| cpu.seconds() / interval.seconds().max(1e-9));
    exposition.gauge(all::RANK_CPU, labels, cores);
    let each = |rate: Traffic, words: [&'static str; 2]| {
        words.into_iter().zip([rate.received, rate.sent].map(|rate| rate.map(|rate| rate as f64)))
    };
    for (direction, rate) in each(disk.over(*interval), ["read", "write"]) {
        exposition.gauge(all::RANK_DISK, &with(labels, &[("direction", direction)]), rate);
    }
    let Some(gpu) = gpu else { return };
    for (direction, rate) in each(gpu.pcie, ["receive", "transmit"]) {
        exposition.gauge(all::GPU_PCIE, &with(labels, &[("direction", direction)]), rate);
    }
    for (direction, rate) in each(gpu.nvlink, ["receive", "transmit"]) {
        exposition.gauge(all::GPU_NVLINK, &with(labels, &[("direction", direction)]), rate);
    }
    exposition.gauge(all::GPU_SM, labels, gpu.sm);
    exposition.gauge(all::GPU_DRAM, labels, gpu.dram);
}
