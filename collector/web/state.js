// The state of the page: the latest document, and the user's choices.

import { readFilter } from "./filter.js";
import { known } from "./figure.js";

export const state = {
  /** The status document (docs/http.md), and when it arrived. */
  status: null,
  arrivedAt: 0,
  /** Why there is no document: no job is known yet. */
  problem: null,
  /** The moment since which the collector cannot be reached. */
  lostAt: null,
  /** The job named in the address, `?job=NAME`; null means the foremost job. */
  job: new URLSearchParams(location.search).get("job"),
  page: "overview",
  rank: null,
  finding: 0,
  map: 0,
  filter: readFilter(""),
  filterText: "",
};

export const now = () => performance.now();

/** The age of the figures in seconds; null while they are current. */
export function staleFor() {
  const silent = (now() - state.arrivedAt) / 1000;
  if (state.status && silent > 5) return silent;
  return state.status?.figures_age_s ?? null;
}

export const ranks = () => state.status?.ranks ?? [];
export const findings = () => state.status?.findings ?? [];
export const rankOf = (number) => ranks().find((rank) => rank.rank === number);

/** Whether a finding stops the job. */
export const stops = (finding) => finding.kind === "hang" || finding.kind === "exited";

export const isOver = () => ranks().length > 0 && ranks().every((rank) => rank.state === "exited");

/** Ranks in the terminal's order: those that findings name, then silent and ended ranks, then the others. */
export function listed() {
  const named = new Set(findings().flatMap((finding) => (finding.ranks.length <= 64 ? finding.ranks : [])));
  const place = (rank) => (named.has(rank.rank) ? 0 : ["silent", "exited"].includes(rank.state) ? 1 : 2);
  const chosen = ranks().filter(state.filter.matches);
  return chosen.map((rank) => ({ rank, place: place(rank) })).sort((a, b) => a.place - b.place || a.rank.rank - b.rank.rank);
}

/** The selected rank, else the first that a finding names, else the first. */
export function chosenRank() {
  if (known(state.rank) && rankOf(state.rank)) return state.rank;
  return findings().find((finding) => finding.ranks.length > 0)?.ranks[0] ?? ranks()[0]?.rank ?? null;
}
