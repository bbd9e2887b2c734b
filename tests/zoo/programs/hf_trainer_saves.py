"""The Trainer of transformers with gradient accumulation 4, two workers that load, an evaluation every 40 steps and a
checkpoint every 60."""

import pathlib

import own
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

config = GPT2Config(
    vocab_size=own.size(8192, 128), n_positions=256, n_embd=own.size(384, 32), n_layer=own.size(6, 2), n_head=4
)


class Text(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, at):
        tokens = torch.randint(config.vocab_size, (own.size(256, 16),))
        return {"input_ids": tokens, "labels": tokens}


class Count(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        own.step(state.global_step)


arguments = TrainingArguments(
    output_dir=str(pathlib.Path.home() / ".cache" / "zoo-trainer"),
    per_device_train_batch_size=own.size(8, 2),
    per_device_eval_batch_size=own.size(16, 2),
    gradient_accumulation_steps=4,
    learning_rate=3e-4,
    lr_scheduler_type="cosine",
    warmup_steps=100,
    max_steps=10**6,
    bf16=own.GPU,
    eval_strategy="steps",
    eval_steps=40,
    prediction_loss_only=True,
    save_strategy="steps",
    save_steps=60,
    save_total_limit=2,
    logging_steps=10,
    dataloader_num_workers=2,
    report_to=[],
    disable_tqdm=True,
    use_cpu=own.SMALL,
    ddp_find_unused_parameters=False,
)
trainer = Trainer(
    GPT2LMHeadModel(config),
    arguments,
    train_dataset=Text(1_000_000),
    eval_dataset=Text(own.size(256, 8)),
    callbacks=[Count()],
)
trainer.train()
