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

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Where cargo has put the programs. XPU_TEST_PROFILE=debug takes those of a development build.
BUILT = ROOT / "target" / os.environ.get("XPU_TEST_PROFILE", "release")

# CI may be a container itself, has no time for PyTorch, and may have no network for Debian's packages and npm's.
BEYOND_CI = ("docker", "PyTorch", "Prometheus", "Chromium")


def skip(why, beyond_ci=None):
    """Writes the reason down for the end of `make test`. Under CI=true it fails, except for one of BEYOND_CI."""
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
    """The bin folder of an environment with PyTorch; the program is in it, or in PATH."""
    found = os.environ.get("XPU_TEST_TORCH")
    if not found or not shutil.which(program, path=f"{found}:{os.environ['PATH']}"):
        skip(f"no {program}: `make torch` installs it, or XPU_TEST_TORCH names a bin folder", beyond_ci="PyTorch")
    return found


# Below the ports that the kernel gives to connections, which would take one between its choice and its use.
PORTS = range(10_000, 19_000)
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
        # As servers do: connections that have ended do not count.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("", port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="session", autouse=True)
def nobodys_home(tmp_path_factory):
    """No key and no settings of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ["XDG_CONFIG_HOME", *(name for name in os.environ if name.startswith("XPU_TOP_"))]:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture
def runtime_dir(tmp_path):
    """A runtime directory short enough for a Unix socket, and no configuration of the user's."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def environment(runtime_dir, tmp_path):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
    return {**kept, "HOME": str(tmp_path), "XPU_TOP_RUNTIME_DIR": str(runtime_dir)}


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The bin directory of a fresh environment with the built wheel in it."""
    wheels = sorted(ROOT.glob("dist/*.whl"))
    assert wheels, "no wheel in dist/: run `make wheel`"
    place = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    command = [place / "bin/python", "-m", "pip", "install", "-q", "--no-index", wheels[-1]]
    subprocess.run(command, check=True)
    return place / "bin"


@contextlib.contextmanager
def running_demo(*arguments):
    """`xpu-top demo --headless` of this checkout while the body runs; gives the base port it says it took."""
    program = BUILT / "xpu-top"
    demo = subprocess.Popen(
        [program, "demo", "--headless", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
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
