// Page 6: the stacks of all ranks as one tree. Branches with few ranks are marked.

import { json } from "./access.js";
import { h } from "./dom.js";
import { age } from "./figure.js";
import { state } from "./state.js";

/** Number of lines that are drawn. */
const LINES = 2_000;

let read = { tree: null, at: 0, notes: [], job: null };
let error = null;
let isReading = false;
let thread = 0;

export const stacksPage = {
  name: "stacks", key: "6", title: "stacks", help: "where every rank is in its code",
  keys: [["a", "read all stacks again"], ["T", "next thread"], ["n", "next branch with few ranks"], ["Esc", "back"]],

  enter(root, go) {
    // If the job hangs, its stacks have been read already.
    const kept = state.status?.stacks;
    if (kept) read = { tree: kept.tree, at: kept.read_at / 1e6, notes: kept.notes, job: state.status.job };
    else if (read.job !== state.status?.job || Date.now() - read.at > 30_000) ask(go);
  },

  draw(root, go) {
    const { tree } = read;
    const title = h("h2", {}, "Stacks ", h("small", {}, tree ? `of ${tree.ranks ? `ranks ${tree.ranks}` : "no rank"}, read ${age((Date.now() - read.at) / 1000)} ago` : ""), " ",
      h("button", { onclick: () => ask(go), disabled: isReading }, isReading ? "reading …" : "read again (a)"));
    const said = error ? h("p", { class: "warning" }, `▲ ${error}`) : "";
    if (!tree) {
      root.replaceChildren(title, said, isReading ? h("p", { class: "muted" }, "reading the stacks of all ranks …") : "");
      return;
    }
    thread = Math.min(thread, Math.max(0, tree.roots.length - 1));
    const choose = (index) => () => { thread = index; go("stacks"); };
    const threads = h("p", { class: "threads" }, tree.roots.map((root_, index) =>
      [h("button", { "aria-pressed": String(index === thread), onclick: choose(index) }, `${root_.function} `, h("small", { class: "muted" }, number(root_.here))), " "]).flat());
    const lines = [];
    if (tree.roots[thread]) branch(tree.roots[thread], 0, number(tree.roots[thread].here), lines);
    root.replaceChildren(title, said, threads, h("ol", { class: "stack" }, lines.slice(0, LINES)),
      lines.length > LINES ? h("p", { class: "muted" }, `${lines.length - LINES} more lines`) : "",
      ...read.notes.map((note) => h("p", { class: "muted" }, note)));
  },

  press(key, go) {
    if (key === "a") ask(go);
    else if (key === "T") { thread = (thread + 1) % Math.max(1, read.tree?.roots.length ?? 1); go("stacks"); }
    else if (key === "n") nextFew();
    else if (key === "Escape") go("overview");
    else return false;
    return true;
  },
};

async function ask(go) {
  if (isReading || !state.status) return;
  isReading = true;
  error = null;
  go("stacks");
  try {
    const answer = await json("/api/v1/stacks", { body: { job: state.status.job } });
    read = { tree: answer.tree, at: Date.now(), notes: answer.notes, job: answer.job };
  } catch (refusal) {
    error = `${refusal.message}${refusal.next ? `: ${refusal.next}` : ""}`;
  }
  isReading = false;
  if (state.page === "stacks") go("stacks");
}

/** The number of ranks in `0-5,7`. */
function number(text) {
  return text.split(",").filter(Boolean).reduce((sum, run) => {
    const [from, to] = run.split("-").map(Number);
    return sum + (to ?? from) - from + 1;
  }, 0);
}

/** Lists a branch. A frame is indented only where its branch separates from others. */
function branch(node, depth, all, lines) {
  const here = number(node.here);
  const few = all > 1 && here * 4 <= all && here > 0;
  const place = node.file ? `  ${node.file}${node.line ? `:${node.line}` : ""}` : "";
  lines.push(h("li", { class: few ? "few" : null },
    h("span", { class: "who" }, here === all && depth === 0 ? `${here} ranks` : few || here < 5 ? node.here : `${here} ranks`),
    "  ".repeat(depth), h("span", { class: node.class }, node.function), h("span", { class: "muted" }, place)));
  for (const child of node.children) branch(child, depth + (node.children.length > 1 ? 1 : 0), all, lines);
}

let few = -1;

function nextFew() {
  const found = [...document.querySelectorAll(".stack .few")];
  few = found.length > 0 ? (few + 1) % found.length : -1;
  found[few]?.scrollIntoView({ block: "center" });
}
