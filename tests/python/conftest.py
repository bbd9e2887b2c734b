import contextlib
import itertools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The folder with cargo's programs. XPU_TEST_PROFILE=debug selects a development build.
BUILT = ROOT / "target" / os.environ.get("XPU_TEST_PROFILE", "release")

# CI may run in a container, has no time for PyTorch, and may have no network for the packages of Debian and npm.
BEYOND_CI = ("docker", "PyTorch", "Prometheus", "Chromium")


def skip(why, beyond_ci=None):
    """Skips the test, and notes the reason for the end of `make test`. Under CI=true the test fails instead, unless
    `beyond_ci` names what CI may lack."""
    assert beyond_ci is None or beyond_ci in BEYOND_CI, beyond_ci
    if beyond_ci:
        why = f"{why} ({beyond_ci}, which CI may lack)"
    if path := os.environ.get("XPU_TEST_SKIPPED"):
        name = os.environ.get("PYTEST_CURRENT_TEST", "a test").split(" ")[0]
        with open(path, "a") as file:
            file.write(f"{name}: {why}\n")
    if os.environ.get("CI") in ("true", "1") and not beyond_ci:
        pytest.fail(f"skipped under CI=true: {why}")
    pytest.skip(why)


def with_torch(program):
    """The bin folder of an environment with PyTorch. The program is in it, or in PATH."""
    found = os.environ.get("XPU_TEST_TORCH")
    if not found or not shutil.which(program, path=f"{found}:{os.environ['PATH']}"):
        skip(f"no {program}: `make torch` installs it, or XPU_TEST_TORCH names a bin folder", beyond_ci="PyTorch")
    return found


# Below the ports that the kernel gives to connections: no connection takes a port between choice and use. Each of the
# three processes of pytest-xdist has its own ports.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
PORTS = range(10_000 + 3_000 * WORKER, 13_000 + 3_000 * WORKER)
tried = itertools.count(os.getpid() * 37)


def free_port(together=1):
    """The first of this many consecutive ports without a listener."""
    for _ in PORTS:
        ports = [PORTS[next(tried) % len(PORTS)] for _ in range(together)]
        if all(map(is_free, ports)) and ports[-1] - ports[0] == together - 1:
            return ports[0]
    raise AssertionError("no free ports")


def is_free(port):
    with socket.socket() as found:
        # Ignores ended connections, as servers do.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("", port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="session", autouse=True)
def nobodys_home(tmp_path_factory):
    """Removes the user's key and settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ["XDG_CONFIG_HOME", *(name for name in os.environ if name.startswith("XPU_TOP_"))]:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture
def runtime_dir():
    """A runtime directory whose path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="xpu-top-") as path:
        yield pathlib.Path(path)


@pytest.fixture
def environment(runtime_dir, tmp_path):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
    return {**kept, "HOME": str(tmp_path), "XPU_TOP_RUNTIME_DIR": str(runtime_dir)}


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The bin directory of a fresh environment with the built wheel."""
    wheels = sorted(ROOT.glob("dist/*.whl"))
    assert wheels, "no wheel in dist/: run `make wheel`"
    place = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    command = [place / "bin/python", "-m", "pip", "install", "-q", "--no-index", wheels[-1]]
    subprocess.run(command, check=True)
    return place / "bin"


@contextlib.contextmanager
def running_demo(*arguments):
    """Runs this checkout's `xpu-top demo --headless` during the body. Yields the base port that the demo prints."""
    program = BUILT / "xpu-top"
    demo = subprocess.Popen(
        [program, "demo", "--headless", "--base-port", str(free_port(3)), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in demo.stderr:
            if found := re.search(r"ports (\d+) to", line):
                yield int(found[1])
                break
        else:
            raise AssertionError("the demo ended without naming its base port")
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait(30)
        demo.stderr.close()
