// Starts the page: the token, the stream, the keys. Draws the chosen page when something has changed.

import { takeToken, useToken } from "./access.js";
import { capturesPage } from "./captures.js";
import { byId, h } from "./dom.js";
import { findingsPage } from "./findings.js";
import { drawBanner, drawHeader, drawHeadline } from "./header.js";
import { hostsPage } from "./hosts.js";
import { listen } from "./keys.js";
import { follow } from "./live.js";
import { overview } from "./overview.js";
import { rankPage } from "./rank.js";
import { drawReplay, shortKeys } from "./replay.js";
import { stacksPage } from "./stacks.js";
import { state } from "./state.js";
import { stepsPage } from "./steps.js";

const PAGES = [overview, rankPage, stepsPage, stacksPage, findingsPage, capturesPage, hostsPage];

/** The page that is shown. */
let entered = null;
let isDue = false;
/** Whether the form for the token is shown. Nothing replaces it until a token is given. */
let isRefused = false;
/** Whether a button is pressed: a redraw before it is released would lose the click. */
let isPressed = false;

/** Shows a page, or draws it again. */
function go(name) {
  if (state.page !== name) {
    state.page = name;
    history.replaceState(null, "", `${location.pathname}${location.search}#${name}`);
    scrollTo(0, 0);
  }
  draw({ isAsked: true });
}

function later() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw({ isAsked: false });
  });
}

function draw({ isAsked }) {
  if (isRefused) return;
  const root = byId("page");
  drawHeader(PAGES, go);
  drawBanner();
  if (!state.status) {
    root.replaceChildren(state.lostAt ? h("p", { class: "empty muted" }, "waiting for the collector") : nothing());
    return;
  }
  drawHeadline(go);
  drawReplay();
  const page = PAGES.find((one) => one.name === state.page);
  if (entered !== page) {
    entered?.leave?.();
    entered = page;
    page.enter?.(root, go);
    drawFooter(page);
  }
  // Nothing is redrawn while a text is selected; only the header is updated.
  if (!isAsked && (isPressed || String(getSelection()) !== "")) return;
  const began = performance.now();
  page.draw(root, go);
  performance.clearMeasures("draw");
  performance.measure("draw", { start: began });
  if (!performance.getEntriesByName("first-picture").length) performance.mark("first-picture");
}

function drawFooter(page) {
  const general = [["?", "help"], ["/", "filter"], ["l", "light or dark"], ...shortKeys()];
  byId("footer").replaceChildren(...[...(page.keys ?? []), ...general].map(([key, what]) => h("span", {}, h("kbd", {}, key), ` ${what}`)));
}

function nothing() {
  const { problem } = state;
  return h("div", { class: "empty" }, h("h2", {}, problem?.error ?? "waiting for the first figures"),
    problem ? h("p", { class: "muted" }, "Start a job, and this page shows it:") : "",
    problem ? h("pre", {}, "xpu-top run -- torchrun --nproc_per_node 8 train.py") : "");
}

/** Asks for the token until one is given. */
function onRefused() {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", "aria-label": "token", autocomplete: "off", id: "token" });
    const give = (event) => {
      event.preventDefault();
      useToken(input.value);
      isRefused = false;
      draw({ isAsked: true });
      resolve();
    };
    entered?.leave?.();
    entered = null;
    // A refusal is an answer, so the collector can be reached.
    state.status = null;
    state.lostAt = null;
    drawHeader([], go);
    drawBanner();
    drawHeadline(go);
    isRefused = true;
    byId("page").replaceChildren(h("div", { class: "empty" }, h("h2", {}, "This collector needs a token"),
      h("p", { class: "muted" }, "On a host with the key, this prints it:"), h("pre", {}, "xpu-top keygen --token"),
      h("form", { onsubmit: give }, input, " ", h("button", {}, "show the job"))));
    input.focus();
  });
}

takeToken();
const wanted = location.hash.slice(1);
if (PAGES.some((page) => page.name === wanted)) state.page = wanted;
addEventListener("hashchange", () => {
  takeToken();
  const name = location.hash.slice(1);
  if (PAGES.some((page) => page.name === name)) go(name);
});
addEventListener("pointerdown", () => { isPressed = true; });
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => { isPressed = false; });
addEventListener("theme", later);
addEventListener("resize", later);
listen(PAGES, go);
draw({ isAsked: true });
// Ages grow even if no event arrives.
setInterval(later, 1_000);
follow({ onEvent: later, onRefused });
