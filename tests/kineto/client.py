"""Kineto, PyTorch's profiler, as a daemon sees it, for tests without PyTorch.

`Kineto()` acts as in PyTorch: it counts optimizer steps, asks the daemon at `$KINETO_IPC_SOCKET_DIR/dynolog` what to
do, and writes a trace of the ordered steps. Without a folder it asks at an abstract name: `$XPU_TOP_KINETO_SOCKET`,
because a host has only one `@dynolog`. tests/python/test_kineto.py uses real PyTorch.
"""

import os
import socket
import struct
import sys
import threading
import time
import types
import uuid

import torch_hooks

EVENT = """,
  {{
    "ph": "X", "cat": "user_annotation", "name": "Optimizer.step#Adam.step", "pid": {pid}, "tid": {pid},
    "ts": {ts:.3f}, "dur": 216.875
  }}"""


# The period that a trace covers.
SPAN = """,
  {{
    "ph": "X", "cat": "Trace", "ts": {ts:.3f}, "dur": {dur:.3f},
    "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"
  }}"""
END = """,
  {{
    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": {ts:.3f}
  }}"""


class Kineto:
    def __init__(self, every=0.2, answers=True, writes=True, traces=1.0, busy=False):
        # `busy`: the program's own profiler is active.
        self.busy = busy
        # `traces`: the share of a period after which a trace ends, as if the buffers were full.
        self.every, self.writes, self.answers, self.traces, self.period = every, writes, answers, traces, None
        self.count, self.config, self.calls = -1, None, []
        name = f"dynoconfigclient{uuid.uuid4()}"
        if folder := os.environ.get("KINETO_IPC_SOCKET_DIR"):
            self.daemon, name = os.path.join(folder, "dynolog"), os.path.join(folder, name)
        else:
            self.daemon, name = "\0" + os.environ["XPU_TOP_KINETO_SOCKET"] + "\0", f"\0{name}\0"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name)
        torch_hooks.import_torch()
        self.tracker = types.SimpleNamespace(_current_step=0)
        module = types.ModuleType("torch.autograd.profiler")
        module.KinetoStepTracker = self.tracker
        sys.modules["torch.autograd.profiler"] = module
        # `import torch` does this too, if KINETO_USE_DAEMON is set.
        if os.environ.get("KINETO_USE_DAEMON"):
            torch_hooks.registered.append(self.after_step)
            threading.Thread(target=self.ask_for_ever, daemon=True).start()

    def after_step(self, optimizer, args, kwargs):
        self.tracker._current_step += 1
        self.count += 1
        config = self.config
        if config is None or "PROFILE_START_ITERATION" not in config:
            return
        start, steps = int(config["PROFILE_START_ITERATION"]), int(config["ACTIVITIES_ITERATIONS"])
        if start < self.count <= start + steps:
            self.calls.append(time.time())
        if self.count == start + steps:
            self.write()

    def is_active(self):
        return self.busy or bool(self.calls)

    def ask_for_ever(self):
        while True:
            self.ask()
            time.sleep(self.every)

    def ask(self):
        pids = [os.getpid(), os.getppid()]
        payload = struct.pack("=iiq", 0 if self.is_active() else 2, len(pids), 0) + struct.pack("=2i", *pids)
        try:
            self.socket.sendto(struct.pack("=Q32s", len(payload), b"req") + payload, self.daemon)
            self.socket.settimeout(0.09)
            reply, sender = self.socket.recvfrom(1 << 16)
        except OSError:
            return
        # Kineto aborts its process in this case.
        if sender != (self.daemon if self.daemon[0] == "/" else self.daemon.encode()):
            os.abort()
        (size,) = struct.unpack_from("=Q", reply)
        if size != len(reply) - 40:
            os.abort()
        if size and self.config is None:
            try:
                config = dict(line.split("=") for line in reply[40:].decode().splitlines())
            except ValueError:
                # Kineto logs that it does not understand the configuration.
                return
            self.take(config)

    def take(self, config):
        self.config = config
        if "PROFILE_START_ITERATION" in config:
            # If that step is over, the next one is used, rounded up.
            start, upto = int(config["PROFILE_START_ITERATION"]), int(config.get("PROFILE_START_ITERATION_ROUNDUP", 1))
            if start <= self.count:
                start = -(-(self.count + 1) // upto) * upto
            config["PROFILE_START_ITERATION"] = start
        if at := config.get("PROFILE_START_TIME"):
            length = int(config["ACTIVITIES_DURATION_MSECS"]) / 1e3 * self.traces
            self.period = (int(at) / 1e3, int(at) / 1e3 + length)
            threading.Timer(self.period[1] - time.time(), self.write).start()

    def write(self):
        calls, self.calls, config, self.config = self.calls, [], self.config, None
        if not self.writes:
            return
        path = config["ACTIVITIES_LOG_FILE"].replace(".json", f"_{os.getpid()}.json")
        # Before all times of the trace, which are positive.
        base = int(time.time() - 60) * 10**9
        events = [EVENT.format(pid=os.getpid(), ts=(at * 1e9 - base) / 1e3) for at in calls]
        if self.period:
            begin, end = ((at * 1e9 - base) / 1e3 for at in self.period)
            events.insert(0, SPAN.format(ts=begin, dur=end - begin))
            events.append(END.format(ts=end))
        # Enough text that the trace takes several parts.
        noise = "".join(f',\n{{"ph": "i", "name": "{os.urandom(16).hex()}"}}' for _ in range(60_000))
        with open(path + ".tmp", "w") as file:
            file.write(f'{{"schemaVersion": 1, "trace_id": "{config["REQUEST_TRACE_ID"]}",\n')
            file.write(f'"baseTimeNanoseconds": {base}, "traceEvents": [\n{{"ph": "M", "name": "config"}}')
            file.write("".join(events) + noise + f'],\n"traceName": "{path}"\n}}\n')
        os.rename(path + ".tmp", path)
