"""torch.multiprocessing: children by spawn and forkserver train on the GPU and share a CUDA tensor with the
parent."""

import torch
import torch.multiprocessing as mp


def train(rank, shared, done):
    weight = torch.eye(256, device="cuda").requires_grad_()
    for _ in range(20):
        (weight @ shared).square().mean().backward()
    done.put((rank, float(shared.sum()), round(float(weight.grad.sum()), 3)))
    done.close()
    done.join_thread()


def main():
    shared = torch.ones(256, 256, device="cuda")
    for method in ("spawn", "forkserver"):
        context = mp.get_context(method)
        done = context.Queue()
        children = [context.Process(target=train, args=(rank, shared, done)) for rank in range(2)]
        for child in children:
            child.start()
        said = sorted(done.get(timeout=120) for _ in children)
        for child in children:
            child.join()
        print(method, said, [child.exitcode for child in children], flush=True)


if __name__ == "__main__":
    main()
