"""The wheel in a fresh environment: no GPU, no checkout, no preload."""

import json
import subprocess
import time

from conftest import free_port

TEN_STEPS = "from xpu_top import Tracer; t = Tracer(); [t.step() for _ in range(10)]; print(t.source)"


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=90, **options)


def test_ten_steps_without_preload(installed, environment):
    done = run(installed / "python", "-W", "error", "-c", TEN_STEPS, env=environment)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "packaged", "")


def test_disabled_it_does_nothing(installed, environment):
    done = run(installed / "python", "-c", TEN_STEPS, env={**environment, "XPU_TOP_DISABLE": "1"})
    assert (done.returncode, done.stdout.strip()) == (0, "disabled")


def test_under_run_the_preloaded_hook_takes_the_steps(installed, environment):
    command = (installed / "xpu-top", "run", "--no-collector", "--", installed / "python", "-c", TEN_STEPS)
    done = run(*command, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "preloaded"), done.stderr


def test_sparse_and_explicit_step_numbers(installed, environment):
    code = "from xpu_top import Tracer; t = Tracer(); t.step(100); t.step(110); t.step()"
    assert run(installed / "python", "-c", code, env=environment).returncode == 0


WORK = """
from decimal import Decimal
from xpu_top import Tracer
t = Tracer()
t.step(tokens=4096, samples=8, loss=2.5)
t.step(7, loss=Decimal("2.25"))
for wrong in ({"tokens": -1}, {"tokens": 1.5}, {"samples": "x"}, {"loss": "low"}, {"loss": [1.0]}):
    try:
        t.step(**wrong)
    except TypeError as error:
        assert next(iter(wrong)) in str(error), error
    else:
        raise AssertionError(wrong)
part = t.span("data")
with part, part, t.span("a part"):
    pass
try:
    with part:
        raise KeyError("it goes on")
except KeyError:
    pass
for wrong, error in (("a\\0b", ValueError), (7, TypeError)):
    try:
        t.span(wrong)
    except error:
        continue
    raise AssertionError(wrong)
try:
    t.step(-7)
except ValueError as error:
    assert "0 or more" in str(error), error
else:
    raise AssertionError("a negative step")
"""


def test_steps_carry_work_and_refuse_unknown_arguments(installed, environment):
    done = run(installed / "python", "-W", "error", "-c", WORK, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


LOSES = """
import pathlib, sys, time
from xpu_top import Tracer
t = Tracer()
t.step(loss=2.5)
t.step(loss=float("nan"))
while not pathlib.Path(sys.argv[1]).exists():
    t.step(tokens=1)
    time.sleep(0.01)
"""


def test_a_loss_that_is_nan_does_not_leave_the_one_before_as_the_present_one(installed, environment, tmp_path):
    enough, port = tmp_path / "enough", str(free_port(3))
    command = [installed / "xpu-top", "run", "--job", "loses", "--", installed / "python", "-c", LOSES, enough]
    status = [installed / "xpu-top", "status", "--json", "--now", "--hosts", "127.0.0.1", "--base-port", port]
    job = subprocess.Popen(command, env={**environment, "XPU_TOP_BASE_PORT": port})
    try:
        deadline = time.monotonic() + 60
        while True:
            said = run(*status, env=environment).stdout
            ranks = json.loads(said)["ranks"] if said else []
            if ranks and (ranks[0]["step"] or 0) > 2:
                break
            assert time.monotonic() < deadline, said
            time.sleep(0.25)
    finally:
        enough.touch()
        assert job.wait(60) == 0
    assert (ranks[0]["loss"], ranks[0]["loss_not_finite"]) == (None, True), ranks


def test_a_step_that_is_no_number_is_a_type_error(installed, environment):
    done = run(installed / "python", "-c", "from xpu_top import Tracer; Tracer().step('ten')", env=environment)
    assert "TypeError" in done.stderr


def test_the_installed_doctor_is_green(installed, environment):
    done = run(installed / "xpu-top", "doctor", "--json", env=environment)
    assert done.returncode == 0, done.stdout
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert {check["state"] for check in checks.values()} <= {"ok", "warn"}, done.stdout
    assert checks["collector"]["state"] == "ok", "all parts are of one build"
    assert str(installed.parent) in checks["preload"]["found"], "the hook of the wheel, and no other"


def test_the_installed_demo_runs(installed, environment):
    ports = ("--base-port", str(free_port(3)))
    command = (installed / "xpu-top", "demo", "--headless", "--json", "--ranks", "2", "--nodes", "1", "--steps", "10")
    done = run(*command, *ports, env=environment)
    assert done.returncode == 0, done.stderr
    assert [rank["step"] for rank in json.loads(done.stdout)["ranks"]] == [10, 10]
