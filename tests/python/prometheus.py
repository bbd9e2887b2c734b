"""A real Prometheus for a test: Debian's package, unpacked below target/.

The package is not installed, so no service starts and root is not needed.
"""

import contextlib
import http
import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from conftest import ROOT, free_port

CACHE = ROOT / "target" / "prometheus"
LONGEST = 60


def programs():
    """The directory with prometheus and promtool, or the reason why there is none."""
    if all(shutil.which(name) for name in ("prometheus", "promtool")):
        return pathlib.Path(shutil.which("prometheus")).parent, None
    unpacked = CACHE / "usr/bin"
    if (unpacked / "promtool").exists():
        return unpacked, None
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return None, "this is no Debian, and prometheus and promtool are not in PATH"
    CACHE.mkdir(parents=True, exist_ok=True)
    download = ["apt-get", "download", "-q", "prometheus"]
    tried = subprocess.run(download, cwd=CACHE, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        # A machine on which nothing was ever installed has no package lists yet.
        update = ["apt-get", "update", "-q"]
        if os.geteuid() != 0:
            update = ["sudo", "-n", *update]
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(update, capture_output=True, check=False)
        tried = subprocess.run(download, cwd=CACHE, capture_output=True, text=True, check=False)
    packages = sorted(CACHE.glob("prometheus_*.deb"))
    if not packages:
        return None, f"apt-get download prometheus: {tried.stderr.strip()}"
    subprocess.run(["dpkg", "-x", packages[-1], CACHE], check=True)
    packages[-1].unlink()
    return unpacked, None


class Prometheus:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path, **query):
        url = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # Prometheus is not ready while it reads its files. The caller catches this OSError and asks again.
            if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def ask(self, expression):
        """The current series of an expression: labels and value."""
        result = self.get("/api/v1/query", query=expression)["data"]["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def wait_for(self, expression, enough=bool):
        """Asks repeatedly until `enough` accepts the series."""
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                found = self.ask(expression)
                if enough(found):
                    return found
            time.sleep(0.25)
        raise AssertionError(f"nothing within {LONGEST} s: {expression}")


@contextlib.contextmanager
def scraping(where, place, targets):
    """Runs a Prometheus during the body. It scrapes the targets every second and evaluates the alerts."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy/prometheus/alerts.yml")],
        "scrape_configs": [{"job_name": "xpu-top", "static_configs": [{"targets": targets}]}],
    }
    # JSON is valid YAML.
    (place / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    command = [
        where / "prometheus",
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (place / "prometheus.log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        running.terminate()
        running.wait(30)
