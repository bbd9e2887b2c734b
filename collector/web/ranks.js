// The table of ranks. The ranks that findings name come first.

import { h, table } from "./dom.js";
import { age, count, counted, known, short } from "./figure.js";
import { isLive } from "./metric.js";
import { listed, ranks, state } from "./state.js";

/** Number of rows that are drawn; a filter finds the others. */
const ROWS = 100;

const SIGNS = { ok: ["●", "good"], waiting: ["◌", "muted"], slow: ["▲", "warning"], hung: ["✖", "alarm"], silent: ["◷", "warning"], exited: ["○", "muted"] };

export function stateOf(rank) {
  const [sign, role] = SIGNS[rank.state] ?? ["·", "muted"];
  const old = isLive(rank) || rank.state === "exited" ? "" : `, figures ${age(rank.figures_age_s)} old`;
  return h("span", { class: role }, `${sign} ${rank.state}${old}`);
}

export const step = (rank) => (known(rank.step) ? count(rank.step) : known(rank.step_at_least) ? `≥ ${count(rank.step_at_least)}` : "·");

const COLUMNS = [
  ["rank", ({ rank }) => rank.rank, true],
  ["host", ({ rank }) => rank.host],
  ["state", ({ rank }) => stateOf(rank)],
  ["step", ({ rank }) => step(rank), true],
  ["step ms", ({ rank }) => short(rank.step_ms_mean), true],
  ["TFLOPS", ({ rank }) => short(rank.gemm_tflops), true],
  ["bus GB/s", ({ rank }) => short(rank.bus_gb_s), true],
  ["skew ms", ({ rank }) => short(rank.lateness_ms_p50), true],
  ["exposed %", ({ rank }) => short(rank.exposed_pct), true],
  ["GPU °C", ({ rank }) => rank.device?.temperature_c ?? null, true],
  ["W", ({ rank }) => short(rank.device?.power_w), true],
  ["pid", ({ rank }) => rank.pid, true],
];

export function ranksTable(go) {
  const rows = listed();
  const drawn = rows.slice(0, ROWS);
  // The selected rank always has a row.
  const chosen = rows.find(({ rank }) => rank.rank === state.rank);
  if (chosen && !drawn.includes(chosen)) drawn.push(chosen);
  const rowClass = (row) => [
    row.rank.rank === state.rank && "chosen", !isLive(row.rank) && "old", isFirstOfGroup(drawn, row) && "set-apart",
  ].filter(Boolean).join(" ");
  const pick = ({ rank }) => {
    if (state.rank === rank.rank) go("rank");
    else { state.rank = rank.rank; go("overview"); }
  };
  const about = state.filterText ? `${count(rows.length)} of ${counted(ranks().length, "rank", "ranks")}: ${state.filterText}` : "those that findings name first";
  const left = rows.length - drawn.length;
  return [
    h("h2", {}, "Ranks ", h("small", {}, about)),
    table(COLUMNS, drawn, { name: "ranks", rowClass, onRow: pick }),
    left > 0 ? h("p", { class: "muted" }, `${counted(left, "more rank", "more ranks")}: / filters by rank, host or state`) : "",
  ];
}

const isFirstOfGroup = (rows, row) => rows.indexOf(row) > 0 && rows[rows.indexOf(row) - 1].place !== row.place;
