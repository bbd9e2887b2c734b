"""Runs optimizers in usual loops, on a CPU, with the hook's own source attached. Counts the calls of the hook's
function, and the steps.

Prints a JSON object with both for each name.
"""

import gc
import json
import os
import pathlib
import sys
import warnings

os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")

import torch

PYTHON = pathlib.Path(__file__).parents[2] / "hook/src/python"
SOURCES = [PYTHON / "guard.py", PYTHON / "optimizer/optimizer.py"]
calls = []
dropped = []
attached = {"stepped": lambda *call: calls.append(call), "ended": dropped.append}
for source in SOURCES:
    exec(compile(source.read_text(), source, "exec"), attached)
assert attached["attach"]() == "attached"


def model():
    return torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))


def loss(net, dtype=torch.float32):
    return net(torch.randn(4, 32, dtype=dtype)).float().square().mean()


def every_batch():
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(12):
        loss(net).backward()
        optimizer.step()
    return 12


def accumulates():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in range(12):
        loss(net).backward()
        if batch % 4 == 3:
            optimizer.step()
    return 3


def scaled(fused):
    """Every third batch overflows."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for batch in range(12):
        scaler.scale(loss(net) * (float("inf") if batch % 3 == 2 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update(1024.0)
        optimizer.zero_grad()
    return 8


def lbfgs():
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)

    def closure():
        optimizer.zero_grad()
        value = loss(net)
        value.backward()
        return value

    for _ in range(12):
        optimizer.step(closure)
    return 12


class Sharded(torch.optim.SGD):
    """An optimizer whose groups cannot be read, or are no list."""

    def __init__(self, parameters, groups):
        super().__init__(parameters, lr=0.1)
        self.groups = groups

    @property
    def param_groups(self):
        groups = getattr(self, "groups", None)
        if callable(groups):
            return groups()
        return groups or vars(self)["param_groups"]

    @param_groups.setter
    def param_groups(self, groups):
        vars(self)["param_groups"] = groups

    def step(self, closure=None):
        pass


def sharded(groups):
    optimizer = Sharded(model().parameters(), groups)
    for _ in range(12):
        optimizer.step()
    return 12


def raises():
    raise RuntimeError("its parameters are on other ranks")


def compiled():
    """The hook's function is written in C, so PyTorch's compiler would warn of it if it traced into the caller."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    noted, attached["stepped"] = attached["stepped"], gc.get_referents
    with warnings.catch_warnings(record=True) as said:
        for _ in range(12):
            loss(net).backward()
            step()
            calls.append(())
    attached["stepped"] = noted
    return 0 if any("get_referents" in str(warning.message) for warning in said) else 12


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    net = model()
    net, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters()))
    for _ in range(12):
        with accelerator.accumulate(net):
            accelerator.backward(loss(net))
            optimizer.step()
            optimizer.zero_grad()
    return 3


def deepspeed(stage):
    import deepspeed

    net = model()
    engine, *_ = deepspeed.initialize(
        model=net,
        model_parameters=net.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 4,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
            "bf16": {"enabled": True},
        },
    )
    for _ in range(12):
        engine.backward(loss(engine, torch.bfloat16))
        engine.step()
    return engine.global_steps


CASES = {
    "every batch": every_batch,
    "accumulates": accumulates,
    "GradScaler": lambda: scaled(False),
    "GradScaler, fused": lambda: scaled(True),
    "LBFGS": lbfgs,
    "groups of a flat tensor": lambda: sharded([{"params": torch.zeros(64)}]),
    "groups that raise": lambda: sharded(raises),
    "torch.compile": compiled,
    "accelerate": accelerate,
    "DeepSpeed": lambda: deepspeed(0),
    "DeepSpeed, ZeRO 1": lambda: deepspeed(1),
    "DeepSpeed, ZeRO 2": lambda: deepspeed(2),
}


def main():
    seen = {}
    for name, case in CASES.items():
        calls.clear()
        made = case()
        seen[name] = {"calls": len(calls), "steps": made}
    json.dump(seen, sys.stdout)


main()
