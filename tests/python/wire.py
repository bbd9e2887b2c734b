"""A reader of xpu-top's frames, written from docs/wire-format.md alone."""

import struct

MAGIC, VERSION, HEADER = b"xput", 1, 12

OPERATION = (
    "AllReduce AllGather ReduceScatter Broadcast Reduce Send Recv Fused AlltoAll Gather Scatter "
    "PutSignal Signal WaitSignal SendRecv"
).split()
CALL = (
    "None Collective GroupEnd CommunicatorInit CommunicatorEnd StreamSynchronize DeviceSynchronize EventSynchronize "
    "Memory GraphLaunch Unknown"
).split()
STEP_SOURCE = ["Marked", "Optimizer", "Detected"]
TIMED_BY = ["Host", "Gpu"]
LIFE = ["Alive", "Silent", "Ended", "Died"]

RANK_INFO = {
    "job": "string",
    "rank": "int",
    "world_size": "int",
    "local_rank": ("option", "int"),
    "pid": "int",
    "started": "int",
    "program": "string",
    "version": "string",
    "ledger": ("option", "int"),
}
COMMUNICATOR_STATE = {
    "id": "int",
    "parent": ("option", "int"),
    "name": "string",
    "rank": "int",
    "size": "int",
    "entered": "int",
    "enqueued": "int",
    "completed": "int",
    "last_operation": ("option", ("enum", OPERATION)),
    "last_bytes": "int",
}
COLLECTIVE_SAMPLE = {
    "communicator": "byte",
    "sequence": "int",
    "operation": ("enum", OPERATION),
    "bus_bytes": "int",
    "duration": "int",
}
LAUNCHES = {
    "kernels": "int",
    "graphs": "int",
    "gemms": "int",
    "collectives": "int",
    "point_to_point": "int",
    "captured": "int",
}
XID = {"code": "int", "at": "int"}
DEVICE_READING = {
    "uuid": "uuid",
    "read": "int",
    "age": "int",
    "utilisation": ("option", "byte"),
    "sm_clock": ("option", "int"),
    "sm_clock_max": ("option", "int"),
    "memory_clock": ("option", "int"),
    "memory_clock_max": ("option", "int"),
    "throttle": ("option", "int"),
    "power": ("option", "int"),
    "power_limit": ("option", "int"),
    "temperature": ("option", "int"),
    "memory_used": ("option", "int"),
    "memory_total": ("option", "int"),
    "ecc_corrected": ("option", "int"),
    "ecc_uncorrected": ("option", "int"),
    "nvlink_errors": ("option", "int"),
    "xids": ("option", "int"),
    "last_xid": ("option", XID),
}
RANK_DIGEST = {
    "rank": "int",
    "world_size": "int",
    "pid": "int",
    "life": ("enum", LIFE),
    "heard": "int",
    "step": ("option", "int"),
    "step_at": "int",
    "step_median": ("option", "int"),
    "step_count": "int",
    "step_p50": ("option", "int"),
    "step_p99": ("option", "int"),
    "steps_timed_by": ("enum", TIMED_BY),
    "step_source": ("option", ("enum", STEP_SOURCE)),
    "optimizer": "string",
    "work": {"tokens": "int", "samples": "int", "loss": ("option", "f64")},
    "gemm_timed_flops": "f64",
    "gemm_timed_for": "int",
    "gemm_flops": "f64",
    "gemm_at_peak": ("option", "int"),
    "graphs_for": "int",
    "graphs_flops": "f64",
    "communicators": ("list", COMMUNICATOR_STATE),
    "inside": ("list", {"thread": "int", "call": ("enum", CALL), "waited": "int"}),
    "samples": ("list", COLLECTIVE_SAMPLE),
    "launches": LAUNCHES,
    "dropped_records": "int",
    "untimed": "int",
    "overhead_ppm": "int",
    "budget_ppm": ("option", "int"),
    "gemm_rate": "byte",
    "collective_rate": "byte",
    "memory_held": "int",
    "memory_nccl": ("option", "int"),
    "memory_growth": (
        "option",
        {"per_step": "f64", "least": "f64", "most": "f64", "steps": "int", "over": "int"},
    ),
    "blocked_for": "int",
    "blocked_calls": "int",
    "exposed_for": ("option", "int"),
    "device": ("option", DEVICE_READING),
    "enabled": "byte",
    "blind": ("list", "string"),
}
PROGRESS = {
    "heard": "int",
    "step": ("option", "int"),
    "step_at": "int",
    "work": {"tokens": "int", "samples": "int", "loss": ("option", "f64")},
    "gemm_at_peak": ("option", "int"),
    "blocked_for": "int",
    "blocked_calls": "int",
    "exposed_for": ("option", "int"),
}
ADVANCE = {"moved": "int", "worked": "int", "paces": ("list", "int")}
RANK_SNAPSHOT = {"info": RANK_INFO, "earlier": ("list", PROGRESS), "advance": ADVANCE, "digest": RANK_DIGEST}
JOB_SNAPSHOT = {
    "job": "string",
    "ranks": ("list", RANK_SNAPSHOT),
    "turned_away": "int",
}
BODIES = {
    33: {"version": "string", "started": "int", "base_port": "int", "jobs": ("list", JOB_SNAPSHOT)},
    34: {"reason": "string"},
    64: {"job": "string", "ranks": ("list", RANK_DIGEST), "turned_away": "int"},
}
ENVELOPE = {"host": "string", "number": "int", "now": "int", "lost": "int"}

SNAPSHOT_REQUEST = 0


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        piece = self.data[self.at : self.at + count]
        if len(piece) != count:
            raise ValueError("the frame ends too soon")
        self.at += count
        return piece

    def integer(self):
        first = self.take(1)[0]
        if first < 251:
            return first
        return int.from_bytes(self.take({251: 2, 252: 4, 253: 8}[first]), "little")

    def value(self, kind):
        if isinstance(kind, dict):
            return {name: self.value(field) for name, field in kind.items()}
        if kind == "int":
            return self.integer()
        if kind == "byte":
            return self.take(1)[0]
        if kind == "uuid":
            return self.take(16).hex()
        if kind == "f64":
            return struct.unpack("<d", self.take(8))[0]
        if kind == "string":
            return self.take(self.integer()).decode()
        shape, inner = kind
        if shape == "option":
            return self.value(inner) if self.take(1)[0] else None
        if shape == "list":
            return [self.value(inner) for _ in range(self.integer())]
        return inner[self.integer()]


def decode(frame):
    """The envelope and the body of a frame. The body is None for a kind that this reader does not know."""
    magic, version, kind, length = struct.unpack("<4sHHI", frame[:HEADER])
    if magic != MAGIC or version != VERSION or length != len(frame) - HEADER:
        raise ValueError("not a frame of this version")
    reader = Reader(frame[HEADER:])
    envelope = reader.value(ENVELOPE)
    if kind not in BODIES:
        return envelope, kind, None
    body = reader.value(BODIES[kind])
    if reader.at != length:
        raise ValueError(f"{length - reader.at} bytes left over")
    return envelope, kind, body


def request_snapshot():
    """A Request::Snapshot from a host without a name."""
    payload = bytes([0, 0, 0, 0, SNAPSHOT_REQUEST])
    return struct.pack("<4sHHI", MAGIC, VERSION, 32, len(payload)) + payload
