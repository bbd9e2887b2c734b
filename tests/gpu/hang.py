"""A job that hangs: rank 1 stops after some steps, in one of the ways in which jobs hang.

    torchrun --nproc_per_node 2 hang.py stop|kill|gpu [STEPS]

stop: rank 1 stops itself (SIGSTOP) before a collective. kill: rank 1 is killed while rank 0 waits for it in a
collective. gpu: rank 1's stream runs an endless kernel in front of the collective. Before it stops, rank 1 writes to
the file EXPECTED how many collectives each rank has called.
"""

import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

how = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 50
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
x = torch.ones(1 << 22, device="cuda")
calls = 0


def collective():
    global calls
    calls += 1
    dist.all_reduce(x)


for _ in range(steps):
    collective()
torch.cuda.synchronize()
if rank == 1:
    expected = {"rank_0": calls + 1, "rank_1": calls + (how == "gpu")}
    with open(os.environ["EXPECTED"], "w") as file:
        json.dump(expected, file)
    if how == "stop":
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "kill":
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        torch.cuda._sleep(1 << 62)
collective()
torch.cuda.synchronize()
