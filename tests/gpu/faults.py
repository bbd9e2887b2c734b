"""A DDP job in which one rank gets a fault after a while, of a kind that real jobs have.

    xpu-top run -- torchrun --nproc_per_node 4 faults.py none|gemm|sleep|skip|shape|loader [SECONDS]

gemm: rank 2 runs more GEMMs in its backward pass. sleep: 30 ms in its loop. skip: omits the all-reduce of the loss,
once. shape: reduces the loss with another size. loader: its data set never returns. The file STARTED has the time of
the fault.
"""

import os
import sys
import time

import model as transformer
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

WIDTH, BLOCKS, TOKENS, BATCH = 2048, 8, 1024, 4
FAULTY = 2
# Steps before the fault, which take some ten seconds.
HEALTHY = 300

fault = sys.argv[1]
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 40
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
wrong = False


class Tokens(Dataset):
    """Random data. The faulty rank's data set searches for an item that does not exist."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        while wrong and fault == "loader":
            self.look_for_end_of_document(index)
        return torch.full((TOKENS,), float(index % 7))

    def look_for_end_of_document(self, index):
        return sum(i % 3 for i in range(1000)) + index


def more_gemms(module, _inputs, _outputs):
    if wrong and fault == "gemm":
        for _ in range(4):
            module.more @ module.more


model = transformer.build("ddp", WIDTH, BLOCKS)
for block in model.module:
    block.more = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    block.register_full_backward_hook(more_gemms)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
embedding = torch.randn(1, 1, WIDTH, device="cuda", dtype=torch.bfloat16)


def reduced(loss):
    """The mean loss of all ranks, as training scripts log it."""
    if wrong and fault == "skip":
        return loss
    value = loss.detach().repeat(1 << 20) if wrong and fault == "shape" else loss.detach().reshape(1)
    dist.all_reduce(value)
    return value


def train():
    global wrong
    end, step = None, 0
    for tokens in DataLoader(Tokens(), batch_size=BATCH):
        loss = model(tokens.cuda().to(torch.bfloat16)[..., None] * embedding).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        reduced(loss)
        step += 1
        if wrong and fault == "sleep":
            time.sleep(0.03)
        if step == HEALTHY:
            end = time.monotonic() + seconds
            wrong = rank == FAULTY
            if wrong:
                with open(os.environ["STARTED"], "w") as file:
                    file.write(str(time.time()))
        elif wrong and fault in ("skip", "shape"):
            wrong = False
        if step % 10 == 0:
            torch.cuda.synchronize()
        # By rank 0's clock, so that all ranks end with the same step.
        if end and step % 50 == 0:
            over = torch.tensor([float(time.monotonic() > end)], device="cuda")
            dist.broadcast(over, 0)
            if over.item():
                return


train()
dist.barrier()
dist.destroy_process_group()
