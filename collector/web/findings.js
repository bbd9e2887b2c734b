// Page 7: all findings, the worst first, and the findings that have ended.

import { h, table } from "./dom.js";
import { age, known, runs, timeOfDay } from "./figure.js";
import { sure } from "./header.js";
import { findings, state, stops } from "./state.js";

const word = (text) => text.replaceAll("_", " ");

/** `hang, not entered`: kind and class, in the words of `status --json`. */
const name = (finding) => `${word(finding.kind)}, ${word(finding.class)}`;

export const findingsPage = {
  name: "findings", key: "7", title: "findings", help: "all findings, current and past",
  keys: [["j k", "next, previous finding"], ["Enter", "its stacks or its rank"], ["Esc", "back"]],

  draw(root, go) {
    const all = findings();
    state.finding = Math.max(0, Math.min(state.finding, all.length - 1));
    const { coverage, world_size: world } = state.status;
    const none = coverage.ranks_seen < world
      ? h("p", { class: "warning" }, "◷ no findings, but not all ranks report: no data does not mean healthy")
      : h("p", { class: "good" }, `● no findings: ${coverage.ranks_seen} ranks`);
    const { lost } = state.status;
    const together = lost ? `, ${all.length > 1 ? "together " : ""}${cost(lost)}, in ${age(lost.since_s)}` : "";
    const bound = all.some(stops) ? "" : h("p", { class: "muted" }, state.status.bound_sentence ?? "");
    root.replaceChildren(
      h("h2", {}, "Findings ", h("small", {}, `the worst first${together}`)),
      ...(all.length === 0 ? [none] : all.map((finding, index) => card(finding, index, go))), bound,
      ...past());
  },

  press(key, go) {
    const all = findings();
    if (key === "j" || key === "ArrowDown") state.finding = Math.min(all.length - 1, state.finding + 1);
    else if (key === "k" || key === "ArrowUp") state.finding = Math.max(0, state.finding - 1);
    else if (key === "Enter" && all[state.finding]) { explain(all[state.finding], go); return true; }
    else if (key === "Escape") { go("overview"); return true; }
    else return false;
    go("findings");
    document.querySelector(".finding.chosen")?.scrollIntoView({ block: "nearest" });
    return true;
  },
};

function explain(finding, go) {
  [state.rank] = finding.ranks.length > 0 ? finding.ranks : [state.rank];
  go(finding.kind === "hang" ? "stacks" : "rank");
}

function card(finding, index, go) {
  const role = stops(finding) ? "alarm" : "warning";
  const chosen = index === state.finding;
  const open = () => { if (chosen) explain(finding, go); else { state.finding = index; go("findings"); } };
  const lines = [
    ["next", h("b", {}, finding.advice)],
    ["ranks", runs(finding.ranks)],
    finding.collective && ["hangs at", `${finding.collective.operation ?? "a collective"} number ${finding.collective.number} of communicator ${finding.collective.communicator}${finding.collective.name ? ` (${finding.collective.name})` : ""}`],
    ["since", age(finding.since_s)],
    ["costs", known(finding.cost_pct) ? `${cost(finding)}: ${word(finding.severity)}` : `not known: ${word(finding.severity)}`],
    ["confidence", finding.confidence === "guess" ? "a guess" : finding.confidence],
  ];
  return h("section", { class: `finding${stops(finding) ? " stops" : ""}${chosen ? " chosen" : ""}`, onclick: open },
    h("h3", { class: role }, `${stops(finding) ? "✖" : "▲"} ${name(finding)}`),
    h("p", {}, `${sure(finding)}.`),
    h("dl", {}, lines.filter(Boolean).flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, value)])));
}

/** The cost of a finding, as `xpu-top status` writes it. */
export function cost({ cost_pct: pct, cost_pct_error: error, cost_ms_per_step: ms, gpu_hours: hours, money, currency }) {
  const [least, most] = [Math.max(0, pct - error), Math.min(100, pct + error)];
  const between = most - least < 0.05 ? "" : `, ${least.toFixed(1)} to ${most.toFixed(1)}`;
  const share = known(ms) ? `${ms.toFixed(1)} ms a step (${pct.toFixed(1)} %${between})` : `${pct.toFixed(1)} % of the time${between && ` (${between.slice(2)})`}`;
  const price = known(money) ? ` (${money.toFixed(2)}${currency ? ` ${currency}` : ""})` : "";
  return `${share}, ${hours.toFixed(2)} GPU-hours${price} so far`;
}

function past() {
  const gone = state.status.ended_findings ?? [];
  const rows = gone.length === 0
    ? h("p", { class: "muted" }, "none, as far as the collector remembers")
    : table([
      ["until, UTC", (one) => timeOfDay(one.ended_at)], ["for", (one) => age(one.ended_at - one.began_at)],
      ["GPU-hours", (one) => one.gpu_hours?.toFixed(2), true],
      ["", (one) => name(one)], ["", (one) => one.evidence],
    ], gone.slice(0, 50), { name: "past" });
  return [h("h2", {}, "Past findings ", h("small", {}, "newest first")), rows];
}
