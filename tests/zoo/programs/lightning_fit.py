"""Lightning's Trainer, with DDP if there are several ranks."""

import os

import lightning
import own
import torch
from torch import nn

WIDTH = own.size(2048, 32)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(6)])

    def training_step(self, batch, _):
        return self.layers(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)

    def on_train_batch_end(self, *_):
        own.step(self.global_step)


world, here = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
rows = torch.utils.data.TensorDataset(torch.randn(own.size(8192, 256), WIDTH))
loader = torch.utils.data.DataLoader(rows, batch_size=own.size(512, 8), num_workers=0)
trainer = lightning.Trainer(
    max_epochs=-1, accelerator="gpu" if own.GPU else "cpu", devices=here, num_nodes=world // here, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, strategy="ddp" if world > 1 else "auto",
)  # fmt: skip
trainer.fit(Model(), loader)
