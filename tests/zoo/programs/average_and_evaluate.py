"""Mixed precision, an average of the weights, a schedule; every 40 steps an evaluation of 25 batches on the average,
every 100 a checkpoint."""

import io

import own
import torch
from blocks import Transformer

model = Transformer(blocks=4).to(own.DEVICE)
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=1_000_000)
step = 0
while True:
    text = model.batch()
    with torch.autocast(own.DEVICE.type, torch.bfloat16):
        loss = model(text).float().square().mean()
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    average.update_parameters(model)
    step += 1
    own.step(step)
    if step % 40 == 0:
        average.eval()
        with torch.inference_mode(), torch.autocast(own.DEVICE.type, torch.bfloat16):
            print(step, sum(average(text).float().square().mean() for _ in range(25)).item(), flush=True)
    if step % 100 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())
