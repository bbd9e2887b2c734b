"""Two ranks make the same AllReduces. Then rank 1 omits one and waits for ever.

    xpu-top run -- torchrun --nproc_per_node 2 left_out.py CALLS OUT

When rank 1 begins to wait, it writes to OUT how many AllReduces each rank has called.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

calls, out = int(sys.argv[1]), sys.argv[2]
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
x = torch.ones(1 << 20, device="cuda")
for _ in range(calls):
    dist.all_reduce(x)
    time.sleep(0.02)
torch.cuda.synchronize()
if dist.get_rank() == 1:
    with open(out, "w") as file:
        json.dump({"rank_0": calls + 1, "rank_1": calls}, file)
    time.sleep(10_000)
dist.all_reduce(x)
torch.cuda.synchronize()
