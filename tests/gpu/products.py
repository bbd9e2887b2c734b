"""Compares the hook's figures of gemv and BLAS 3 with the program's own counts, FLOPs and clock, on one GPU.

    xpu-top run --job products -- python3 products.py XPU_TOP

Prints a line per figure, and ends with 1 if one is wrong: a count that is not the number of calls, or TFLOPS more than
3 % from the program's.
"""

import json
import os
import subprocess
import sys
import time
from ctypes import CDLL, byref, c_double, c_float, c_int, c_int64, c_longlong, c_uint64, c_void_p

import torch

XPU_TOP = sys.argv[1]
NEAR = 0.03
CALLS, SMALL = 7, 24
# Seconds of the mix: more than the half minute of the rates.
MIX = float(os.environ.get("MIX", 36))

torch.cuda.set_device(0)
torch.mm(*[torch.ones(8, 8, device="cuda")] * 2)
library = next(line.split()[-1] for line in open("/proc/self/maps") if "/libcublas.so" in line)
cublas = CDLL(library)
process = CDLL(None)
process.xpu_top_counter.restype = c_uint64
blas = c_void_p()
assert cublas.cublasCreate_v2(byref(blas)) == 0
assert cublas.cublasSetStream_v2(blas, c_void_p(torch.cuda.current_stream().cuda_stream)) == 0
# Zeros: any routine keeps them, and a unit triangle is solved without infinities.
data = torch.zeros(3 << 28, dtype=torch.float32, device="cuda")
at = c_void_p(data.data_ptr())
arrays = torch.full((3,), data.data_ptr(), dtype=torch.int64, device="cuda")
many = c_void_p(arrays.data_ptr())
# One in every letter's first numbers; HSH and TST scale in single precision.
ONES = {"S": c_float(1), "D": c_double(1), "C": (c_float * 2)(1, 0), "Z": (c_double * 2)(1, 0)}
LOWER, UNIT = 0, 1
wrong = []


def verdict(what, is_right, **figures):
    print(json.dumps({"what": what, "right": is_right, **figures}), flush=True)
    if not is_right:
        wrong.append(what)


def near(one, other):
    return one is not None and other > 0 and abs(one / other - 1) <= NEAR


def status():
    command = [XPU_TOP, "status", "--now", "--json", "--rank", "0", "--job", "products", "--wait", "4"]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["ranks"][0]


def rested():
    """The status once all work is done and reported."""
    torch.cuda.synchronize()
    time.sleep(2.5)
    return status()


def entries():
    """Each entry: its name, its routine, its letter, and the kind of its arguments."""
    for letter in "SDCZ":
        yield f"cublas{letter}gemv_v2", "gemv", letter, "gemv"
        for routine in ("symm", "hemm") if letter in "CZ" else ("symm",):
            yield f"cublas{letter}{routine}_v2", routine, letter, "with_c"
        yield f"cublas{letter}trmm_v2", "trmm", letter, "trmm"
        yield f"cublas{letter}trsm_v2", "trsm", letter, "trsm"
        yield f"cublas{letter}trsmBatched", "trsm", letter, "trsms"
        for routine in ("syrk", "herk") if letter in "CZ" else ("syrk",):
            yield f"cublas{letter}{routine}_v2", routine, letter, "of_one"
        for routine in ("syr2k", "her2k") if letter in "CZ" else ("syr2k",):
            yield f"cublas{letter}{routine}_v2", routine, letter, "of_two"
        for routine in ("syrkx", "herkx") if letter in "CZ" else ("syrkx",):
            yield f"cublas{letter}{routine}", routine, letter, "of_two"
    for letters in ("S", "D", "C", "Z", "HSH", "HSS", "TST", "TSS"):
        yield f"cublas{letters}gemvBatched", "gemv", letters, "gemvs"
        yield f"cublas{letters}gemvStridedBatched", "gemv", letters, "gemvst"
    for name in ("syrkEx", "syrk3mEx", "herkEx", "herk3mEx"):
        yield f"cublasC{name}", name[:4], "C", "typed"


def call(name, kind, letter, m, n=SMALL, side=0, flip=0):
    """Calls one entry; `n` is its second size."""
    size = c_int64 if name.endswith("_64") else c_int
    one = byref(ONES["S" if len(letter) == 3 else letter])
    # A complex syrk takes no conjugate, a herk nothing else, and a real routine either.
    operation, left = (1 if "syr" in name else 2) if flip else 0, side == 0
    m, n, inner = size(m), size(n), size(m if left else n)
    rows, step, none = n if flip else m, size(1), c_longlong(0)
    fill = (blas, side, LOWER, operation, UNIT, m, n, one)
    arguments = {
        "gemv": lambda: (blas, operation, m, n, one, at, m, at, step, one, at, step),
        "gemvs": lambda: (blas, operation, m, n, one, many, m, many, step, one, many, step, size(3)),
        "gemvst": lambda: (blas, operation, m, n, one, at, m, none, at, step, none, one, at, step,
                           c_longlong(max(m.value, n.value)), size(3)),
        "with_c": lambda: (blas, side, LOWER, m, n, one, at, inner, at, m, one, at, m),
        "trmm": lambda: (*fill, at, inner, at, m, at, m),
        "trsm": lambda: (*fill, at, inner, at, m),
        "trsms": lambda: (*fill, many, inner, many, m, size(3)),
        "of_one": lambda: (blas, LOWER, operation, m, n, one, at, rows, one, at, m),
        "typed": lambda: (blas, LOWER, operation, m, n, one, at, 4, rows, one, at, 4, m),
        "of_two": lambda: (blas, LOWER, operation, m, n, one, at, rows, at, rows, one, at, m),
    }[kind]()  # fmt: skip
    return getattr(cublas, name)(*arguments)


def sides(kind, routine, m, n=SMALL, side=0, flip=0):
    """m, n and k as documents have them."""
    if routine == "gemv":
        return (n, 1, m) if flip else (m, 1, n)
    if kind in ("of_one", "of_two", "typed"):
        return m, m, n
    return m, n, m if side == 0 else n


def flops(routine, letter, m, n, k):
    """The usual counts."""
    complex_ = 4 if letter in ("C", "Z") else 1
    if routine in ("syrk", "herk", "syrkx", "herkx"):
        return complex_ * n * (n + 1) * k
    return complex_ * (1 if routine in ("trmm", "trsm") else 2) * m * n * k


def find(rank, routine, shape, datatype, batch=1):
    want = dict(zip("mnk", shape)) | {"routine": routine, "datatype": datatype, "batch": batch}
    found = [gemm for gemm in rank["gemms"] if want.items() <= gemm.items()]
    return {"count": sum(gemm["count"] for gemm in found), "tflops": found[0]["tflops"] if found else None}


# GEMMs between solves and products with vectors: the rank's TFLOPS are those of the GEMMs.
SIDE = 4096
in_gemms, in_all, gemm_ms = 0.0, 0.0, 0.0
one = byref(ONES["S"])


def gemm():
    sizes = (SIDE,) * 3
    return cublas.cublasSgemm_v2(blas, 0, 0, *sizes, one, at, SIDE, at, SIDE, one, at, SIDE)


def mix():
    """One round: its pair of events around the GEMMs, launched while the GPU is busy with the others."""
    for _ in range(20):
        assert call("cublasSgemv_v2", "gemv", "S", 16384, 8192) == 0
    for _ in range(2):
        assert call("cublasStrsm_v2", "trsm", "S", SIDE, SIDE) == 0
    pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    pair[0].record()
    for _ in range(8):
        assert gemm() == 0
    pair[1].record()
    return pair


for _ in range(3):
    mix()
torch.cuda.synchronize()
began, rounds = time.monotonic(), 0
while time.monotonic() - began < MIX:
    pairs = [mix() for _ in range(5)]
    torch.cuda.synchronize()
    rounds += len(pairs)
    gemm_ms += sum(start.elapsed_time(end) for start, end in pairs)
took = time.monotonic() - began
rank = status()
own = {"gemm": 8 * 2 * SIDE**3, "trsm": 2 * SIDE**3, "gemv": 20 * 2 * 16384 * 8192}
of_gemms = rounds * own["gemm"] / gemm_ms / 1e9
of_all = rounds * sum(own.values()) / took / 1e12
seen = {name: rank.get(name) for name in ("gemm_tflops", "achieved_tflops", "mfu", "gpu_time")}
verdict(
    "TFLOPS of a rank with solves and products with vectors", near(rank["gemm_tflops"], of_gemms), own=of_gemms, **seen
)
verdict(
    "achieved TFLOPS of all of them", near(rank["achieved_tflops"], of_all), own=of_all, hook=rank["achieved_tflops"]
)

# The rate of each routine alone.
for name, routine, letter, kind, m, n in (
    ("cublasSsyrk_v2", "syrk", "S", "of_one", 8192, 4096),
    ("cublasDsyrk_v2", "syrk", "D", "of_one", 8192, 4096),
    ("cublasZherk_v2", "herk", "Z", "of_one", 4096, 2048),
    ("cublasSsymm_v2", "symm", "S", "with_c", 4096, 6144),
    ("cublasSsyr2k_v2", "syr2k", "S", "of_two", 4096, 4096),
    ("cublasSsyrkx", "syrkx", "S", "of_two", 4096, 4096),
    ("cublasDtrmm_v2", "trmm", "D", "trmm", 4096, 6144),
    ("cublasDtrsm_v2", "trsm", "D", "trsm", 4096, 6144),
    ("cublasStrsmBatched", "trsm", "S", "trsms", 1024, 2048),
    ("cublasSgemv_v2", "gemv", "S", "gemv", 16384, 16384),
    ("cublasDgemv_v2_64", "gemv", "D", "gemv", 12288, 12288),
    ("cublasHSHgemvStridedBatched", "gemv", "HSH", "gemvst", 16384, 16384),
):
    shape, batch = (
        sides(kind, routine, m, n),
        3 if kind[-1] in "st" and routine in ("gemv", "trsm") and kind != "gemv" else 1,
    )
    for _ in range(3):
        assert call(name, kind, letter, m, n) == 0, name
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    calls, began = 0, time.monotonic()
    milliseconds = 0.0
    while time.monotonic() - began < 2:
        torch.cuda._sleep(2_000_000)
        start.record()
        for _ in range(20):
            assert call(name, kind, letter, m, n) == 0, name
        end.record()
        torch.cuda.synchronize()
        calls, milliseconds = calls + 20, milliseconds + start.elapsed_time(end)
    own = batch * flops(routine, letter, *shape) * calls / milliseconds / 1e9
    datatype = {"S": "f32", "D": "f64", "C": "c64", "Z": "c128", "HSH": "f16"}[letter]
    hook = find(rested(), routine, shape, datatype, batch)
    # The list goes on from the mix, whose products have other sizes.
    verdict(name, near(hook["tflops"], own) and hook["count"] == calls + 3, own=own, calls=calls + 3, hook=hook)

# Every entry and its twin of 64 bits, each with sizes of its own.
before, made, expected = process.xpu_top_counter(b"gemms"), 0, []
both = [(name + wide, *rest) for name, *rest in entries() for wide in ("", "_64")]
for number, (name, routine, letter, kind) in enumerate(both):
    m, flip = 32 + 8 * number, number >> 1 & 1
    side = number & 1 if routine in ("symm", "hemm", "trmm", "trsm") else 0
    answers = [call(name, kind, letter, m, SMALL, side, flip) for _ in range(CALLS)]
    done = answers.count(0)
    made += done
    datatype = {"S": "f32", "D": "f64", "C": "c64", "Z": "c128", "H": "f16", "T": "bf16"}[letter[0]]
    expected.append(
        (name, done, routine, sides(kind, routine, m, SMALL, side, flip), datatype, 3 if "Batched" in name else 1)
    )
rank = rested()
for name, done, routine, shape, datatype, batch in expected:
    seen = find(rank, routine, shape, datatype, batch)["count"]
    if seen != done or done == 0:
        verdict(f"calls of {name}", seen == done > 0, made=done, hook=seen)
verdict("calls of all entries", process.xpu_top_counter(b"gemms") - before == made, made=made, entries=len(expected))


# What PyTorch calls.
def by_routine(rank):
    counts = {}
    for gemm in rank["gemms"]:
        counts[gemm["routine"]] = counts.get(gemm["routine"], 0) + gemm["count"]
    return counts


before = by_routine(rank)
matrix = torch.randn(512, 512, device="cuda") + 512 * torch.eye(512, device="cuda")
for _ in range(10):
    torch.mv(matrix, matrix[0])
    torch.linalg.solve_triangular(matrix, matrix, upper=True)
after = by_routine(rested())
more = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
verdict("torch.mv and torch.linalg.solve_triangular, ten each", more == {"gemv": 10, "trsm": 10}, hook=more)
before = after
for _ in range(10):
    torch.linalg.cholesky(matrix @ matrix.T)
    torch.linalg.inv(matrix)
    torch.linalg.qr(matrix)
after = by_routine(rested())
print(
    json.dumps(
        {
            "what": "cuSOLVER's calls in ten each of cholesky, inv, qr",
            "hook": {name: after[name] - before.get(name, 0) for name in after},
        }
    )
)
print(f"{len(wrong)} wrong: {', '.join(wrong)}" if wrong else "all right")
sys.exit(bool(wrong))
