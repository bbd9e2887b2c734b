"""The tarball and the Debian package, unpacked in a place without any other part of xpu-top."""

import json
import shutil
import subprocess
import tarfile

import pytest
from conftest import ROOT, free_port, skip


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    wheel = sorted(ROOT.glob("dist/*.whl"))[-1]
    out = tmp_path_factory.mktemp("packages")
    subprocess.run([ROOT / "deploy/package.sh", wheel, out], check=True, stdout=subprocess.DEVNULL)
    return out


def unpacked(package, place):
    if package.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", package, place], check=True)
        return place / "usr"
    with tarfile.open(package) as tar:
        tar.extractall(place)
    return next(place.iterdir())


def find(packages, ending):
    if ending == ".deb" and not shutil.which("dpkg-deb"):
        skip("dpkg-deb is not there: the Debian package was not tried")
    (package,) = packages.glob(f"*{ending}")
    return package


@pytest.mark.parametrize("ending", [".tar.gz", ".deb"])
def test_an_unpacked_package_runs_in_place(packages, ending, environment, tmp_path):
    root = unpacked(find(packages, ending), tmp_path / "root")
    version = [root / "bin/xpu-top", "--version"]
    answer = subprocess.run(version, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("xpu-top 0."), answer
    command = [root / "bin/xpu-top", "demo", "--headless", "--json", "--base-port", str(free_port(3))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert len(status["ranks"]) == 8
    assert status["coverage"]["dropped_records"] == 0


def test_a_debian_package_describes_itself(packages):
    package = find(packages, ".deb")
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    assert "Package: xpu-top\n" in fields
    assert "Depends: libc6 (>= 2." in fields
    listed = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    assert "root/root" in listed and "/usr/bin/xpu-collector" in listed
    assert not any("w" in line[5:10] for line in listed.splitlines() if line[0] != "l"), "nobody else may write"
