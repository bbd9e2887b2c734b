"""transformers under accelerate: accumulation 4, clipping, a schedule, and regular evaluations."""

import own
import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

accelerator = Accelerator(gradient_accumulation_steps=4, cpu=own.SMALL)
config = BertConfig(
    vocab_size=1000, hidden_size=own.size(768, 32), num_hidden_layers=own.size(6, 2), num_attention_heads=4,
    intermediate_size=own.size(3072, 64), num_labels=2,
)  # fmt: skip
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
rows = torch.randint(1000, (own.size(4096, 128), own.size(128, 8)))
loader = torch.utils.data.DataLoader(rows, batch_size=own.size(32, 2), shuffle=True)
schedule = get_linear_schedule_with_warmup(optimizer, 100, 10**7)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
step = 0
while True:
    for tokens in loader:
        with accelerator.accumulate(model):
            loss = model(tokens, labels=tokens[:, 0] % 2).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            own.step(step)
            if step % 25 == 0:
                model.eval()
                with torch.no_grad():
                    accelerator.gather(model(tokens).logits.argmax(-1))
                model.train()
