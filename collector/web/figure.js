// Formats numbers as the terminal does (shared/model/src/figure.rs).

export const UNKNOWN = "·";

export const known = (value) => value !== null && value !== undefined;

export const count = (number) => (known(number) ? Math.round(number).toLocaleString("en-US") : UNKNOWN);

/** Rounds a number to what fits in four columns: `0.52`, `51.2`, `640`, `12k`. */
export function short(number) {
  if (!known(number)) return UNKNOWN;
  const size = Math.abs(number);
  if (size < 9.995) return number.toFixed(2);
  if (size < 99.95) return number.toFixed(1);
  if (size < 9999.5) return number.toFixed(0);
  return size < 999500 ? `${(number / 1e3).toFixed(0)}k` : `${(number / 1e6).toFixed(0)}M`;
}

export const percent = (share) => (known(share) ? `${(share * 100).toFixed(1)} %` : UNKNOWN);

/** How long ago: `4 s`, `12 m`, `3 h`, `2 d`. */
export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} m`;
  return whole < 172800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} d`;
}

export function bytes(number) {
  if (!known(number)) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let left = number;
  for (; left >= 1024 && at < units.length - 1; at += 1) left /= 1024;
  return `${Number.isInteger(left) ? left : left.toFixed(1)} ${units[at]}`;
}

export const counted = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

/** The time of day in UTC: `08:00:00`. */
export const timeOfDay = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

/** Sorts numbers, and joins consecutive ones: `0-5,7`. */
export function runs(numbers, most = 16) {
  const found = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[1] + 1 === number) last[1] = number;
    else found.push([number, number]);
  }
  const text = found.slice(0, most).map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(",");
  return found.length > most ? `${text}, …` : text;
}

export function median(values) {
  const sorted = values.filter(known).sort((a, b) => a - b);
  if (sorted.length === 0) return null;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
