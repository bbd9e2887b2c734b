// The header above every page: the job, whether it runs, its speed, and the worst finding.

import { byId, h, renew } from "./dom.js";
import { age, count, counted, known, median, percent, short, timeOfDay } from "./figure.js";
import { findings, isOver, ranks, staleFor, state, stops } from "./state.js";

const CONFIDENCE = { certain: "", likely: "likely: ", guess: "perhaps: " };

export const sure = (finding) => `${CONFIDENCE[finding.confidence] ?? ""}${finding.evidence}`;

function health() {
  const { status } = state;
  if (state.lostAt) return ["✖", "UNREACHABLE", "alarm"];
  if (!status) return ["◌", "WAITING", "muted"];
  if (isOver()) return ["○", "ENDED", "muted"];
  const worst = findings().find(stops);
  if (worst) return ["✖", `${worst.kind === "exited" ? "RANK GONE" : "HANG"} ${age(worst.since_s)}`, "alarm"];
  const stale = staleFor();
  if (stale !== null) return ["◷", `STALE ${age(stale)}`, "warning"];
  const { coverage } = status;
  if (coverage.ranks_seen < status.world_size || coverage.hosts_unreachable.length > 0) return ["▲", "PARTIAL", "warning"];
  if (status.recorded_at) return ["●", "RECORDED", "good"];
  return ["●", "LIVE", "good"];
}

function tiles() {
  const { status } = state;
  const of = (key) => median(ranks().map((rank) => rank[key]));
  const { steps, coverage } = status;
  const step = known(steps.max) ? count(steps.max) : known(steps.at_least) ? `≥ ${count(steps.at_least)}` : "·";
  return [
    ["step", step],
    ["step time", known(steps.mean_ms) ? `${short(steps.mean_ms)} ms` : "·"],
    ["GEMM TFLOPS", short(of("gemm_tflops"))],
    ["NCCL bus GB/s", short(of("bus_gb_s"))],
    ["MFU", percent(status.mfu)],
    known(status.tokens_per_s) ? ["tokens/s", short(status.tokens_per_s)] : null,
    known(status.loss) ? ["loss", status.loss.toPrecision(4)] : null,
    status.lost ? ["lost", `${status.lost.gpu_hours.toFixed(2)} GPU h in ${age(status.lost.since_s)}`] : null,
    ["ranks", `${count(coverage.ranks_seen)} of ${count(status.world_size)}`],
    ["hosts", count(new Set(ranks().map((rank) => rank.host)).size)],
    ["overhead", `${coverage.overhead_pct.toFixed(2)} %`],
  ].filter(Boolean);
}

const part = {
  job: h("span"),
  state: h("span", { id: "state" }),
  tiles: h("div", { class: "tiles" }),
  nav: h("nav"),
};

/** The moment that is shown, if this is a recording. */
function moment({ recorded_at: at }) {
  if (!at) return "";
  return h("span", { class: "muted" }, ` recorded, ${new Date(at * 1000).toISOString().slice(0, 10)} ${timeOfDay(at)} UTC `);
}

function jobs({ job, other_jobs: others }) {
  if (others.length === 0) return h("span", { class: "job" }, job);
  const change = (event) => { location.search = `?job=${encodeURIComponent(event.target.value)}`; };
  return h("select", { class: "job", onchange: change, "aria-label": "job" },
    [job, ...others].sort().map((name) => h("option", { value: name, selected: name === job }, name)));
}

function link(page, go) {
  const current = page.name === state.page ? "page" : null;
  const open = (event) => { event.preventDefault(); go(page.name); };
  return h("a", { href: `#${page.name}`, "aria-current": current, onclick: open }, h("kbd", {}, page.key), ` ${page.title}`);
}

export function drawHeader(pages, go) {
  const [sign, words, role] = health();
  const { status } = state;
  if (!part.nav.isConnected) {
    const theme = h("button", { onclick: () => window.switchTheme(), title: "light or dark (T)" }, "◐");
    byId("header").replaceChildren(h("div", { class: "title" }, h("span", { class: "name" }, "xpu-top"), part.job, part.state, theme), part.tiles, part.nav);
  }
  part.state.className = `state ${role}`;
  part.state.textContent = `${sign} ${words}`;
  part.tiles.hidden = !status;
  renew(part.job, status && [status.job, status.other_jobs, status.recorded_at], () => (status ? [jobs(status), moment(status)] : []));
  const figures = status ? tiles() : [];
  renew(part.tiles, figures, () => figures.map(([name, value]) => h("div", {}, h("b", {}, value), h("span", {}, name))));
  renew(part.nav, [pages.length, state.page], () => pages.map((page) => link(page, go)));
  document.title = status ? `${sign} ${status.job} · ${words}` : "xpu-top";
  document.documentElement.classList.toggle("stale", Boolean(state.lostAt) || (staleFor() !== null && !isOver() && !findings().some(stops)));
}

export function drawBanner() {
  const banner = byId("banner");
  banner.hidden = !state.lostAt;
  if (state.lostAt) {
    const since = timeOfDay(state.lostAt / 1000);
    const old = state.status ? "; all figures below are older" : "";
    banner.textContent = `◷ the collector cannot be reached since ${since} UTC (${age((Date.now() - state.lostAt) / 1000)})${old}. Trying again.`;
  }
}

export function drawHeadline(go) {
  const box = byId("headline");
  const worst = findings()[0];
  const isDrawn = Boolean(worst) && state.page !== "findings";
  box.hidden = !isDrawn;
  if (!isDrawn) return;
  const stopsJob = stops(worst);
  box.className = stopsJob ? "alarm" : "";
  const head = stopsJob ? `✖ ${worst.kind === "exited" ? "RANK EXITED" : "JOB HANGS"}, ${age(worst.since_s)}: ` : "▲ ";
  const others = findings().length - 1;
  const where = stopsJob && state.page !== "stacks" ? [" ", h("a", { href: "#stacks", onclick: (event) => { event.preventDefault(); go("stacks"); } }, "stacks (6)")] : "";
  renew(box, [head, worst.evidence, worst.advice, others, stopsJob, state.page], () => [
    h("p", { class: stopsJob ? "alarm" : "warning" }, h("b", {}, head), sure(worst),
      others > 0 ? h("a", { href: "#findings", onclick: (event) => { event.preventDefault(); go("findings"); } }, `  and ${counted(others, "more finding", "more findings")} (7)`) : ""),
    h("p", { class: "next" }, "next: ", worst.advice, where)]);
}
