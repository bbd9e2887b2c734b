// Filters ranks: `0-7,16`, `state=slow,hung`, `host~gpu-1`, or a part of a host's name. The terminal's
// filters can express more (docs/tui.md).

export function readFilter(text) {
  const said = text.trim();
  const all = { text: "", error: null, matches: () => true };
  if (said === "") return all;
  if (/^[\d\s,-]+$/.test(said)) {
    const parts = said.split(",").map((part) => /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(part));
    if (parts.includes(null)) return { ...all, error: "write ranks as 0-7,16" };
    const spans = parts.map(([, from, to]) => [Number(from), Number(to ?? from)]);
    return { text: said, error: null, matches: (rank) => spans.some(([from, to]) => rank.rank >= from && rank.rank <= to) };
  }
  const test = /^(state|host)\s*(=|~)\s*(.+)$/.exec(said);
  if (test) {
    const words = test[3].split(",").map((word) => word.trim().toLowerCase());
    const of = (rank) => String(rank[test[1]]).toLowerCase();
    const has = test[2] === "=" ? (value, word) => value === word : (value, word) => value.includes(word);
    return { text: said, error: null, matches: (rank) => words.some((word) => has(of(rank), word)) };
  }
  if (/[<>=~&|!]/.test(said)) return { ...all, error: "on this page: 0-7,16 or state=slow or host~NAME; the terminal has more filters" };
  return { text: said, error: null, matches: (rank) => rank.host.toLowerCase().includes(said.toLowerCase()) };
}
