"""DataLoader workers by fork, forkserver and spawn while a GPU trains. Prints the sum of their batches."""

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, at):
        return torch.full((64,), float(at * at))


def main():
    layer = torch.nn.Linear(64, 64, bias=False, device="cuda")
    torch.nn.init.eye_(layer.weight)
    layer(torch.ones(1, 64, device="cuda")).sum().item()
    for context in ("fork", "forkserver", "spawn"):
        loader = DataLoader(Squares(), batch_size=8, num_workers=4, multiprocessing_context=context, pin_memory=True)
        total = 0.0
        for _ in range(2):
            for batch in loader:
                total += layer(batch.cuda(non_blocking=True)).sum().item()
        print(context, total, flush=True)


if __name__ == "__main__":
    main()
