// Draws a heatmap of all ranks on a canvas: one row per host, in several columns if one column would be too
// long.

import { h } from "./dom.js";
import { known, short } from "./figure.js";
import { isLive } from "./metric.js";
import { STEPS } from "./scale.js";

/** Lengths in pixels. */
const TALLEST = 420;
const CELL = { least: 7, highest: 26, written: 38 };
const GAP = 18;
/** Space above the first row, whose name may be higher than the row. */
const ABOVE = 3;
const FONT = "11px system-ui, 'DejaVu Sans', sans-serif";

let colours = null;
addEventListener("theme", () => { colours = null; });

function palette() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  colours ??= {
    heat: Array.from({ length: STEPS }, (_, step) => of(`heat-${step}`)),
    ...Object.fromEntries(["stale", "on-stale", "on-dark", "on-light", "alarm", "warning", "letters", "muted", "faint", "accent", "ground"].map((name) => [name, of(name)])),
  };
  return colours;
}

/** Ranks by host, in the order of their first ranks. */
export function byHost(ranks) {
  const hosts = new Map();
  for (const rank of ranks) {
    if (!hosts.has(rank.host)) hosts.set(rank.host, []);
    hosts.get(rank.host).push(rank);
  }
  return hosts;
}

/** The number of rows, and the size of their cells. */
function layout(hosts, width, labelWidth) {
  const perHost = Math.max(...[...hosts.values()].map((of) => of.length));
  for (let columns = 1; ; columns += 1) {
    const rows = Math.ceil(hosts.size / columns);
    const cell = Math.floor((width - columns * labelWidth - (columns - 1) * GAP) / (columns * perHost));
    const high = Math.max(CELL.least, Math.min(CELL.highest, cell));
    if (rows * high <= TALLEST || cell <= CELL.least || columns >= hosts.size) {
      return { rows, wide: Math.max(4, Math.min(cell, 84)), high, perHost };
    }
  }
}

export class Heatmap {
  constructor({ onPick, onHover }) {
    this.canvas = h("canvas", { tabindex: "-1" });
    this.cells = [];
    this.canvas.addEventListener("mousemove", (event) => onHover(this.at(event), event));
    this.canvas.addEventListener("mouseleave", (event) => onHover(null, event));
    this.canvas.addEventListener("click", (event) => { const cell = this.at(event); if (cell) onPick(cell.rank); });
  }

  at({ offsetX, offsetY }) {
    return this.cells.find(({ x, y, wide, high }) => offsetX >= x && offsetX < x + wide && offsetY >= y && offsetY < y + high) ?? null;
  }

  draw({ ranks, metric, scale, named, chosen, matches }) {
    const hosts = byHost(ranks);
    const width = this.canvas.parentElement.clientWidth;
    const context = this.canvas.getContext("2d");
    context.font = FONT;
    const longest = Math.max(0, ...[...hosts.keys()].map((host) => context.measureText(host).width));
    const labelWidth = Math.min(110, Math.ceil(longest) + 8);
    const place = layout(hosts, width, labelWidth);
    const height = ABOVE + place.rows * place.high + 2;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    context.font = FONT;
    context.textBaseline = "middle";
    this.cells = [];
    let index = 0;
    for (const [host, of] of hosts) {
      const left = Math.floor(index / place.rows) * (labelWidth + place.perHost * place.wide + GAP);
      const top = ABOVE + (index % place.rows) * place.high;
      // If rows are low, only some hosts have their names shown.
      if (place.high >= 11 || (index % place.rows) % Math.ceil(11 / place.high) === 0) {
        context.fillStyle = palette().muted;
        context.textAlign = "left";
        context.fillText(host, left, top + place.high / 2, labelWidth - 6);
      }
      of.forEach((rank, nth) => {
        const cell = { rank, x: left + labelWidth + nth * place.wide, y: top, wide: place.wide, high: place.high };
        this.cells.push(cell);
        drawCell(context, cell, { metric, scale, isNamed: named.has(rank.rank), isChosen: rank.rank === chosen, isAside: !matches(rank) });
      });
      index += 1;
    }
    this.canvas.setAttribute("aria-label", `${metric.title} of ${ranks.length} ranks`);
  }
}

function drawCell(context, { rank, x, y, wide, high }, { metric, scale, isNamed, isChosen, isAside }) {
  const colour = palette();
  const gap = wide > 9 ? 1 : 0.5;
  const box = [x + gap, y + gap, wide - 2 * gap, high - 2 * gap];
  const value = metric.of(rank);
  if (isAside) {
    context.fillStyle = colour.faint;
    context.fillRect(x + gap, y + high / 2 - 0.5, wide - 2 * gap, 1);
    return;
  }
  const step = scale && known(value) ? scale.step(value) : null;
  context.fillStyle = step === null ? colour.stale : colour.heat[step];
  context.fillRect(...box);
  if (step === null && !isLive(rank)) hatch(context, box, colour["on-stale"]);
  const bad = step !== null && scale.isBad(value);
  const ink = step === null ? colour["on-stale"] : step >= STEPS / 2 ? colour["on-light"] : colour["on-dark"];
  context.fillStyle = ink;
  context.textAlign = "center";
  const sign = bad ? (metric.worse === "low" ? "▼" : "▲") : "";
  if (wide >= CELL.written && high >= 14) {
    const text = known(value) ? `${short(value)}${sign && ` ${sign}`}` : rank.state === "exited" ? "○" : "·";
    context.fillText(text, x + wide / 2, y + high / 2 + 0.5, wide - 6);
  } else if (bad) {
    triangle(context, box, metric.worse === "low");
  }
  if (isNamed || isChosen) {
    context.lineWidth = 2;
    context.strokeStyle = isChosen ? colour.letters : rank.state === "ok" || rank.state === "slow" ? colour.warning : colour.alarm;
    context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  }
}

/** Draws the lines across the cell of an old figure. */
function hatch(context, [x, y, wide, high], colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, wide, high);
  context.clip();
  context.beginPath();
  for (let at = x - high; at < x + wide; at += 5) {
    context.moveTo(at, y + high);
    context.lineTo(at + high, y);
  }
  context.strokeStyle = colour;
  context.lineWidth = 0.6;
  context.stroke();
  context.restore();
}

function triangle(context, [x, y, wide, high], down) {
  const size = Math.min(wide, high) * 0.32;
  const [middle, centre, up] = [x + wide / 2, y + high / 2, down ? -1 : 1];
  context.beginPath();
  context.moveTo(middle - size, centre + up * size * 0.8);
  context.lineTo(middle + size, centre + up * size * 0.8);
  context.lineTo(middle, centre - up * size * 0.8);
  context.fill();
}
