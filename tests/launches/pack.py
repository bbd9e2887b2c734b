"""Makes the files of this folder from what a hook with record.patch wrote next to the zoo's logs.

    python3 tests/launches/pack.py OUT

OUT is the zoo's output: each program's folder has own.RANK and own.launches.RANK.
"""

import gzip
import pathlib
import sys

import numpy

HERE = pathlib.Path(__file__).parent
LAUNCH = numpy.dtype(
    [(name, "<u4") for name in ("name", "form", "kind", "weight", "m", "n", "k", "thread")] + [("at", "<u8")]
)
UNIT, MOST = 50_000, 150_000


def packed(recorded, own):
    raw = recorded.read_bytes()
    monotonic, wall = (int(word) for word in numpy.frombuffer(raw[:16], "<u8"))
    launches = numpy.frombuffer(raw[16 : len(raw) - (len(raw) - 16) % LAUNCH.itemsize], LAUNCH)
    launches = numpy.sort(launches, order="at", kind="stable")[:MOST]
    begin, end = int(launches["at"][0]), int(launches["at"][-1])
    at = (launches["at"].astype("<i8") - begin) // UNIT
    columns = ["name", "form", "kind", "weight", "m", "n", "k"]
    threads = numpy.unique(launches["thread"], return_inverse=True)[1].astype("<u4") + 1
    different, which = numpy.unique(
        numpy.stack([*(launches[column] for column in columns), threads], axis=1), axis=0, return_inverse=True
    )
    steps = [line.split() for line in own.read_text().splitlines()]
    steps = [(int(float(when) * 1e9) - wall + monotonic, int(number)) for when, number in steps]
    steps = [((when - begin) // UNIT, number) for when, number in steps if when <= end]
    return b"".join(
        [
            numpy.uint32(len(different)).tobytes(),
            *(different[:, column].astype("<u4").tobytes() for column in range(different.shape[1])),
            numpy.uint32(len(launches)).tobytes(),
            which.astype("<u2").tobytes(),
            numpy.diff(at, prepend=0).astype("<u4").tobytes(),
            numpy.uint32(len(steps)).tobytes(),
            numpy.array([when for when, _ in steps], "<i4").tobytes(),
            numpy.array([number for _, number in steps], "<u4").tobytes(),
        ]
    )


for recorded in sorted(pathlib.Path(sys.argv[1]).glob("*/own.launches.*")):
    name, rank = recorded.parent.name.replace(".", "_"), recorded.suffix[1:]
    is_stage = name.startswith("pipeline")
    if rank != "0" and not is_stage:
        continue
    path = HERE / f"{name}{f'-stage-{rank}' if is_stage else ''}.gz"
    path.write_bytes(gzip.compress(packed(recorded, recorded.with_name(f"own.{rank}")), 9, mtime=0))
