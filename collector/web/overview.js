// Page 1: what limits the job, heatmaps of all ranks, and the ranks.

import { byId, h } from "./dom.js";
import { age, known, short } from "./figure.js";
import { Heatmap } from "./heatmap.js";
import { isLive, reported } from "./metric.js";
import { ranksTable } from "./ranks.js";
import { scaleOf } from "./scale.js";
import { chosenRank, findings, listed, ranks, state, stops } from "./state.js";

/** Number of maps that are shown at once. */
const ABREAST = 4;

let maps = [];
let parts = null;

export const overview = {
  name: "overview", key: "1", title: "overview", help: "all ranks, and what is wrong",
  keys: [["m", "next quantities on the heatmaps"], ["M", "previous quantities"], ["j k", "next, previous rank"], ["g G", "first, last rank"], ["Enter", "the selected rank"], ["Esc", "clear the selection"]],

  enter(root, go) {
    const pick = (rank) => {
      if (state.rank === rank.rank) go("rank");
      else { state.rank = rank.rank; go("overview"); }
    };
    maps = Array.from({ length: ABREAST }, () => {
      const heatmap = new Heatmap({ onPick: pick, onHover: (cell, event) => hover(map, cell, event) });
      const map = { heatmap, title: h("h2"), worst: h("p", { class: "muted" }), metric: null, scale: null };
      map.box = h("section", { class: "map" }, map.title, heatmap.canvas, map.worst);
      return map;
    });
    parts = { bound: h("p"), table: h("div") };
    root.replaceChildren(parts.bound, h("div", { class: "maps" }, maps.map((map) => map.box)), parts.table);
  },

  draw(root, go) {
    drawBound();
    const metrics = reported(ranks());
    const named = new Set(findings().flatMap((finding) => (finding.ranks.length <= 64 ? finding.ranks : [])));
    maps.forEach((map, nth) => {
      map.metric = metrics[(state.map + nth) % metrics.length];
      map.box.hidden = nth >= metrics.length;
      if (map.box.hidden) return;
      map.scale = scaleOf(map.metric, ranks(), state.status.steps.mean_ms);
      map.title.replaceChildren(map.metric.title, h("small", {}, map.metric.means), legend(map));
      map.heatmap.draw({ ranks: ranks(), metric: map.metric, scale: map.scale, named, chosen: state.rank, matches: state.filter.matches });
      map.worst.textContent = worst(map);
    });
    parts.table.replaceChildren(...ranksTable(go));
  },

  press(key, go) {
    const metrics = reported(ranks()).length;
    const rows = listed();
    const at = rows.findIndex(({ rank }) => rank.rank === state.rank);
    const select = (index) => { state.rank = rows[Math.max(0, Math.min(rows.length - 1, index))]?.rank.rank ?? null; };
    if (key === "m") state.map = (state.map + 2) % metrics;
    else if (key === "M") state.map = (state.map + metrics - (metrics % 2) - 2) % metrics;
    else if (key === "j" || key === "ArrowDown") select(at + 1);
    else if (key === "k" || key === "ArrowUp") select(at < 0 ? 0 : at - 1);
    else if (key === "g") select(0);
    else if (key === "G") select(rows.length - 1);
    else if (key === "Enter") { state.rank = chosenRank(); go("rank"); return true; }
    else if (key === "Escape") state.rank = null;
    else return false;
    go("overview");
    document.querySelector("tr.chosen")?.scrollIntoView({ block: "nearest" });
    return true;
  },

  leave() { byId("tooltip").hidden = true; },
};

function drawBound() {
  const { status } = state;
  const healthy = findings().length === 0 && status.coverage.ranks_seen >= status.world_size;
  parts.bound.replaceChildren(
    healthy ? h("span", { class: "good" }, "● no findings   ") : "",
    findings().some(stops) ? "" : h("span", { class: "muted" }, status.bound_sentence ?? "what limits the job is not known yet"),
    ...(status.what_if_sentences ?? []).slice(0, 2).flatMap((said) => [h("br"), h("span", { class: "muted", title: "what-if, from the last capture" }, said)]));
}

function legend({ scale, metric }) {
  if (!scale) return h("span", { class: "scale muted" }, "no rank reports it");
  const [bad, good] = scale.ends;
  const swatches = Array.from({ length: 8 }, (_, step) => h("span", { class: `swatch heat-${step}` }));
  return h("span", { class: "scale muted" }, metric.worse === "low" ? "▼" : "▲", short(bad), swatches, short(good));
}

function worst({ scale, metric }) {
  if (!scale) return "";
  const heard = ranks().filter((rank) => known(metric.of(rank)));
  const rank = heard.reduce((one, other) => (scale.badness(metric.of(other)) > scale.badness(metric.of(one)) ? other : one));
  const value = metric.of(rank);
  const bad = heard.filter((one) => scale.isBad(metric.of(one))).length;
  const middle = `median ${short(scale.median)} ${metric.unit}`;
  if (bad === 0) return `${middle}; all alike`;
  return `${middle}; worst: rank ${rank.rank} (${rank.host}) ${short(value)}${deviation(scale, metric, value)}${bad > 1 ? `; ${bad - 1} more` : ""}`;
}

function deviation(scale, metric, value) {
  if (metric.word === "skew" || metric.word === "exposed") return "";
  const share = scale.deviation(value) * 100;
  return `, ${share > 0 ? "+" : "-"}${Math.abs(share).toFixed(0)} %`;
}

function hover(map, cell, event) {
  const tooltip = byId("tooltip");
  tooltip.hidden = !cell;
  if (!cell) return;
  const { rank } = cell;
  const value = map.metric.of(rank);
  const about = findings().filter((finding) => finding.ranks.includes(rank.rank)).map((finding) => finding.kind.replaceAll("_", " "));
  tooltip.replaceChildren(
    h("div", {}, h("b", {}, `rank ${rank.rank}`), ` · ${rank.host} · ${rank.state}`),
    h("div", {}, `${map.metric.title}: ${short(value)}${known(value) && map.scale ? `${deviation(map.scale, map.metric, value)}, median ${short(map.scale.median)}` : ""}`),
    isLive(rank) ? "" : h("div", { class: "warning" }, `◷ no current figures for ${age(rank.figures_age_s)}`),
    about.length > 0 ? h("div", { class: "warning" }, `▲ ${about.join(", ")}`) : "",
    h("div", { class: "muted" }, "click: select; again: its page"));
  const { clientX, clientY } = event;
  const isRight = clientX > innerWidth - 360;
  tooltip.style.left = isRight ? "" : `${clientX + 14}px`;
  tooltip.style.right = isRight ? `${innerWidth - clientX + 14}px` : "";
  tooltip.style.top = `${Math.min(clientY + 14, innerHeight - 110)}px`;
}
