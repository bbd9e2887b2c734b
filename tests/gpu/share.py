"""Runs a script under torchrun with more ranks than GPUs: each rank seems to be alone on a host with one GPU.

    torchrun --nproc_per_node 2 share.py SCRIPT [ARGUMENT...]

NCCL refuses two ranks on one GPU of a host. With NCCL_HOSTID the ranks count as ranks of different hosts, and NCCL
uses sockets. With a GPU for each rank nothing changes.
"""

import os
import pathlib
import runpy
import sys

import torch

gpus = torch.cuda.device_count()
if 0 < gpus < int(os.environ["LOCAL_WORLD_SIZE"]):
    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    os.environ.update(
        CUDA_VISIBLE_DEVICES=str(int(os.environ["LOCAL_RANK"]) % gpus),
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        GROUP_RANK=rank,
        GROUP_WORLD_SIZE=world,
        NCCL_HOSTID=f"rank-{rank}",
        NCCL_SOCKET_IFNAME="lo",
    )
del sys.argv[0]
sys.path[0] = str(pathlib.Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
