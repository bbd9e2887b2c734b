// Chooses the colour step, one of eight, for a value, by the rules of tui/src/widget/scale.rs.

import { known, median } from "./figure.js";

export const STEPS = 8;
const MIDDLE = 4;
const ALIKE = 0.05;

/** The scale of a metric over all ranks; null while no value is known. */
export function scaleOf(metric, ranks, usualStep) {
  const values = ranks.map(metric.of).filter(known);
  const middle = median(values);
  if (middle === null) return null;
  const [lowest, highest] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  const whole = metric.word === "skew" ? usualStep : metric.word === "exposed" ? 100 : null;
  const alike = ALIKE * (whole ?? middle);
  const isLow = metric.worse === "low";
  const [toBad, toGood] = isLow ? [middle - lowest, highest - middle] : [highest - middle, middle - lowest];
  const bad = Math.max(toBad / MIDDLE, alike);
  const good = Math.max(toGood / (STEPS - 1 - MIDDLE), alike);
  // Arrival skew is coloured by its share of a step, and not coloured while that share is unknown.
  const isNoise = alike <= 0 || (metric.word === "skew" && whole === null) || highest - lowest < alike;
  const badness = (value) => (isLow ? middle - value : value - middle);
  const step = (value) => {
    const by = badness(value);
    if (isNoise || !Number.isFinite(by)) return MIDDLE;
    return by > 0 ? Math.max(0, MIDDLE - Math.round(by / bad)) : Math.min(STEPS - 1, MIDDLE + Math.round(-by / good));
  };
  const sign = isLow ? 1 : -1;
  return {
    median: middle, badness, step,
    isBad: (value) => !isNoise && badness(value) >= alike,
    deviation: (value) => (middle > 0 ? value / middle - 1 : 0),
    ends: [Math.max(0, middle - sign * bad * MIDDLE), Math.max(0, middle + sign * good * (STEPS - 1 - MIDDLE))],
  };
}
