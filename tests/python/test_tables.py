"""A capture as tables and folded lines: DuckDB computes the sums that the report shows."""

import csv
import json
import re
import subprocess
import textwrap

import duckdb
import pytest
from conftest import ROOT
from test_export import PROGRAM, RANKS, STEPS, capture, report  # noqa: F401

KINDS = ("steps", "gemms", "collectives", "kernels", "copies", "host")


@pytest.fixture(scope="module")
def tables(capture, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("tables")
    command = [PROGRAM, "export", capture, "--csv", place, "--parquet", place, "--groups", "tp2-dp2"]
    subprocess.run([*command, "--folded", place / "folded"], check=True)
    return place


def asked(tables, query):
    return duckdb.sql(query.format(**{kind: f"'{tables / kind}.parquet'" for kind in KINDS})).fetchall()


def test_sums_are_those_of_the_report(tables, report):  # noqa: F811
    of_steps = asked(
        tables, "SELECT count(*), sum(took_ns), sum(compute_ns), sum(exposed_ns), sum(gap_ns) FROM {steps}"
    )
    names = ("took_ns", "compute_ns", "exposed_ns", "gap_ns")
    assert of_steps == [(RANKS * STEPS, *(sum(rank["summary"][name] for rank in report["ranks"]) for name in names))]
    gemms = asked(
        tables,
        """SELECT m, n, k, count(*), sum(took_ns)::BIGINT, sum(flops) / sum(took_ns) / 1e3
           FROM {gemms} WHERE NOT sampled GROUP BY ALL ORDER BY 5 DESC""",
    )
    wanted = [tuple(row[name] for name in ("m", "n", "k", "count", "total_ns", "tflops")) for row in report["gemms"]]
    assert [row[:5] for row in gemms] == [row[:5] for row in wanted]
    assert gemms[0][5] == pytest.approx(wanted[0][5])
    transfers = asked(
        tables,
        """WITH each AS (SELECT communicator, operation, sequence, min(took_ns) AS transfer, sum(took_ns) AS took,
                                count(*) AS ranks FROM {collectives} WHERE took_ns IS NOT NULL GROUP BY ALL)
           SELECT count(*), sum(transfer)::BIGINT, sum(took - ranks * transfer)::BIGINT FROM each""",
    )
    rows = report["collectives"]
    assert transfers == [tuple(sum(row[name] for row in rows) for name in ("count", "total_ns", "wait_ns"))]
    copies = asked(tables, "SELECT what, count(*), sum(bytes)::BIGINT FROM {copies} GROUP BY ALL ORDER BY what")
    assert copies == [(row["what"], row["count"], row["bytes"]) for row in report["copies"]]
    host = asked(tables, "SELECT name, count(*), sum(took_ns)::BIGINT, max(took_ns) FROM {host} GROUP BY ALL")
    assert host == [(row["name"], row["count"], row["total_ns"], row["max_ns"]) for row in report["host"]]
    assert asked(tables, "SELECT DISTINCT rank, tp, dp FROM {steps} ORDER BY rank") == [
        (0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)
    ]  # fmt: skip


def documented():
    """The queries on the docs page about captures, as written there."""
    blocks = re.findall(r"(?:^    .*\n)+", (ROOT / "docs/capture.md").read_text(), re.M)
    return [textwrap.dedent(block) for block in blocks if block.lstrip().startswith(("SELECT", "WITH"))]


def test_the_queries_of_the_docs_agree_with_the_report(tables, report):  # noqa: F811
    gemms, transfers = (duckdb.sql(query.replace("DIR", str(tables))).fetchall() for query in documented())
    for row, wanted in zip(gemms, report["gemms"], strict=True):
        assert row[:4] + row[6:7] == tuple(wanted[name] for name in ("m", "n", "k", "batch", "count"))
        assert row[7:10] == pytest.approx((wanted["total_ns"] / 1e6, wanted["tflops"], wanted["p50_ns"] / 1e3))
    for place, name, unit in [(2, "count", 1), (3, "total_ns", 1e6), (4, "wait_ns", 1e6)]:
        wanted = sum(row[name] for row in report["collectives"]) / unit
        assert float(sum(row[place] for row in transfers)) == pytest.approx(wanted)


def test_csv_agrees_with_the_report(tables):
    for kind in KINDS:
        with open(tables / f"{kind}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        table = duckdb.read_parquet(str(tables / f"{kind}.parquet"))
        assert list(rows[0] if rows else table.columns) == table.columns
        cells = [tuple("" if cell is None else str(cell) for cell in row) for row in table.fetchall()]
        flags = {"true": "True", "false": "False"}
        read = [tuple(flags.get(cell, cell) for cell in row.values()) for row in rows]
        whole = {column for column, dtype in zip(table.columns, table.dtypes) if dtype == "DOUBLE"}
        keep = [place for place, column in enumerate(table.columns) if column not in whole]
        assert [[row[at] for at in keep] for row in read] == [[row[at] for at in keep] for row in cells]


def test_folded_lines_add_up(tables, report):  # noqa: F811
    lines = [line.rsplit(" ", 1) for line in (tables / "folded").read_text().splitlines()]
    assert all(len(frames.split(";")) == 4 for frames, _ in lines)
    gemms = sum(int(value) for frames, value in lines if frames.split(";")[2] == "gemm")
    assert gemms == pytest.approx(report["gemms"][0]["total_ns"] / 1e3, abs=len(lines))


def test_groups_choose_ranks_and_refuse_bad_groupings(capture, report):  # noqa: F811
    def ask(*arguments):
        return subprocess.run([PROGRAM, "report", capture, "--json", *arguments], capture_output=True, text=True)

    chosen = json.loads(ask("--groups", "tp2-dp2", "--only", "tp=1").stdout)
    assert [(rank["rank"], rank["groups"]) for rank in chosen["ranks"]] == [
        (1, {"dp": 0, "tp": 1}),
        (3, {"dp": 1, "tp": 1}),
    ]
    for arguments, word in [
        (["--groups", "tp2-dp4"], "has places for 8 ranks, and the job has 4"),
        (["--groups", "tp2"], "has places for 2 ranks"),
        (["--groups", "tp2-dp2", "--only", "pp=1"], "--groups has tp, dp"),
        (["--groups", "nonsense"], "tp4-cp2-dp4-pp2"),
        (["--only", "tp=0"], "--groups"),
    ]:
        refused = ask(*arguments)
        assert refused.returncode == 64 and word in refused.stderr, (arguments, refused.stderr)
