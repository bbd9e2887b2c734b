// The metrics by which ranks are compared, with the terminal's names (tui/src/app/metric.rs).

import { known } from "./figure.js";

/** Readings of the driver older than this are not compared. */
const OLD_READING_S = 10;

const reading = (rank) => (rank.device && rank.device.age_s <= OLD_READING_S ? rank.device : {});
const gib = (bytes) => (known(bytes) ? bytes / 2 ** 30 : null);

const metric = (word, title, means, unit, worse, of) => ({ word, title, means, unit, worse, of });

export const METRICS = [
  metric("tflops", "GEMM TFLOPS", "over GEMM time", "TFLOPS", "low", (rank) => rank.gemm_tflops),
  metric("bus", "NCCL bus GB/s", "while transferring", "GB/s", "low", (rank) => rank.bus_gb_s),
  metric("skew", "arrival skew ms", "into a collective", "ms", "high", (rank) => rank.lateness_ms_p50),
  metric("step_ms", "step time ms", "mean of the last half minute", "ms", "high", (rank) => rank.step_ms_mean),
  metric("peak", "% of peak", "in GEMMs, at its clock", "%", "low", (rank) => rank.gemm_peak_pct),
  metric("clock", "SM clock MHz", "of its GPU", "MHz", "low", (rank) => reading(rank).sm_mhz),
  metric("power", "power W", "of its GPU", "W", "low", (rank) => reading(rank).power_w),
  metric("temp", "GPU °C", "of its core", "°C", "high", (rank) => reading(rank).temperature_c),
  metric("util", "GPU %", "with any kernel running", "%", "low", (rank) => reading(rank).gpu_pct),
  metric("mem", "memory GiB", "of all processes", "GiB", "high", (rank) => gib(reading(rank).memory_used_bytes)),
  metric("exposed", "exposed comm %", "GEMMs wait for NCCL", "%", "high", (rank) => rank.exposed_pct),
];

/** The metrics for which any rank has a figure; the first two are always shown. */
export const reported = (ranks) => METRICS.filter((one, at) => at < 2 || ranks.some((rank) => known(one.of(rank))));

export const isLive = (rank) => !known(rank.figures_age_s);
