"""Prints the nanoseconds of a Tracer.step(), without the loop around it: the best of many batches."""

import time

from xpu_top import Tracer

BATCH, REPEATS = 2000, 25


def took(call):
    before = time.perf_counter_ns()
    for _ in range(BATCH):
        call()
    return (time.perf_counter_ns() - before) / BATCH


def nothing():
    pass


tracer = Tracer()
best = {"step": float("inf"), "nothing": float("inf")}
for _ in range(REPEATS):
    time.sleep(0.07)
    best["step"] = min(best["step"], took(tracer.step))
    best["nothing"] = min(best["nothing"], took(nothing))
print(tracer.source, f"{best['step']:.1f}", f"{best['nothing']:.1f}")
