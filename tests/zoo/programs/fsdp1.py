"""FullyShardedDataParallel with mixed precision on a small GPT-2: clipping, a warm-up, and every 25 steps an
evaluation whose loss is summed over the ranks."""

import functools

import own
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

dist = own.join()
config = GPT2Config(
    vocab_size=own.size(8192, 128), n_positions=512, n_embd=own.size(768, 32), n_layer=own.size(4, 2), n_head=4,
    use_cache=False,
)  # fmt: skip
half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
model = FullyShardedDataParallel(
    GPT2LMHeadModel(config).to(own.DEVICE),
    auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={GPT2Block}),
    mixed_precision=half if own.GPU else None,
    device_id=own.DEVICE,
    use_orig_params=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 500))


def loss_of():
    tokens = torch.randint(config.vocab_size, (own.size(16, 2), own.size(512, 16)), device=own.DEVICE)
    return model(input_ids=tokens, labels=tokens).loss


step = 0
while True:
    loss_of().backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    step += 1
    own.step(step)
    if step % 25 == 0:
        model.eval()
        total = torch.zeros(2, device=own.DEVICE)
        with torch.no_grad():
            for _ in range(8):
                total += torch.stack([loss_of().float(), torch.ones((), device=own.DEVICE)])
        dist.all_reduce(total)
        if own.RANK == 0:
            print(step, "validation", (total[0] / total[1]).item(), flush=True)
        model.train()
