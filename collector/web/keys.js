// The keyboard: the terminal's keys, as far as the page has the same functions.

import { byId, h, table } from "./dom.js";
import { readFilter } from "./filter.js";
import { keys as replayKeys, press as steers, timeForm } from "./replay.js";
import { state } from "./state.js";

/** Other keys of the terminal for the same pages. */
const ALSO = { s: "stacks", f: "findings" };

export function listen(pages, go) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const dialog = byId("dialog");
    if (dialog.open) {
      if (event.key === "?" || event.key === "h") dialog.close();
      return;
    }
    if (event.target.matches("input:not([type=range]), select, textarea")) return;
    // A focused button handles Enter and the space bar itself.
    if (event.target.matches("button, a") && (event.key === "Enter" || event.key === " ")) return;
    if (press(event, pages, go)) event.preventDefault();
  });
}

function press(event, pages, go) {
  const { key } = event;
  const page = pages.find((one) => one.key === key) ?? pages.find((one) => one.name === ALSO[key]);
  if (state.status && page) go(page.name);
  else if (key === "?" || key === "h") help(pages);
  else if (key === "l") window.switchTheme();
  else if (key === "/" && state.status) filter(go);
  else if (steers(event, askTime)) return true;
  else return Boolean(state.status && current(pages).press?.(key, go));
  return true;
}

function askTime() {
  show(...timeForm(() => byId("dialog").close()));
  byId("time").focus();
}

const current = (pages) => pages.find((one) => one.name === state.page);

export function filter(go) {
  const hint = h("p", { class: "muted" }, "0-7,16   state=slow,hung   host~gpu-1   or a part of a host's name");
  const input = h("input", { id: "filter", value: state.filterText, "aria-label": "filter", autocomplete: "off" });
  const before = state.filterText;
  const use = (text) => {
    const next = readFilter(text);
    hint.textContent = next.error ?? "Enter keeps it, Esc drops it";
    if (next.error) return;
    state.filter = next;
    state.filterText = next.text;
    go("overview");
  };
  input.addEventListener("input", () => use(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") use(before);
    if (event.key === "Enter" || event.key === "Escape") {
      // Otherwise the input keeps the focus, and so gets the next key, until the browser draws again.
      input.blur();
      byId("dialog").close();
    }
    event.stopPropagation();
  });
  show(h("h2", {}, "Only some ranks"), input, hint);
  input.focus();
}

function help(pages) {
  const general = [["1 … 9", "pages"], ["/", "show only some ranks"], ["l", "light or dark"], ["?", "this list"]];
  const here = current(pages).keys ?? [];
  const list = (rows) => table([["", (row) => h("kbd", {}, row[0])], ["", (row) => row[1]]], rows);
  show(h("h2", {}, "Keys of this page"), list(here), h("h2", {}, "Everywhere"), list(general),
    ...(state.status?.replay ? [h("h2", {}, "Time"), list(replayKeys)] : []),
    h("h2", {}, "Pages"), list(pages.map((page) => [page.key, page.help])),
    h("p", { class: "muted" }, "GEMMs by shape over all ranks (3), communicators (4), the past of a running job: xpu-top in a terminal"));
}

function show(...children) {
  const dialog = byId("dialog");
  dialog.replaceChildren(...children);
  if (!dialog.open) dialog.showModal();
}
