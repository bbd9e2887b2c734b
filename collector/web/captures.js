// Page 8: captures by this collector, and their reports.

import { ask, json } from "./access.js";
import { byId, h, table } from "./dom.js";
import { bytes, count, known } from "./figure.js";
import { functionsOf } from "./functions.js";
import { state } from "./state.js";

const EVERY_MS = 2_000;
const STEPS = 3;

let captures = [];
let traces = [];
let report = null;
/** Why the user's last request was refused, and why the list is not current. */
let said = "";
let unread = "";
let timer = 0;

// Colours of maps are chosen when they are drawn.
addEventListener("theme", () => { if (report) report.element = null; });

export const capturesPage = {
  name: "captures", key: "8", title: "captures", help: "captures, and their reports",
  keys: [["c", `capture ${STEPS} steps of all ranks`], ["Esc", "back"]],

  enter(root, go) {
    timer = setInterval(() => load(go), EVERY_MS);
    load(go);
  },

  leave() {
    clearInterval(timer);
    byId("tooltip").hidden = true;
  },

  draw(root, go) {
    const rows = captures.length > 0
      ? table([
        ["number", (one) => one.id, true], ["job", (one) => one.job], ["requested", (one) => (known(one.steps) ? `${one.steps} steps` : `${one.for_ms ?? "·"} ms`)],
        ["state", (one) => one.state], ["size", (one) => (known(one.bytes) ? bytes(one.bytes) : "")],
        ["", (one) => (one.state === "recording" ? "" : h("span", {}, h("button", { onclick: () => show(one, go) }, "report"), " ", h("button", { onclick: () => showFunctions(one, go) }, "functions"), " ", h("button", { onclick: () => fetchFile(one, go) }, "file")))],
        ["", (one) => one.said.split("\n").at(-1)],
      ], [...captures].reverse())
      : h("p", { class: "muted" }, "this collector has made none; `xpu-top capture` writes its own files");
    root.replaceChildren(
      h("h2", {}, "Captures ", h("small", {}, `the last 16; every operation of ${STEPS} steps`), " ", h("button", { onclick: () => begin(go) }, `capture ${STEPS} steps (c)`)),
      ...[...new Set([said, unread])].filter(Boolean).map((why) => h("p", { class: "warning" }, `▲ ${why}`)), rows,
      ...tracesTable(go),
      report ? shown(report) : "");
  },

  press(key, go) {
    if (key === "c") begin(go);
    else if (key === "Escape") go("overview");
    else return false;
    return true;
  },
};

/** The report, or the functions, of a capture. The list above is drawn again every two seconds, this part only once. */
function shown(report) {
  report.element ??= report.functions
    ? h("section", {}, h("h2", {}, `Functions of capture ${count(report.id)}`), ...functionsOf(report.functions))
    : h("section", {}, h("h2", {}, `Report of capture ${count(report.id)}`), h("pre", { class: "report" }, report.text));
  return report.element;
}

/** Traces by PyTorch's profiler. */
function tracesTable(go) {
  if (traces.length === 0) return [];
  const name = (file) => file.slice(file.lastIndexOf("/") + 1);
  return [h("h2", {}, "Traces ", h("small", {}, "by PyTorch's profiler (Kineto); ui.perfetto.dev opens them")), table([
    ["number", (one) => one.id, true], ["job", (one) => one.job], ["requested", (one) => (known(one.steps) ? `${one.steps} steps` : `${one.duration_ms ?? one.for_ms ?? "·"} ms`)],
    ["state", (one) => one.state],
    ["", (one) => h("span", {}, (one.files ?? []).flatMap((file) => [h("button", { onclick: () => download(file, `kineto-${one.id}-${name(file)}`, go) }, name(file)), " "]))],
    ["", (one) => one.said.split("\n").at(-1)],
  ], [...traces].reverse())];
}

const reason = (refusal) => `${refusal.message}${refusal.next ? `: ${refusal.next}` : ""}`;

/** Carries out the user's request, and shows a refusal until the next one. */
async function attempt(work, go) {
  said = "";
  try {
    await work();
  } catch (refusal) {
    said = reason(refusal);
  }
  if (state.page === "captures") go("captures");
}

/** Reads the list again. A refusal of the user's last request stays. */
async function load(go) {
  try {
    ({ captures } = await json("/api/v1/capture"));
    ({ traces } = await json("/api/v1/kineto"));
    unread = "";
  } catch (refusal) {
    unread = reason(refusal);
  }
  if (state.page === "captures") go("captures");
}

const begin = (go) => attempt(async () => {
  await json("/api/v1/capture", { body: { job: state.status.job, steps: STEPS } });
  ({ captures } = await json("/api/v1/capture"));
}, go);

/** Reads the report of a capture, or another part of it. */
const read = (id, take, go) => attempt(async () => {
  report = { id, text: "reading …" };
  go("captures");
  try {
    report = { id, ...await take(`/api/v1/capture/${id}`) };
  } catch (refusal) {
    report = null;
    throw refusal;
  }
}, go);

const show = ({ id }, go) => read(id, async (path) => ({ text: await (await ask(`${path}/report`)).text() }), go);

const showFunctions = ({ id }, go) => read(id, async (path) => ({ functions: await json(`${path}/functions`) }), go);

const fetchFile = ({ id, file }, go) => download(file, `capture-${id}.xpu`, go);

/** Fetches a file with the token, and then passes it to the browser. */
const download = (file, name, go) => attempt(async () => {
  const address = URL.createObjectURL(await (await ask(file)).blob());
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}, go);
