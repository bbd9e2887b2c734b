// The functions of a capture over all ranks: how much of its critical path each rank spends in each function.

import { byId, h, table } from "./dom.js";
import { counted, known, median, percent, runs, short } from "./figure.js";
import { STEPS, scaleOf } from "./scale.js";

/** Functions that are shown, and what they must take of some rank's critical path. */
const SHOWN = 40;
const LEAST = 0.01;

/** Pixels of a rank in a map, and of the whole map. */
const CELL = { most: 14, least: 1, high: 14 };
const WIDEST = 448;

const UNITS = { tflops: "TFLOPS", gbytes_per_s: "GB/s", per_second: "per s" };
const CLASSES = { compute: "compute", communication: "comm", memory: "memory", runtime: "CUDA call", python: "Python" };

/** The parts of the page: what is unusual, and the table. */
export function functionsOf({ per, functions, workers, abnormal }) {
  if (functions.length === 0) return [h("p", { class: "muted" }, "the capture has no functions that take 1 % of the time")];
  const byFunction = workers.map(({ vectors }) => new Map(vectors.map((vector) => [vector.function, vector])));
  const rows = functions.map((of, index) => row(of, byFunction.map((vectors) => vectors.get(index) ?? null), workers, abnormal)).filter((one) => one.most >= LEAST);
  rows.sort((a, b) => b.costs - a.costs || b.most - a.most);
  const more = rows.length - SHOWN;
  return [
    ...abnormal.map(({ sentence }) => h("p", { class: "warning" }, `▲ ${sentence}`)),
    abnormal.length === 0 ? h("p", { class: "good" }, "● no rank is unlike its peers, and no function takes more than expected") : "",
    h("p", { class: "muted" }, `shares of the critical path of a ${per}, of ${counted(workers.length, "rank", "ranks")}; darker: more than the median of the ranks with the same work`),
    table([
      ["function", ({ of }) => h("span", { title: of.called_by ? `called by ${of.called_by}` : "" }, of.name)],
      ["kind", ({ of }) => CLASSES[of.class]],
      ["ranks", ({ has }) => has, true],
      ["least", ({ least }) => percent(least), true], ["median", ({ middle }) => percent(middle), true], ["most", ({ most }) => percent(most), true],
      ["on rank", ({ at }) => at, true],
      ["median rate", ({ of, rate }) => (known(rate) ? `${short(rate)} ${UNITS[of.unit]}` : "·"), true],
      ["all ranks", (one) => map(one)],
      ["unusual", ({ unlike }) => (unlike.size > 0 ? `${unlike.size > 1 ? "ranks" : "rank"} ${runs([...unlike], 4)}` : "")],
    ], rows.slice(0, SHOWN), { name: "functions", rowClass: ({ unlike }) => unlike.size > 0 && "unlike" }),
    more > 0 ? h("p", { class: "muted" }, `and ${counted(more, "function", "functions")} more: xpu-top report FILE --json (behaviour)`) : "",
  ];
}

/** A function over the ranks that have it. */
function row(of, vectors, workers, abnormal) {
  const shares = vectors.map((vector) => vector?.share ?? null);
  const having = shares.filter(known);
  const found = abnormal.filter((one) => one.class === of.class && one.name === of.name && one.called_by === of.called_by);
  const most = having.reduce((one, other) => Math.max(one, other), 0);
  return {
    of, workers, vectors, shares, most,
    has: having.length,
    least: having.reduce((one, other) => Math.min(one, other), most),
    middle: median(having),
    at: workers[shares.indexOf(most)]?.rank,
    rate: median(vectors.map((vector) => vector?.rate)),
    unlike: new Set(found.flatMap((one) => one.ranks)),
    costs: found.reduce((sum, one) => sum + one.cost_ns, 0),
  };
}

/** A cell for each rank. Ranks are compared with those of the same role. */
function map({ of, workers, vectors, shares, unlike }) {
  const wide = Math.max(CELL.least, Math.min(CELL.most, Math.floor(WIDEST / workers.length)));
  const perCell = Math.ceil(workers.length / WIDEST);
  const canvas = h("canvas", { class: "strip", "aria-label": `${of.name}, each rank` });
  const width = Math.ceil(workers.length / perCell) * wide;
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [width * ratio, CELL.high * ratio];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${CELL.high}px`];
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`);
  const metric = { of: (at) => shares[at], worse: "high", word: "share" };
  const scales = new Map();
  workers.forEach(({ role }) => {
    if (!scales.has(role)) scales.set(role, scaleOf(metric, workers.flatMap((worker, at) => (worker.role === role ? [at] : [])), null));
  });
  const isUnlike = (at) => unlike.has(workers[at].rank);
  /** The rank that each cell shows. */
  const cells = [];
  for (let first = 0; first < workers.length; first += perCell) {
    // With more ranks than cells, a cell shows its worst rank.
    const all = Array.from({ length: Math.min(perCell, workers.length - first) }, (_, nth) => first + nth);
    const at = all.find(isUnlike) ?? all.reduce((one, other) => ((shares[other] ?? 0) > (shares[one] ?? 0) ? other : one));
    const x = cells.length * wide;
    cells.push(at);
    const step = vectors[at] ? scales.get(workers[at].role)?.step(shares[at]) ?? STEPS / 2 : null;
    context.fillStyle = colour(step === null ? "stale" : `heat-${step}`);
    context.fillRect(x, 0, Math.max(1, wide - 1), CELL.high);
    if (isUnlike(at)) {
      context.fillStyle = colour("alarm");
      context.fillRect(x, CELL.high - 3, Math.max(1, wide - 1), 3);
    }
  }
  canvas.addEventListener("mousemove", (event) => hover(event, cells[Math.floor(event.offsetX / wide)], { of, workers, vectors, shares, unlike }));
  canvas.addEventListener("mouseleave", () => { byId("tooltip").hidden = true; });
  return canvas;
}

function hover(event, at, { of, workers, vectors, shares, unlike }) {
  const tooltip = byId("tooltip");
  const worker = workers[at];
  tooltip.hidden = !worker;
  if (!worker) return;
  const peers = median(shares.filter((_, other) => workers[other].role === worker.role && other !== at));
  const vector = vectors[at];
  const rate = known(vector?.rate) ? `, ${short(vector.rate)} ${UNITS[of.unit]}` : "";
  tooltip.replaceChildren(
    h("div", {}, h("b", {}, `rank ${worker.rank}`), ` · ${of.name}`),
    h("div", {}, vector ? `${percent(vector.share)}${rate}; its peers ${percent(peers)}` : "not called, or less than 1 %"),
    unlike.has(worker.rank) ? h("div", { class: "warning" }, "▲ unusual") : "");
  tooltip.style.right = "";
  tooltip.style.left = `${Math.min(event.clientX + 14, innerWidth - 360)}px`;
  tooltip.style.top = `${event.clientY + 14}px`;
}
