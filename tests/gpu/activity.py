"""All kernels of captured steps, compared with torch.profiler on other steps of the same training, and the cost.

    xpu-top run --job activity -- torchrun --nproc_per_node 2 activity.py XPU_TOP ddp|fsdp FOLDER

Only one of the two can use CUPTI at a time, so each has its own steps. The order: a capture before torch.profiler has
ever run, torch.profiler, a capture after it. Then both in turn, PAIRS times, because readings vary; their totals are
compared, together with the mean SM clock of those steps. Then a capture while torch.profiler records, which must be
refused, and torch.profiler started during a capture, which must give way. Then captures with and without CUPTI in
turn, and the step time before, during and after each. Prints lines of JSON, and at last each expectation that was not
met.
"""

import collections
import ctypes
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import model as transformer
import torch
import torch.distributed as dist

WIDTH, BLOCKS, TOKENS, BATCH = (int(size) for size in os.environ.get("SIZES", "2048,8,1024,4").split(","))
STEPS = 30
# Seconds of training before each reading, because an idle GPU has a higher clock at first.
WARM = 2
LONG = int(os.environ.get("LONG", "60"))
ROUNDS = int(os.environ.get("ROUNDS", "6"))
PAIRS = int(os.environ.get("PAIRS", "6"))
# Allowed difference from torch.profiler, in percent.
NEAR = 2
KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}

xpu_top, kind, folder = sys.argv[1:4]
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
hook = ctypes.CDLL(None)
step = transformer.trainer(transformer.build(kind, WIDTH, BLOCKS), WIDTH, TOKENS, BATCH)
flag = torch.zeros(1, device="cuda")
took = {}
clocks = {}
completed = 0
wrong = []


def say(what):
    if rank == 0:
        print(json.dumps(what), flush=True)


def expect(holds, what):
    if not holds:
        wrong.append(what)


def train(steps):
    global completed
    for _ in range(steps):
        begin = time.monotonic()
        step()
        torch.cuda.synchronize()
        completed += 1
        took[completed] = (time.monotonic() - begin) * 1e3
        clocks[completed] = torch.cuda.clock_rate()
        hook.xpu_top_step(ctypes.c_int64(completed))


def train_until(over):
    """Trains in blocks of ten steps until rank 0 ends the training."""
    while True:
        train(10)
        flag.fill_(float(rank == 0 and over()))
        dist.broadcast(flag, 0)
        if flag.item():
            return


def for_seconds(seconds):
    until = time.monotonic() + seconds
    train_until(lambda: time.monotonic() > until)


class Capture:
    """Runs `xpu-top capture` during the training, on rank 0 only."""

    def __init__(self, name, steps, *more):
        self.path = os.path.join(folder, f"activity-{kind}-{name}.bin")
        if rank == 0 and os.path.exists(self.path):
            os.remove(self.path)
        given = ["--job", "activity", "--steps", str(steps), "-o", self.path, "--wait", "60", "--no-watch", *more]
        self.command = [xpu_top, "capture", *given]
        self.done = None
        self.thread = threading.Thread(target=self.run)
        if rank == 0:
            self.thread.start()

    def run(self):
        self.done = subprocess.run(self.command, capture_output=True, text=True)

    def is_over(self):
        return not self.thread.is_alive()

    def said(self):
        return f"{self.done.stdout}{self.done.stderr}".strip()

    def report(self):
        answer = subprocess.run([xpu_top, "report", self.path, "--json"], capture_output=True, text=True)
        return json.loads(answer.stdout)

    def kernels(self):
        """The count and the milliseconds of kernels in a step of rank 0, with NCCL's kernels separate, and the clock.

        After every tenth step rank 0 broadcasts a flag, which counts towards the next step. That step is left out.
        """
        chrome = self.path.replace(".bin", ".json")
        subprocess.run([xpu_top, "export", self.path, "--chrome", chrome], capture_output=True, check=True)
        with open(chrome) as file:
            events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
        steps = [e for e in events if e["cat"] == "step"]
        each = []
        for begin, end in ((e["ts"], e["ts"] + e["dur"]) for e in steps):
            launched = (
                e for e in events if e["cat"] in KINDS and begin <= e["ts"] - e["args"]["after_launch_us"] < end
            )
            each.append(summed(((KINDS[e["cat"]], e["name"], e["dur"]) for e in launched), 1))
        counts = [sum(of["count"] for of in step.values()) for step in each]
        whole = [index for index, count in enumerate(counts) if count == min(counts)]
        each = [each[index] for index in whole]
        kernels = {
            what: {"count": of["count"], "ms": round(statistics.fmean(step[what]["ms"] for step in each), 3)}
            for what, of in (each[0] if each else {}).items()
        }
        return kernels, clock(int(steps[index]["name"].split()[-1]) for index in whole)


def clock(steps):
    """The mean SM clock at the ends of these steps, in MHz."""
    return round(statistics.fmean(clocks[step] for step in steps))


def summed(events, steps):
    counts, times = collections.Counter(), collections.Counter()
    for what, name, duration in events:
        what = "nccl" if what == "kernel" and "nccl" in name.lower() else what
        counts[what] += 1
        times[what] += duration
    return {what: {"count": counts[what] / steps, "ms": round(times[what] / 1e3 / steps, 3)} for what in sorted(counts)}


def whole(name, *more):
    capture = Capture(name, STEPS, "--kernels", *more)
    train_until(capture.is_over)
    if rank == 0 and capture.done.returncode != 0:
        raise SystemExit(capture.said())
    return capture


def profiled(doing, name):
    """What torch.profiler sees of this many steps."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        steps = doing()
        torch.cuda.synchronize()
    path = os.path.join(folder, f"profile-{kind}-{name}-{rank}.json")
    profile.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    os.remove(path)
    seen = ((KINDS[e["cat"]], e["name"], e["dur"]) for e in events if e.get("cat") in KINDS)
    return summed(seen, steps)


def some_steps():
    """The profiled steps resemble captured ones: each is waited for, and most follow others that were profiled."""
    train(STEPS)
    return STEPS


def compare_counts(ours, theirs, when):
    for what in sorted(set(ours) | set(theirs)):
        mine, other = (of.get(what, {"count": 0})["count"] for of in (ours, theirs))
        expect(mine == other, f"{when}: {what}: {mine} a step, torch.profiler {other}")


def compare_times(ours, theirs):
    """Compares the milliseconds per step of readings taken in turn: of kernels, and of NCCL's kernels, which mostly
    wait."""
    mine, other = ([mhz for _, mhz in of] for of in (ours, theirs))
    say({"SM clock, MHz": {"captures": mine, "torch.profiler": other, "means differ by %": differs(mine, other)}})
    for what in ("kernel", "nccl"):
        mine, other = ([kernels[what]["ms"] for kernels, _ in of] for of in (ours, theirs))
        totals, medians = (differs(mine, other, of) for of in (sum, middle))
        differ = {"totals differ by %": totals, "medians by %": medians}
        say({f"{what}, ms a step": {"captures": mine, "torch.profiler": other} | differ})
        expect(what == "nccl" or abs(totals) < NEAR, f"{what}: totals differ by {totals} %: {mine}, {other}")


def differs(mine, other, of=sum):
    return round((of(mine) / of(other) - 1) * 100, 2)


def middle(numbers):
    return statistics.median(numbers) if numbers else float("nan")


for_seconds(6)
first = whole("first")
theirs = profiled(some_steps, "first")
for_seconds(1)
second = whole("second")
pairs = []
for number in range(PAIRS):
    # The order within a pair alternates too.
    profilers = (functools.partial(whole, f"paired-{number}"), functools.partial(profiled, some_steps, "paired"))
    both = [None, None]
    for which in (0, 1) if number % 2 == 0 else (1, 0):
        for_seconds(WARM)
        both[which] = profilers[which]()
        if which == 1:
            both[1] = both[1], clock(range(completed - STEPS + 1, completed + 1))
        elif rank == 0:
            both[0] = both[0].kernels()
    pairs.append(both)
    say({"pair": number, "capture, torch.profiler": both})

# A capture while torch.profiler records. torch.profiler counts its own steps, whatever the capture does.
refused, counted = None, 0


def while_capturing():
    global refused, counted
    before = completed
    train(2)
    refused = Capture("refused", STEPS, "--kernels")
    train_until(refused.is_over)
    return completed - before


within = profiled(while_capturing, "refused")

# torch.profiler starts in the middle of a capture.
overtaken = Capture("overtaken", LONG * 4, "--kernels")
for_seconds(3)
overtaking = profiled(some_steps, "overtaking")
train_until(overtaken.is_over)

ratios = collections.defaultdict(list)
for number in range(ROUNDS):
    for mode in ("full", "light") if number % 2 == 0 else ("light", "full"):
        for_seconds(1.5)
        capture = Capture(f"cost-{mode}", LONG, *(["--light"] if mode == "light" else ["--kernels"]))
        train_until(capture.is_over)
        for_seconds(1.5)
        if rank == 0 and capture.done.returncode == 0:
            steps = [each["step"] for each in capture.report()["ranks"][0]["steps"]]
            begin, end = steps[0], steps[-1]
            pace = middle([took[n] for n in range(begin, end)])
            # CUPTI starts a third of a second, or two steps, before the first step, and stops as long after the last.
            far = int(600 / pace) + 5
            blocks = {
                "within": range(begin, end + 1),
                "before": range(begin - far - LONG, begin - far),
                "after": range(end + far, end + far + LONG),
            }
            median = {name: middle([took[n] for n in block if n in took]) for name, block in blocks.items()}
            ratios[f"{mode}: within/before"].append((median["within"] / median["before"] - 1) * 100)
            ratios[f"{mode}: after/before"].append((median["after"] / median["before"] - 1) * 100)

if rank == 0:
    say({"kind": kind, "sizes": [WIDTH, BLOCKS, TOKENS, BATCH], "torch": torch.__version__})
    for name, capture in (("before torch.profiler ever ran", first), ("after it", second)):
        ours, mhz = capture.kernels()
        say({name: capture.said(), "a step": ours, "MHz": mhz, "clock": capture.report()["clock"]})
        compare_counts(ours, theirs, name)
    say({"torch.profiler, a step": theirs})
    if pairs:
        compare_times(*zip(*pairs))
    say({"while torch.profiler records": refused.said(), "torch.profiler, a step": within})
    expect("torch.profiler" in refused.said(), "a capture while torch.profiler records does not say so")
    say({"torch.profiler begun within": overtaken.said(), "torch.profiler, a step": overtaking})
    expect("torch.profiler" in overtaken.said(), "a capture that was overtaken does not say so")
    for name, seen in (("a refused capture", within), ("one that gave way", overtaking)):
        for what in ("kernel", "nccl"):
            # A flag is broadcast between those steps, which adds a few kernels.
            hurt = abs(seen.get(what, {"count": 0})["count"] / theirs[what]["count"] - 1) * 100 > NEAR
            expect(not hurt, f"{name} hurts torch.profiler: {what} {seen.get(what)} a step, by itself {theirs[what]}")
    say({name: {"median %": round(middle(all), 2), "each": [round(x, 2) for x in all]} for name, all in ratios.items()})
    print("\n".join(wrong) or "all as expected", flush=True)
dist.barrier()
dist.destroy_process_group()
