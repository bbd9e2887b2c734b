"""torch.compile of a step with its optimizer: prints the loss, and dynamo's counts of graphs (one more for each
recompilation) and breaks."""

import torch
from torch._dynamo.utils import counters

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(3)


def trained(how):
    torch._dynamo.reset()
    counters.clear()
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))
    x = torch.ones(32, 256, device=DEVICE)

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def update():
        optimizer.step()

    if how == "whole step":
        step = torch.compile(step)
    else:
        update = torch.compile(update)

        def step():
            loss = model(x).square().mean()
            loss.backward()
            update()
            optimizer.zero_grad()
            return loss

    losses = [step().item() for _ in range(30)]
    stats = counters["stats"]
    print(
        f"{how}: graphs {stats['unique_graphs']}, breaks {sum(counters['graph_break'].values())}, "
        f"loss {losses[-1].hex()}",
        flush=True,
    )


for how in ("whole step", "optimizer alone"):
    trained(how)
