"""What ten thousand connections without the key cost a collector: memory, CPU, and the delay of a viewer with the
key.

python3 tests/bench/knock.py [PROGRAMS] [CONNECTIONS]
"""

import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release").resolve()
CONNECTIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00CURVE" + bytes(47)
SAYS = (b"", GREETING, b"GET / HTTP/1.1\r\n\r\n", os.urandom(64))
BASE = 29_800


def figures(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return resident, cpu, len(os.listdir(f"/proc/{pid}/fd"))


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    place = tempfile.mkdtemp(prefix="xpu-top-knock-")
    environment = {"PATH": os.environ["PATH"], "HOME": place, "XPU_TOP_RUNTIME_DIR": f"{place}/run"}
    key = f"{place}/key"
    subprocess.run([PROGRAMS / "xpu-top", "keygen", "-o", key], check=True, env=environment, stdout=subprocess.DEVNULL)
    options = ("--base-port", str(BASE), "--key-file", key)
    command = [PROGRAMS / "xpu-collector", *options, "--bind", "127.0.0.1", "--idle-exit", "0"]
    collector = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    def asked():
        begun = time.monotonic()
        status = [PROGRAMS / "xpu-top", "status", "--now", *options]
        done = subprocess.run(status, env=environment, capture_output=True, text=True)
        return f"status ends with {done.returncode} after {time.monotonic() - begun:.2f} s"

    def line(what):
        resident, cpu, descriptors = figures(collector.pid)
        print(f"{what:42} {resident:8.1f} MiB {cpu:7.2f} s CPU {descriptors:6} descriptors; {asked()}", flush=True)

    while True:
        try:
            socket.create_connection(("127.0.0.1", BASE + 2), 1).close()
            break
        except OSError:
            time.sleep(0.01)
    line("before")
    held, refused = [], 0
    for number in range(CONNECTIONS):
        try:
            stream = socket.create_connection(("127.0.0.1", BASE + 1 + number % 2), 5)
            stream.send(SAYS[number % len(SAYS)])
            held.append(stream)
        except OSError:
            refused += 1
    line(f"{len(held)} connections held, {refused} refused")
    begun = time.monotonic()
    while figures(collector.pid)[2] > 100 and time.monotonic() - begun < 60:
        time.sleep(0.1)
    line(f"{time.monotonic() - begun:.1f} s later")
    for stream in held:
        stream.close()
    collector.terminate()
    collector.wait()


if __name__ == "__main__":
    main()
