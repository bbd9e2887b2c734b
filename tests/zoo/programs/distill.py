"""Distillation: a frozen BERT teaches one with half its layers, whose average is kept."""

import copy

import own
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM


def bert(layers):
    return BertForMaskedLM(
        BertConfig(
            vocab_size=own.size(8192, 128), hidden_size=own.size(768, 32), num_hidden_layers=layers,
            num_attention_heads=own.size(12, 2), intermediate_size=own.size(3072, 64),
        )
    ).to(own.DEVICE)  # fmt: skip


teacher = bert(own.size(12, 4)).eval().requires_grad_(False)
student = bert(own.size(6, 2))
average = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-5, weight_decay=0.01)
HEAT, KEPT, MASK = 2.0, 0.999, 3
step = 0
while True:
    labels = torch.randint(10, teacher.config.vocab_size, (own.size(32, 2), own.size(128, 8)), device=own.DEVICE)
    hidden = torch.rand(labels.shape, device=own.DEVICE) < 0.15
    tokens = labels.masked_fill(hidden, MASK)
    with torch.autocast(own.DEVICE.type, dtype=torch.bfloat16, enabled=own.GPU):
        with torch.no_grad():
            taught = teacher(tokens).logits
        said = student(tokens, labels=labels.masked_fill(~hidden, -100))
        soft = F.kl_div(
            (said.logits.float() / HEAT).log_softmax(-1), (taught.float() / HEAT).softmax(-1), reduction="batchmean"
        )
        loss = soft * HEAT**2 / labels.shape[1] + said.loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, fresh in zip(average.parameters(), student.parameters()):
            kept.mul_(KEPT).add_(fresh, alpha=1 - KEPT)
    step += 1
    own.step(step)
    if step % 50 == 0:
        print(step, loss.item(), flush=True)
