// Page 9: hosts, by the worst of their ranks and GPUs.

import { h, table } from "./dom.js";
import { count, known, runs, short } from "./figure.js";
import { byHost } from "./heatmap.js";
import { isLive } from "./metric.js";
import { ranks, state } from "./state.js";

export const hostsPage = {
  name: "hosts", key: "9", title: "hosts", help: "hosts and their GPUs",
  keys: [["Esc", "back"]],

  draw(root) {
    const rows = [...byHost(ranks())].map(([host, of]) => ({ host, of }));
    const values = (row, key) => row.of.map((rank) => (key in rank ? rank[key] : rank.device?.[key])).filter(known);
    const least = (key) => (row) => (values(row, key).length > 0 ? short(Math.min(...values(row, key))) : "·");
    const most = (key) => (row) => (values(row, key).length > 0 ? short(Math.max(...values(row, key))) : "·");
    const held = (row) => [...new Set(row.of.flatMap((rank) => rank.device?.throttle ?? []))].join(", ");
    const states = (row) => [...new Set(row.of.map((rank) => rank.state))].join(", ");
    const sum = (row, key) => count(values(row, key).reduce((one, other) => one + other, 0));
    const { coverage } = state.status;
    root.replaceChildren(
      h("h2", {}, "Hosts ", h("small", {}, "the worst of their ranks and GPUs")),
      ...coverage.hosts_unreachable.map(({ host, why }) => h("p", { class: "alarm" }, `✖ ${host}: ${why}`)),
      table([
        ["host", (row) => row.host], ["ranks", (row) => runs(row.of.map((rank) => rank.rank))], ["state", states],
        ["TFLOPS", least("gemm_tflops"), true], ["bus GB/s", least("bus_gb_s"), true], ["skew ms", most("lateness_ms_p50"), true],
        ["°C", most("temperature_c"), true], ["W", most("power_w"), true], ["MHz", least("sm_mhz"), true], ["clocks held by", held],
        ["ECC", (row) => sum(row, "ecc_uncorrected"), true], ["Xid", (row) => sum(row, "xids"), true],
      ], rows, { rowClass: (row) => (row.of.some(isLive) ? null : "old") }),
      ...coverage.blind.map((text) => h("p", { class: "muted" }, `◌ not seen: ${text}`)),
      h("p", { class: "muted" }, `dropped records ${count(coverage.dropped_records)}, lost frames ${count(coverage.lost_frames)}, untimed operations ${count(coverage.untimed)}`));
  },

  press(key, go) {
    if (key !== "Escape") return false;
    go("overview");
    return true;
  },
};
