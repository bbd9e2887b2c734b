"""LoRA by peft on a small GPT-2."""

import own
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=1000, n_positions=256, n_embd=own.size(768, 32), n_layer=own.size(8, 2), n_head=4)
model = get_peft_model(GPT2LMHeadModel(config), LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True))
model = model.to(own.DEVICE)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
while True:
    tokens = torch.randint(1000, (own.size(16, 2), own.size(256, 16)), device=own.DEVICE)
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    own.step()
