"""Compares copies, fills and kernels by name in CUDA graphs that are built node by node with the program's own counts.

    XPU_TOP_KERNELS=elementwise xpu-top run --job nodes -- python3 graph_nodes.py XPU_TOP

Prints a line per figure, and ends with 1 if one is wrong.
"""

import ctypes
import json
import subprocess
import sys
import time
from ctypes import CDLL, byref, c_int, c_size_t, c_uint, c_void_p

import torch

XPU_TOP, LAUNCHES = sys.argv[1], 50
wrong = []
torch.cuda.set_device(0)
data = torch.ones(1 << 20, dtype=torch.uint8, device="cuda")
pinned = torch.ones(1 << 20, dtype=torch.uint8).pin_memory()
torch.cuda.synchronize()
soname = next(line.split()[-1] for line in open("/proc/self/maps") if "/libcudart.so" in line)
cudart, cuda = CDLL(soname), CDLL("libcuda.so.1")
stream = c_void_p(torch.cuda.current_stream().cuda_stream)


def ok(code):
    assert code == 0, code


def figures():
    torch.cuda.synchronize()
    time.sleep(2.5)
    command = [XPU_TOP, "status", "--now", "--json", "--rank", "0", "--job", "nodes", "--wait", "4"]
    activity = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["ranks"][0]["activity"]
    copies = {copies["direction"]: (copies["count"], copies["bytes"]) for copies in activity["memory"]["copies"]}
    named = sum(kernel["launches"] for kernel in activity.get("kernels", []))
    return copies, named, activity["memory"]


def verdict(what, own, seen):
    print(json.dumps({"what": what, "right": own == seen, "own": own, "hook": seen}), flush=True)
    if own != seen:
        wrong.append(what)


def more(after, before):
    zero = (0, 0)
    each = {name: tuple(x - y for x, y in zip(after[name], before.get(name, zero))) for name in after}
    return {name: list(change) for name, change in each.items() if change != zero}


class Fill(ctypes.Structure):
    _fields_ = [
        ("to", c_void_p), ("pitch", c_size_t), ("value", c_uint), ("element", c_uint), ("width", c_size_t),
        ("height", c_size_t),
    ]  # fmt: skip


# A kernel of PyTorch, as a node of a captured graph, gives the function and the arguments of another node.
torch.add(data, 1, out=data)
captured = c_void_p()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    torch.add(data, 1, out=data)
    side.synchronize()
    ok(cudart.cudaStreamBeginCapture(c_void_p(side.cuda_stream), 2))
    torch.add(data, 1, out=data)
    ok(cudart.cudaStreamEndCapture(c_void_p(side.cuda_stream), byref(captured)))
nodes, count = (c_void_p * 4)(), c_size_t(4)
ok(cuda.cuGraphGetNodes(captured, nodes, byref(count)))
parameters = (ctypes.c_uint64 * 16)()
ok(cuda.cuGraphKernelNodeGetParams_v2(c_void_p(nodes[0]), parameters))
graph = c_void_p()
ok(cuda.cuGraphCreate(byref(graph), 0))
for _ in range(3):
    ok(cuda.cuGraphAddKernelNode_v2(byref(c_void_p()), graph, None, c_size_t(0), parameters))
host, device = c_void_p(pinned.data_ptr()), c_void_p(data.data_ptr())
for to, source, bytes, kind in (
    (device, host, 100, 1),
    (host, device, 200, 2),
    (device, device, 300, 3),
    (device, host, 50, 1),
):
    ok(
        cudart.cudaGraphAddMemcpyNode1D(
            byref(c_void_p()), graph, None, c_size_t(0), to, source, c_size_t(bytes), c_int(kind)
        )
    )
fill = Fill(device, 0, 7, 4, 10, 1)
ok(cudart.cudaGraphAddMemsetNode(byref(c_void_p()), graph, None, c_size_t(0), byref(fill)))
executable = c_void_p()
ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, ctypes.c_uint64(0)))
copies, named, memory = figures()
for _ in range(LAUNCHES):
    ok(cuda.cuGraphLaunch(executable, stream))
copies_after, named_after, memory_after = figures()
print(json.dumps({"what": "memory, as it is reported", "hook": memory_after}))
own = sorted([[2 * LAUNCHES, 150 * LAUNCHES], [LAUNCHES, 200 * LAUNCHES], [LAUNCHES, 300 * LAUNCHES]])
verdict("copies of the graph", own, sorted(more(copies_after, copies).values()))
verdict("kernels by name", 3 * LAUNCHES, named_after - named)
print(f"{len(wrong)} wrong: {', '.join(wrong)}" if wrong else "all right")
sys.exit(bool(wrong))
