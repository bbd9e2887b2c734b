"""The Trainer of transformers on a small GPT-2, gradient accumulation 2."""

import own
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

config = GPT2Config(
    vocab_size=own.size(8192, 128), n_positions=256, n_embd=own.size(768, 32), n_layer=own.size(6, 2), n_head=4
)


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, at):
        tokens = torch.randint(config.vocab_size, (own.size(256, 16),))
        return {"input_ids": tokens, "labels": tokens}


class Count(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        own.step(state.global_step)


arguments = TrainingArguments(
    output_dir="/tmp/zoo-trainer",
    per_device_train_batch_size=own.size(16, 2),
    gradient_accumulation_steps=2,
    max_steps=10**7,
    logging_steps=20,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=own.SMALL,
    ddp_find_unused_parameters=False,
)
Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Text(), callbacks=[Count()]).train()
