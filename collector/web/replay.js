// The controls of a recording: its timeline below the header, and the terminal's keys for moving in time.

import { ask } from "./access.js";
import { byId, h, renew } from "./dom.js";
import { timeOfDay } from "./figure.js";
import { state } from "./state.js";

const NEAR_S = 10;
const FAR_S = 60;
const SPEEDS = [0.25, 64];

export const keys = [
  ["Space", "play, pause"], ["← →", "10 s back, on"], ["Shift ← →", "1 min back, on"], [", .", "pause, and 1 s back, on"],
  ["< >", "half, twice as fast"], ["{ }", "to the start, to the end"], ["t", "go to a time"],
];

const replay = () => state.status?.replay ?? null;

/** The keys of the footer, if a recording is shown. */
export const shortKeys = () => (replay() ? [["Space", "play, pause"], ["← →", "10 s"], ["t", "go to a time"]] : []);

const part = { play: h("button", { onclick: () => turn() }), slider: null, begin: h("span", { class: "muted" }), at: h("span", { class: "number" }), end: h("span", { class: "muted" }), said: h("span", { class: "warning" }) };

export function drawReplay() {
  const box = byId("replay");
  const now = replay();
  box.hidden = !now;
  if (!now) return;
  if (!part.slider) {
    part.slider = h("input", { type: "range", step: "any", "aria-label": "moment of the recording" });
    part.slider.addEventListener("change", () => steer(() => ({ at: Number(part.slider.value) })));
    // The keys that move in time act on the recording, not on the slider.
    part.slider.addEventListener("keydown", (event) => { if (event.key.startsWith("Arrow")) event.preventDefault(); });
    box.replaceChildren(part.play, part.at, part.begin, part.slider, part.end, part.said);
  }
  Object.assign(part.slider, { min: now.begin, max: now.end });
  if (!part.slider.matches(":active")) part.slider.value = now.at;
  const speed = now.speed === 1 ? "" : ` x${now.speed}`;
  renew(part.play, [now.is_playing], () => [now.is_playing ? "⏸ pause" : "▶ play"]);
  part.begin.textContent = timeOfDay(now.begin);
  part.end.textContent = timeOfDay(now.end);
  part.at.textContent = `${timeOfDay(now.at)} UTC${now.is_playing ? `, playing${speed}` : speed}`;
}

let answered = Promise.resolve();

/** Sends one request after another, because a request may depend on the previous answer. */
function steer(wish) {
  answered = answered.then(async () => {
    try {
      state.status.replay = await (await ask("/api/v1/replay", { body: wish(replay()) })).json();
      part.said.textContent = "";
    } catch (error) {
      part.said.textContent = `${error.message} ${error.next ?? ""}`;
    }
    drawReplay();
  });
}

const turn = () => steer((now) => ({ is_playing: !now.is_playing }));

/** Handles a key of the recording. Returns whether it is one. */
export function press(event, askTime) {
  if (!replay()) return false;
  const by = event.shiftKey ? FAR_S : NEAR_S;
  const speed = (factor) => steer((now) => ({ speed: Math.min(SPEEDS[1], Math.max(SPEEDS[0], now.speed * factor)) }));
  switch (event.key) {
    case " ": turn(); break;
    case "ArrowLeft": steer(() => ({ by: -by })); break;
    case "ArrowRight": steer(() => ({ by })); break;
    case ",": steer(() => ({ by: -1, is_playing: false })); break;
    case ".": steer(() => ({ by: 1, is_playing: false })); break;
    case "<": speed(0.5); break;
    case ">": speed(2); break;
    case "{": steer((now) => ({ at: now.begin })); break;
    case "}": steer((now) => ({ at: now.end })); break;
    case "t": askTime(); break;
    default: return false;
  }
  return true;
}

/** The form for a time. It takes the same times as the terminal's `t`. */
export function timeForm(close) {
  const hint = h("p", { class: "muted" }, "02:14:07 (UTC), +10m after the begin, -30s before the end, 50%");
  const input = h("input", { id: "time", "aria-label": "time", autocomplete: "off" });
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") {
      const at = moment(input.value.trim(), replay());
      if (at === null) {
        hint.className = "warning";
        return;
      }
      steer(() => ({ at }));
    }
    if (event.key === "Enter" || event.key === "Escape") {
      input.blur();
      close();
    }
  });
  return [h("h2", {}, "Go to a time"), input, hint];
}

const UNITS = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 };

function duration(text) {
  const parts = [...text.matchAll(/(\d+)(ms|s|m|h|d|$)/gy)];
  if (parts.length === 0 || parts.reduce((all, [whole]) => all + whole.length, 0) !== text.length) return null;
  return parts.reduce((all, [, number, unit]) => all + Number(number) * (UNITS[unit] ?? 1), 0);
}

/** The moment in seconds since 1970; null if the text is not a time. */
export function moment(text, { begin, end }) {
  if (/^[+-]/.test(text)) {
    const by = duration(text.slice(1));
    if (by === null) return null;
    return text[0] === "+" ? begin + by : end - by;
  }
  const share = /^(\d+(?:\.\d+)?)\s*%$/.exec(text);
  if (share) return Number(share[1]) <= 100 ? begin + ((end - begin) * Number(share[1])) / 100 : null;
  const clock = /^(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?$/.exec(text);
  if (!clock) return null;
  const [hours, minutes, seconds] = [clock[1], clock[2], clock[3] ?? 0].map(Number);
  if (hours > 23 || minutes > 59 || seconds > 59) return null;
  const today = begin - (begin % 86_400) + hours * 3600 + minutes * 60 + seconds;
  // A named second means its end.
  return (today + 1 <= begin ? today + 86_400 : today) + 1 - 1e-6;
}
