// Reads the stream of events with `fetch`, because `EventSource` cannot send a token.

import { ask, Refusal } from "./access.js";
import { now, state } from "./state.js";

/** If no event arrives for this long, the page connects again. */
const SILENCE_MS = 10_000;
const RETRY_MS = 1_000;

/** Follows the job for as long as the page is open. */
export async function follow({ onEvent, onRefused }) {
  for (;;) {
    const began = now();
    const connection = new AbortController();
    let watch = 0;
    const heard = () => {
      clearTimeout(watch);
      watch = setTimeout(() => connection.abort(), SILENCE_MS);
    };
    try {
      heard();
      const which = state.job ? `?job=${encodeURIComponent(state.job)}` : "";
      const answer = await ask(`/api/v1/events${which}`, { signal: connection.signal });
      await read(answer.body, (event) => {
        heard();
        take(event);
        onEvent();
      });
      // Streams end regularly. The next stream follows at once, unless this one was too short.
      if (now() - began < RETRY_MS) await pause();
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) {
        clearTimeout(watch);
        await onRefused();
        continue;
      }
      if (error instanceof Refusal) state.problem = { error: error.message, next: error.next };
      else state.lostAt ??= Date.now();
      onEvent();
      await pause();
    } finally {
      clearTimeout(watch);
    }
  }
}

const pause = () => new Promise((resolve) => setTimeout(resolve, RETRY_MS));

function take({ event, data }) {
  state.lostAt = null;
  if (event === "status") {
    state.status = JSON.parse(data);
    state.problem = null;
    state.arrivedAt = now();
  } else if (event === "problem") {
    state.problem = JSON.parse(data);
  }
}

/** Reads the events of a stream. Each has lines `field: value`, and ends with an empty line. */
async function read(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parts.push(value);
    // Pieces are joined only where an event may end, because an event of a thousand ranks comes in many
    // pieces.
    if (!value.includes("\n")) continue;
    const blocks = parts.join("").split("\n\n");
    parts = [blocks.pop()];
    for (const block of blocks) {
      const event = {};
      for (const line of block.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      if (event.event) onEvent(event);
    }
  }
}
