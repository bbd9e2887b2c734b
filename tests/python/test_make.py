"""`make test` itself, with replaced programs that only print how they were called."""

import os
import subprocess

import pytest
from conftest import ROOT


def make_test(place, nextest, pytest_ends, skips="", wheel=0):
    """The exit code, the output, and the list of programs that ran."""
    calls = place / "calls"
    stubs = {
        "cargo": f'echo "cargo $1 $2" >> {calls}; test "$2" != run || exit {nextest}',
        "pytest": f'echo pytest >> {calls}; printf "{skips}" >> "$XPU_TEST_SKIPPED"; exit {pytest_ends}',
    }
    for name, script in stubs.items():
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)
    made = ("build", "packaged-hook", "browser", f"{place}/maturin", f"{place}/pytest")
    old = [part for target in made for part in ("-o", target)]
    variables = [f"CARGO={place}/cargo", f"BIN={place}", f"CARGO_TARGET_DIR={place}"]
    variables.append(f"WHEEL=sh -c 'echo no zig; exit {wheel}'")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(
        ["make", "--no-print-directory", *old, *variables, "test"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout, calls.read_text().split("\n")[:-1]


@pytest.mark.parametrize(("nextest", "python"), [(0, 0), (100, 0), (0, 1), (100, 1)])
def test_python_tests_run_even_if_others_fail(tmp_path, nextest, python):
    code, said, calls = make_test(tmp_path, nextest, python)
    assert calls == ["cargo nextest --version", "cargo nextest run", "pytest"], said
    assert (code != 0) == (nextest != 0 or python != 0), said
    assert said.endswith("no test was skipped\n"), said


def test_a_wheel_that_cannot_be_built_fails_with_its_output(tmp_path):
    code, said, calls = make_test(tmp_path, 0, 0, wheel=2)
    assert (code, calls[-1]) == (2, "pytest"), said
    assert "no zig\n" in said, said


def test_skipped_tests_are_listed_at_the_end_with_their_reasons(tmp_path):
    code, said, _ = make_test(tmp_path, 0, 0, "b: no torch\\na: no sshd\\n")
    assert code == 0
    assert said.endswith("2 tests were skipped:\na: no sshd\nb: no torch\n"), said
