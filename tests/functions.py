"""Makes calls of every form, and counts each itself. The file `counts` has a line per step."""

import functools
import gc
import json
import queue
import sys
import threading
import types
from collections import Counter

from gpu import os, step, time

counts = Counter()
lock = threading.Lock()


def counted(name):
    with lock:
        counts[name] += 1


class Base:
    def inherited(self):
        counted("inherited")


class Trainer(Base):
    def work(self, depth):
        counted("work")
        self.inherited()
        self.fixed()
        self.build()
        return self.rate + deep(depth)

    @staticmethod
    def fixed():
        counted("fixed")

    @classmethod
    def build(cls):
        counted("build")

    @property
    def rate(self):
        counted("rate")
        return 1

    class Inner:
        def within(self):
            counted("within")


def deep(depth):
    counted("deep")
    return deep(depth - 1) if depth > 0 else 0


def numbers(most):
    counted("numbers")
    for number in range(most):
        yield number
        # Counts a resumed generator.
        counted("numbers")


def fails():
    counted("fails")
    raise ValueError


def stopped():
    """A generator that is closed in the middle: an exception enters it once more."""
    counted("stopped")
    try:
        yield
    finally:
        counted("stopped")


def layer(function):
    @functools.wraps(function)
    def around(*arguments):
        return function(*arguments)

    return around


@layer
@layer
def decorated():
    counted("decorated")


def nobody_asked():
    return deep


loaders = types.ModuleType("torch.utils.data.dataloader")
exec(
    """
class _BaseDataLoaderIter:
    def __init__(self, batches):
        self.left = batches
    def __iter__(self):
        return self
    def __next__(self):
        counted("__next__")
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left
""",
    vars(loaders),
)
loaders.counted = counted
sys.modules[loaders.__name__] = loaders


def collected(phase, info):
    if phase == "start":
        counted(f"gc generation {info['generation']}")


gc.disable()
gc.callbacks.append(collected)
tasks, results = queue.Queue(), queue.Queue()


def serve():
    while True:
        results.put(deep(tasks.get()))


threading.Thread(target=serve, daemon=True).start()
trainer = Trainer()
file = open(os.environ["COUNTS"], "w", buffering=1)


def all_forms(number):
    trainer.work(number % 5)
    Trainer.Inner().within()
    list(numbers(number % 3))
    decorated()
    nobody_asked()
    for _ in loaders._BaseDataLoaderIter(2):
        pass
    for _ in range(2):
        try:
            fails()
        except ValueError:
            pass
    stop = stopped()
    next(stop)
    stop.close()
    tasks.put(3)
    results.get()
    if "YOUNG" in os.environ:
        young = threading.Thread(target=deep, args=(1,))
        young.start()
        young.join()
    gc.collect(number % 3)


def state():
    """State that the hook must restore."""
    monitoring = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(tool) for tool in range(6)] if monitoring else None
    return {
        "tools": tools,
        "profile": repr(sys.getprofile()),
        "gc": len(gc.callbacks),
        "main": "watch_all" in globals(),
    }


exec(os.environ.get("BEFORE", ""))
number = 0
while True:
    counts.clear()
    all_forms(number)
    number += 1
    print(json.dumps({"step": number, "counts": counts, "state": state()}), file=file)
    step()
    exec(os.environ.get("BETWEEN", ""))
    time.sleep(0.005)
