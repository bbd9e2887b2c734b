// Page 5: the step times of the last hour, drawn by uPlot.

import { json } from "./access.js";
import { byId, h } from "./dom.js";
import { known, short, timeOfDay } from "./figure.js";
import { state } from "./state.js";

const EVERY_MS = 5_000;

let parts = null;
let plot = null;
let points = [];
let timer = 0;

export const stepsPage = {
  name: "steps", key: "5", title: "steps", help: "step time and its changes",
  keys: [["Esc", "back"], ["drag", "show only that time; double click: all"]],

  enter(root) {
    parts = { figures: h("p"), plot: h("div", { class: "plot" }), said: h("p", { class: "muted" }), whatIf: h("div") };
    root.replaceChildren(h("h2", {}, "Step time ", h("small", {}, "median rank and slowest rank, ms; time in UTC")), parts.figures, parts.plot, parts.said, parts.whatIf);
    addEventListener("theme", remake);
    addEventListener("resize", remake);
    timer = setInterval(load, EVERY_MS);
    load();
  },

  leave() {
    clearInterval(timer);
    removeEventListener("theme", remake);
    removeEventListener("resize", remake);
    plot?.destroy();
    plot = null;
  },

  draw() {
    const { steps } = state.status;
    const source = { marked: "marked by the program", optimizer: "of the optimizer", detected: "detected", detected_late: "detected" }[steps.source] ?? "no source yet";
    parts.figures.textContent = `mean ${short(steps.mean_ms)} ms; single steps: p50 ${short(steps.p50_ms)}, p99 ${short(steps.p99_ms)} ms`
      + `${known(steps.timed_by) ? ` by the ${steps.timed_by === "gpu" ? "GPU" : "host"}'s clock` : ""}; steps are ${source}`;
    drawWhatIf(state.status);
  },

  press(key, go) {
    if (key !== "Escape") return false;
    go("overview");
    return true;
  },
};

/** What a step would take without its stragglers, and what they have cost, if what-if runs. */
function drawWhatIf({ what_if_sentences: sentences = [], what_if_sum: sum }) {
  const lines = [...sentences, ...(known(sum) ? [`lost ${sum}`] : [])];
  parts.whatIf.replaceChildren(...(lines.length > 0 ? [h("h2", {}, "Without stragglers"), ...lines.map((line) => h("p", {}, line))] : []));
}

async function load() {
  if (!state.status) return;
  try {
    points = (await json(`/api/v1/steps?job=${encodeURIComponent(state.status.job)}`)).points;
  } catch { return; }
  parts.said.textContent = points.length < 2 ? "no steps of the last hour are known yet" : slowest();
  if (plot) plot.setData(series());
  else await remake();
}

function slowest() {
  const worst = points.reduce((one, other) => (other.worst_ms > one.worst_ms ? other : one));
  return `slowest: step ${worst.step} on rank ${worst.rank} at ${timeOfDay(worst.at / 1e9)} UTC, ${short(worst.worst_ms)} ms`;
}

const series = () => [points.map((point) => point.at / 1e9), points.map((point) => point.median_ms), points.map((point) => point.worst_ms)];

/** Chromium in the C locale calls its language `en-US@posix`, which `Intl`, and so uPlot, refuses. */
function nameLanguage() {
  try {
    Intl.NumberFormat(navigator.language);
  } catch {
    Object.defineProperty(navigator, "language", { value: "en-US" });
  }
}

async function remake() {
  if (points.length < 2) return;
  nameLanguage();
  const { default: UPlot } = await import("./vendor/uPlot.esm.js");
  if (state.page !== "steps") return;
  plot?.destroy();
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("muted"), grid: { stroke: colour("faint"), width: 0.5 }, ticks: { stroke: colour("faint") } };
  plot = new UPlot({
    width: byId("page").clientWidth - 32, height: 360,
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [{ ...axis, space: 80, values: (_, times) => times.map(timeOfDay) }, { ...axis, size: 60 }],
    series: [
      { label: "UTC", value: (_, time) => (time === null ? "" : timeOfDay(time)) },
      { label: "median rank, ms", stroke: colour("good"), width: 2, points: { show: false } },
      { label: "slowest rank, ms", stroke: colour("warning"), width: 1, points: { show: false } },
    ],
  }, series(), parts.plot);
}
