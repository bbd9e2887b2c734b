"""dynolog as PyTorch's profiler sees it: `dynolog.py FOLDER`, the daemon of this folder, or `dynolog.py @NAME`, the one
at this abstract name.

It removes an existing file and takes the name, as dynolog does, and ends when its input ends. If another daemon has the
abstract name, dynolog serves no program, and does not try again; this program ends. Each input line is a file
name: each process that has polled gets one request to write a trace of two steps there, as by `dyno gputrace
--iterations 2 --log-file FILE`. Prints a line per request.
"""

import os
import select
import socket
import struct
import sys

daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if sys.argv[1].startswith("@"):
    daemon.bind(f"\0{sys.argv[1][1:]}\0")
else:
    name = os.path.join(sys.argv[1], "dynolog")
    if os.path.exists(name):
        os.unlink(name)
    daemon.bind(name)
    os.chmod(name, 0o666)
print("ready", file=sys.stderr, flush=True)

# The configuration that each process gets at its next poll, by process id.
processes = {}


def take():
    datagram, client = daemon.recvfrom(1 << 16)
    size, kind = struct.unpack_from("=Q32s", datagram)
    assert size == len(datagram) - 40 and kind.startswith(b"req"), datagram
    accepts, count, _ = struct.unpack_from("=iiq", datagram, 40)
    pids = struct.unpack_from(f"={count}i", datagram, 56)
    if pids[0] not in processes:
        print(f"registered {pids[0]}", file=sys.stderr, flush=True)
    config = processes.setdefault(pids[0], "") if accepts & 2 else ""
    daemon.sendto(struct.pack("=Q32s", len(config), b"req") + config.encode(), client)
    if config:
        processes[pids[0]] = ""
        print(f"configured {pids[0]}", flush=True)


while True:
    if daemon in select.select([daemon, sys.stdin], [], [])[0]:
        take()
    elif line := sys.stdin.readline().strip():
        lines = [
            f"ACTIVITIES_LOG_FILE={line}",
            "PROFILE_START_ITERATION=0",
            "PROFILE_START_ITERATION_ROUNDUP=1",
            "ACTIVITIES_ITERATIONS=2",
            "PROFILE_REPORT_INPUT_SHAPES=false",
            "PROFILE_WITH_STACK=false",
            "PROFILE_WITH_FLOPS=false",
            "PROFILE_WITH_MODULES=false",
            "REQUEST_TRACE_ID=7",
        ]
        processes = dict.fromkeys(processes, "\n".join(lines) + "\n")
    else:
        # The socket's file stays, as after a kill.
        break
