// Page 2: one rank compared with the others, its GEMMs and collectives, its GPU.

import { json } from "./access.js";
import { h, table } from "./dom.js";
import { age, bytes, count, known, median, percent, short } from "./figure.js";
import { reported } from "./metric.js";
import { stateOf, step } from "./ranks.js";
import { scaleOf } from "./scale.js";
import { chosenRank, findings, rankOf, ranks, state } from "./state.js";
import { sure } from "./header.js";

/** Interval of requests for the rank's details. */
const EVERY_MS = 2_000;

let detail = null;
let timer = 0;

export const rankPage = {
  name: "rank", key: "2", title: "rank", help: "the selected rank, by shape and size",
  keys: [["j k", "next, previous rank"], ["Esc", "back"]],

  enter() {
    state.rank = chosenRank();
    detail = null;
    clearInterval(timer);
    timer = setInterval(fetchDetail, EVERY_MS);
    fetchDetail();
  },

  leave() { clearInterval(timer); },

  draw(root) {
    const rank = rankOf(state.rank);
    if (!rank) {
      root.replaceChildren(h("p", { class: "empty" }, "no rank is known yet"));
      return;
    }
    // The header of every page shows the worst finding.
    const about = findings().slice(1).filter((finding) => finding.ranks.includes(rank.rank));
    const more = detail?.rank === rank.rank ? detail : {};
    root.replaceChildren(
      h("h2", {}, `Rank ${rank.rank} `, h("small", {}, `${rank.host}, pid ${rank.pid}   `), stateOf(rank)),
      ...about.map((finding) => h("p", { class: "warning" }, `▲ ${sure(finding)}; next: ${finding.advice}`)),
      rank.exit ? h("p", { class: "alarm" }, `✖ ${rank.exit.text}`) : "",
      ...(rank.inside ?? []).map((inside) => h("p", { class: "muted" }, `in ${inside.call} for ${age(inside.for_s)}`)),
      h("div", { class: "pair" }, figures(rank), device(rank)),
      ...memory(rank, more), ...gemms(more), ...collectives(more), ...communicators(more));
  },

  press(key, go) {
    const order = ranks().map((rank) => rank.rank);
    const at = order.indexOf(state.rank);
    if (key === "j" || key === "ArrowDown") state.rank = order[Math.min(order.length - 1, at + 1)];
    else if (key === "k" || key === "ArrowUp") state.rank = order[Math.max(0, at - 1)];
    else if (key === "Escape" || key === "Enter") { go("overview"); return true; }
    else return false;
    fetchDetail();
    go("rank");
    return true;
  },
};

async function fetchDetail() {
  const which = new URLSearchParams({ job: state.status?.job ?? "", rank: state.rank ?? 0 });
  if (!state.status || !known(state.rank)) return;
  try {
    const answer = await json(`/api/v1/ranks?${which}`);
    [detail] = answer.ranks;
  } catch { /* The banner shows the error; the drawing stays until another rank is selected. */ }
}

function figures(rank) {
  const rows = reported(ranks()).map((metric) => ({ metric, scale: scaleOf(metric, ranks(), state.status.steps.mean_ms) }));
  const worst = ({ metric, scale }) => {
    const heard = ranks().filter((one) => known(metric.of(one)));
    const found = scale && heard.reduce((one, other) => (scale.badness(metric.of(other)) > scale.badness(metric.of(one)) ? other : one));
    return found ? `${short(metric.of(found))} (rank ${found.rank})` : "·";
  };
  const marked = ({ metric, scale }) => {
    const value = metric.of(rank);
    const bad = scale && known(value) && scale.isBad(value);
    return h("span", { class: bad ? "warning" : null }, `${short(value)}${bad ? (metric.worse === "low" ? " ▼" : " ▲") : ""}`);
  };
  const all = median(ranks().map((one) => one.blocked_pct));
  const lines = [
    ...rows.map((row) => [row.metric.title, marked(row), short(row.scale?.median), worst(row)]),
    ["blocked %", short(rank.blocked_pct), short(all), ""],
    ["MFU", percent(rank.mfu), percent(state.status.mfu), ""],
    ["step", step(rank), count(state.status.steps.max), ""],
    ["one GEMM in N timed", count(rank.gemm_timed_one_in), "", ""],
    ["cost of timing", known(rank.overhead_pct) ? `${rank.overhead_pct.toFixed(2)} %` : "·", "", ""],
  ];
  return h("section", {}, h("h2", {}, "Figures ", h("small", {}, "of the last half minute")),
    table([["", (row) => row[0]], ["this rank", (row) => row[1], true], ["all ranks, median", (row) => row[2], true], ["worst", (row) => row[3], true]], lines));
}

function device(rank) {
  const gpu = rank.device;
  if (!gpu) return h("section", {}, h("h2", {}, "GPU"), h("p", { class: "muted" }, "NVML does not report it"));
  const held = gpu.throttle === null ? "·" : gpu.throttle.length === 0 ? "nothing" : gpu.throttle.join(", ");
  const rows = [
    ["SM clock", `${gpu.sm_mhz ?? "·"} of ${gpu.sm_max_mhz ?? "·"} MHz`, known(gpu.sm_mhz) && gpu.throttle?.length > 0],
    ["held down by", held, gpu.throttle?.length > 0],
    ["power", `${short(gpu.power_w)} of ${short(gpu.power_limit_w)} W`],
    ["temperature", `${gpu.temperature_c ?? "·"} °C`],
    ["memory", `${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}`],
    ["utilisation", known(gpu.gpu_pct) ? `${gpu.gpu_pct} %` : "·"],
    ["ECC errors", `${count(gpu.ecc_corrected)} corrected, ${count(gpu.ecc_uncorrected)} uncorrected`, gpu.ecc_uncorrected > 0],
    ["NVLink errors", count(gpu.nvlink_errors), gpu.nvlink_errors > 0],
    ["Xid errors", gpu.last_xid ? `${count(gpu.xids)}, last ${gpu.last_xid.code} ${gpu.last_xid.means ?? ""}` : count(gpu.xids), gpu.xids > 0],
  ];
  return h("section", {}, h("h2", {}, "GPU ", h("small", {}, `read ${age(gpu.age_s)} ago`)),
    table([["", (row) => row[0]], ["", (row) => h("span", { class: row[2] ? "warning" : null }, `${row[1]}${row[2] ? " ▲" : ""}`)]], rows));
}

/** The rank's memory on its GPU, NCCL's memory, and growth, as on the terminal's page 2. */
function memory(rank, { activity }) {
  const { memory_held_bytes: held, memory_nccl_bytes: nccl, memory_growth: growth } = rank;
  const [site] = activity?.memory.sites ?? [];
  const whole = (number) => bytes(Math.round(number));
  const rows = [
    known(held) && ["allocated", [bytes(held), activity && `${bytes(activity.memory.peak_bytes)} at most`, nccl > 0 && `NCCL took ${bytes(nccl)}`].filter(Boolean).join(", ")],
    growth && ["grows by", `${whole(growth.bytes_per_step)} a step (${whole(growth.least_bytes_per_step)} to ${whole(growth.most_bytes_per_step)})`, true],
    known(site?.grown_bytes) && site.place && ["grew", `${bytes(site.grown_bytes)} at ${site.place} since its first steps`],
  ].filter(Boolean);
  if (rows.length === 0) return [];
  return [h("h2", {}, "Memory ", h("small", {}, "that the rank has allocated")), table([
    ["", (row) => row[0]], ["", (row) => h("span", { class: row[2] ? "warning" : null }, `${row[1]}${row[2] ? " ▲" : ""}`)],
  ], rows)];
}

const waiting = (name) => [h("h2", {}, name), h("p", { class: "muted" }, "waiting for its figures")];

function gemms({ gemms: shapes }) {
  if (!shapes?.length) return waiting("GEMMs");
  return [h("h2", {}, "GEMMs ", h("small", {}, "by shape, most time first")), table([
    ["m × n × k", (one) => `${one.routine === "gemm" ? "" : `${one.routine} `}${one.m} × ${one.n} × ${one.k}${one.batch > 1 ? ` × ${one.batch}` : ""}`],
    ["type", (one) => `${one.datatype} ${one.transposed}`], ["count", (one) => count(one.count), true], ["timed", (one) => count(one.timed), true],
    ["TFLOPS", (one) => short(one.tflops), true], ["p50 µs", (one) => short(one.us_p50), true], ["p99 µs", (one) => short(one.us_p99), true], ["max µs", (one) => short(one.us_max), true],
  ], shapes.slice(0, 30))];
}

function collectives({ collectives: kinds }) {
  if (!kinds?.length) return [];
  return [h("h2", {}, "Collectives ", h("small", {}, "times include waits for other ranks; GB/s are of the transfer")), table([
    ["operation", (one) => one.operation], ["communicator", (one) => one.communicator], ["size", (one) => bytes(one.bytes), true], ["count", (one) => count(one.count), true],
    ["bus GB/s", (one) => short(one.bus_gb_s), true], ["p50 µs", (one) => short(one.us_p50), true], ["p99 µs", (one) => short(one.us_p99), true], ["max µs", (one) => short(one.us_max), true], ["by", (one) => one.plan ?? ""],
  ], kinds.slice(0, 30))];
}

function communicators({ communicators: all }) {
  if (!all?.length) return [];
  return [h("h2", {}, "Communicators"), table([
    ["communicator", (one) => one.communicator], ["name", (one) => one.name], ["rank", (one) => `${one.rank} of ${one.size}`, true],
    ["entered", (one) => count(one.entered), true], ["completed, at least", (one) => count(one.completed), true], ["last", (one) => (one.last_operation ? `${one.last_operation}, ${bytes(one.last_bytes)}` : "")],
  ], all)];
}
