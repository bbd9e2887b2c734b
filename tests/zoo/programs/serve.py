"""A server that trains nothing: requests of varying length wait in a queue and are answered in batches. It counts
batches, which are no steps."""

import queue
import random
import threading
import time

import own
import torch
from transformers import GPT2Config, GPT2LMHeadModel

LONGEST, MOST = own.size(256, 8), 16
config = GPT2Config(
    vocab_size=8192, n_positions=512, n_embd=own.size(768, 32), n_layer=own.size(6, 2), n_head=4, bos_token_id=0,
    eos_token_id=1, pad_token_id=1,
)  # fmt: skip
model = GPT2LMHeadModel(config).to(own.DEVICE).eval()
if own.GPU:
    model = model.half()
waiting, chance = queue.Queue(256), random.Random(own.RANK)


def ask():
    """Generates requests: mostly a few, at times many at once."""
    while True:
        for _ in range(chance.choice((1, 1, 2, 4, 24))):
            prompt = torch.randint(2, config.vocab_size, (chance.randint(4, LONGEST),))
            waiting.put((prompt, chance.randint(2, own.size(32, 4))))
        time.sleep(chance.expovariate(30))


def take():
    """Returns at least one request, and all others that wait."""
    requests = [waiting.get()]
    while len(requests) < MOST and not waiting.empty():
        requests.append(waiting.get())
    return requests


threading.Thread(target=ask, daemon=True).start()
served = 0
with torch.inference_mode():
    while True:
        requests = take()
        longest = max(len(prompt) for prompt, _ in requests)
        tokens = torch.full((len(requests), longest), config.pad_token_id)
        mask = torch.zeros_like(tokens)
        for row, (prompt, _) in enumerate(requests):
            tokens[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = prompt, 1
        answers = model.generate(
            tokens.to(own.DEVICE), attention_mask=mask.to(own.DEVICE), do_sample=True, top_k=50,
            max_new_tokens=max(most for _, most in requests),
        )  # fmt: skip
        answers[:, longest:].tolist()
        served += len(requests)
        own.step()
