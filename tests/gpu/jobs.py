"""The jobs for measurements of overhead and counts. Each function makes a function that runs one training step.

They need two or more ranks in one process group. Sizes are (width, blocks, tokens, batch).
"""

import model as transformer
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


def data_parallel(width, blocks, tokens, batch):
    return transformer.trainer(transformer.build("ddp", width, blocks), width, tokens, batch)


def fully_sharded(width, blocks, tokens, batch):
    return transformer.trainer(transformer.build("fsdp", width, blocks), width, tokens, batch)


class GatherTokens(torch.autograd.Function):
    """Forward: gathers all ranks' parts of the sequence. Backward: sums the gradients of the rank's own part."""

    @staticmethod
    def forward(_context, part):
        whole = part.new_empty(part.shape[0] * dist.get_world_size(), *part.shape[1:])
        dist.all_gather_into_tensor(whole, part.contiguous())
        return whole

    @staticmethod
    def backward(_context, gradient):
        part = gradient.new_empty(gradient.shape[0] // dist.get_world_size(), *gradient.shape[1:])
        dist.reduce_scatter_tensor(part, gradient.contiguous())
        return part


class ScatterTokens(torch.autograd.Function):
    """The reverse of GatherTokens."""

    @staticmethod
    def forward(context, whole):
        return GatherTokens.backward(context, whole)

    @staticmethod
    def backward(context, gradient):
        return GatherTokens.forward(context, gradient)


class SplitBlock(nn.Module):
    """A transformer block. Its heads and its feed-forward are split over the ranks, its norms over the sequence."""

    def __init__(self, width):
        super().__init__()
        part = width // dist.get_world_size()
        self.heads = 16 // dist.get_world_size()
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * part)
        self.out = nn.Linear(part, width, bias=False)
        self.norm_feedforward = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * part)
        self.down = nn.Linear(4 * part, width, bias=False)

    def forward(self, x):
        tokens, batch, part = None, None, self.out.in_features
        whole = GatherTokens.apply(self.norm_attention(x))
        tokens, batch, _ = whole.shape
        qkv = self.qkv(whole).view(tokens, batch, 3, self.heads, part // self.heads)
        query, key, value = qkv.permute(2, 1, 3, 0, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended = attended.permute(2, 0, 1, 3).reshape(tokens, batch, part)
        x = x + ScatterTokens.apply(self.out(attended))
        whole = GatherTokens.apply(self.norm_feedforward(x))
        return x + ScatterTokens.apply(self.down(functional.gelu(self.up(whole))))


def tensor_parallel(width, blocks, tokens, batch):
    """Tensor parallelism with sequence parallelism: 4 all-gathers and 4 reduce-scatters per block."""
    model = nn.Sequential(*[SplitBlock(width) for _ in range(blocks)]).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(tokens // dist.get_world_size(), batch, width, device="cuda", dtype=torch.bfloat16)
    norms = [p for name, p in model.named_parameters() if "norm" in name]

    def step():
        model(x).float().pow(2).mean().backward()
        for parameter in norms:
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()

    return step


def pipeline(width, blocks, tokens, batch, microbatches=4):
    """One stage per rank; activations and gradients are sent and received."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = nn.Sequential(*[transformer.Block(width) for _ in range(blocks)]).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    shape = (batch, tokens, width)
    data = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def step():
        kept = []
        for _ in range(microbatches):
            x = data
            if rank > 0:
                x = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
                dist.recv(x, rank - 1)
                x.requires_grad_()
            y = model(x)
            if rank < last:
                dist.send(y.detach(), rank + 1)
            kept.append((x, y))
        for x, y in kept:
            if rank == last:
                y.float().pow(2).mean().backward()
            else:
                gradient = torch.empty_like(y)
                dist.recv(gradient, rank + 1)
                y.backward(gradient)
            if rank > 0:
                dist.send(x.grad, rank - 1)
        optimizer.step()
        optimizer.zero_grad()

    return step


class Exchange(torch.autograd.Function):
    """An all-to-all with the given rows for each rank. The backward pass sends them back."""

    @staticmethod
    def forward(context, rows, to_each, from_each):
        context.splits = (from_each, to_each)
        received = rows.new_empty(sum(from_each), rows.shape[1])
        dist.all_to_all_single(received, rows.contiguous(), from_each, to_each)
        return received

    @staticmethod
    def backward(context, gradient):
        return Exchange.apply(gradient, *context.splits), None, None


def mixture_of_experts(width, blocks, tokens, batch):
    """One expert per rank. Rank 0's expert gets more rows, so that the parts differ: four all-to-alls per block."""
    world, rank, rows = dist.get_world_size(), dist.get_rank(), tokens * batch
    favour = rows // (world + 1)
    to_each = [2 * favour if peer == 0 else favour for peer in range(world)]
    to_each[-1] += rows - sum(to_each)
    from_each = [to_each[rank]] * world
    experts = [
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(blocks)
    ]
    model = nn.ModuleList(experts).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def step():
        x = data
        for expert in model:
            x = x + Exchange.apply(expert(Exchange.apply(x, to_each, from_each)), from_each, to_each)
        x.float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def graphed(width, blocks, tokens, batch):
    """torch.compile with CUDA graphs. One all-reduce sums the gradients over ranks."""
    model = nn.Sequential(*[transformer.Block(width) for _ in range(blocks)]).cuda().to(torch.bfloat16)
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(batch, tokens, width, device="cuda", dtype=torch.bfloat16)

    def step():
        compiled(x).float().pow(2).mean().backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        optimizer.step()
        optimizer.zero_grad()

    return step


def eight_bit(width, blocks, tokens, batch):
    """GEMMs of e4m3 by cublasLt (torch._scaled_mm), forward only, and one all-reduce."""
    rows = tokens * batch
    one = torch.ones((), device="cuda")
    weights = [torch.randn(width, width, device="cuda").to(torch.float8_e4m3fn) for _ in range(blocks)]
    data = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    total = torch.zeros(width * width, device="cuda", dtype=torch.bfloat16)

    def step():
        x = data
        for weight in weights:
            x8 = x.clamp(-448, 448).to(torch.float8_e4m3fn)
            x = torch._scaled_mm(x8, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16) * (width**-0.5)
        dist.all_reduce(total)

    return step


JOBS = {
    "ddp": data_parallel,
    "fsdp": fully_sharded,
    "tp": tensor_parallel,
    "pipeline": pipeline,
    "moe": mixture_of_experts,
    "graphed": graphed,
    "fp8": eight_bit,
}
