"""A real Prometheus on the demo: it returns the figures of `xpu-top status`, and every panel and alert has data."""

import json
import re
import subprocess
import warnings

import prometheus
import pytest
from conftest import ROOT, running_demo, skip

DASHBOARD = ROOT / "deploy/grafana/xpu-top.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
RANKS = 4


@pytest.fixture(scope="session")
def programs():
    where, why = prometheus.programs()
    if where is None:
        # A warning, because the dashboard and the alerts are then not tested.
        warnings.warn(f"PROMETHEUS IS NOT TESTED: {why}", stacklevel=1)
        skip(f"no Prometheus: {why}", beyond_ci="Prometheus")
    return where


def status(base, *arguments):
    command = [ROOT / "target/release/xpu-top", "status", "--json", "--hosts", "127.0.0.1", "--base-port", str(base)]
    return json.loads(subprocess.run([*command, *arguments], capture_output=True, text=True, check=False).stdout)


def panel_queries():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "15s").replace("[10m]", "[15s]")
            yield panel["title"], re.sub(r"\$(job|rank)", ".*", expression)


def alert_queries():
    """The expressions without their thresholds, to check that there is data to compare."""
    for name, expression in re.findall(r"alert: (\w+)\n\s+expr: (.*)", ALERTS.read_text()):
        bare = re.sub(r"\s[<>]=?\s[\d.]+$", "", expression)
        assert bare != expression, f"{name} has no threshold: {expression}"
        yield name, bare.replace("[10m]", "[15s]").replace("[5m]", "[15s]")


# These alerts have data only while something is wrong.
ONLY_IN_TROUBLE = {"TrainingRankSlow", "TrainingFoundTrouble"}


def test_promtool_takes_rules_and_example(programs, tmp_path):
    checked = subprocess.run(
        [programs / "promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked
    assert f"{len(list(alert_queries()))} rules found" in checked.stdout
    example = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    token = tmp_path / "token"
    token.write_text("token")
    example = example.replace("/etc/prometheus/xpu-top.token", str(token)).replace("alerts.yml", str(ALERTS))
    path = tmp_path / "prometheus.yml"
    path.write_text(example)
    checked = subprocess.run(
        [programs / "promtool", "check", "config", path], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked


def test_every_panel_and_alert_has_data_and_answers_are_those_of_status(programs, tmp_path):
    with (
        running_demo("--ranks", str(RANKS), "--nodes", "1", "--steps", "100000") as base,
        prometheus.scraping(programs, tmp_path, [f"127.0.0.1:{base}"]) as server,
    ):
        of_all = lambda found: len(found) == RANKS  # noqa: E731
        server.wait_for("rate(xpu_top_gemm_duration_seconds_count[15s]) > 0", of_all)
        server.wait_for("xpu_top_bus_bandwidth_bytes_per_second", of_all)
        for title, expression in panel_queries():
            assert server.wait_for(expression), f"panel {title}: {expression}"
        for name, expression in alert_queries():
            if name not in ONLY_IN_TROUBLE:
                assert server.wait_for(expression), f"alert {name}: {expression}"
        check_answers(server, base)
        alerts = server.get("/api/v1/alerts")["data"]["alerts"]
        assert not [alert for alert in alerts if alert["labels"]["severity"] == "critical"], alerts


def check_answers(server, base):
    """Compares figures of the same half minute, read a second apart: they may differ by what one second changes."""
    said = status(base, "--rank", "0")
    by_rank = {rank["rank"]: rank for rank in said["ranks"]}
    queries = {
        "gemm_tflops": "xpu_top_gemm_rate_flops_per_second / 1e12",
        "bus_gb_s": "xpu_top_bus_bandwidth_bytes_per_second / 1e9",
        "step_ms_p50": "xpu_top_step_median_seconds * 1e3",
    }
    for field, expression in queries.items():
        answers = {int(labels["rank"]): value for labels, value in server.ask(expression)}
        assert answers.keys() == by_rank.keys()
        for rank, value in answers.items():
            assert value == pytest.approx(by_rank[rank][field], rel=0.1), f"{field} of rank {rank}"
    hangs = [value for _, value in server.ask("xpu_top_job_hang")]
    assert hangs == [1.0 if any(finding["kind"] == "hang" for finding in said["findings"]) else 0.0]
    # A quantile from fixed buckets is exact within its bucket. The buckets are 1, 2 and 5 of each decade.
    slowest = max(gemm["us_p99"] for gemm in by_rank[0]["gemms"] if gemm["us_p99"]) / 1e6
    quickest = min(gemm["us_p99"] for gemm in by_rank[0]["gemms"] if gemm["us_p99"]) / 1e6
    quantile = "histogram_quantile(0.99, sum by (le) (rate(xpu_top_gemm_duration_seconds_bucket{rank='0'}[15s])))"
    [(_, value)] = server.ask(quantile)
    assert quickest / 2.5 <= value <= slowest * 2.5
    flops, seconds = (
        server.ask(f"sum(rate(xpu_top_gemm_timed_{what}_total{{rank='0'}}[15s]))")[0][1]
        for what in ("flops", "duration_seconds")
    )
    assert flops / seconds / 1e12 == pytest.approx(by_rank[0]["gemm_tflops"], rel=0.1)


def test_a_slow_rank_raises_its_alert(programs, tmp_path):
    with (
        running_demo("--ranks", str(RANKS), "--nodes", "1", "--steps", "100000", "--slow", "2:1.5") as base,
        prometheus.scraping(programs, tmp_path, [f"127.0.0.1:{base}"]) as server,
    ):
        found = server.wait_for("max by (job_name, class, rank) (xpu_top_finding_rank{kind='slow_rank'}) > 0")
        assert [labels["rank"] for labels, _ in found] == ["2"]
        pending = 'ALERTS{alertname="TrainingRankSlow", rank="2"}'
        assert server.wait_for(pending)
        states = server.ask("xpu_top_rank_state{rank='2', state='slow'}")
        assert [value for _, value in states] == [1.0]


def test_a_hang_raises_its_alert(programs, tmp_path):
    with (
        running_demo("--ranks", str(RANKS), "--nodes", "1", "--steps", "100000", "--hang", "40:1", "--stay") as base,
        prometheus.scraping(programs, tmp_path, [f"127.0.0.1:{base}"]) as server,
    ):
        assert server.wait_for("max by (job_name) (xpu_top_job_hang) > 0")
        assert server.wait_for('ALERTS{alertname="TrainingHangs"}')
        [finding] = [finding for finding in status(base, "--now")["findings"] if finding["kind"] == "hang"]
        named = server.ask("xpu_top_finding_rank{kind='hang'}")
        assert sorted(int(labels["rank"]) for labels, _ in named) == finding["ranks"]
