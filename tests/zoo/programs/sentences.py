"""The parts of sentence-transformers with a contrastive loss. Sentences differ in length."""

import random

import own
import torch
from sentence_transformers import SentenceTransformer, losses
from sentence_transformers.models import BoW, Dense

words = [f"w{number}" for number in range(2000)]
bag = BoW(vocab=words)
model = SentenceTransformer(
    modules=[bag, Dense(2000, own.size(4096, 32)), Dense(own.size(4096, 32), own.size(1024, 16))],
    device=str(own.DEVICE),
)
loss_of = losses.MultipleNegativesRankingLoss(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
choice = random.Random(1)


def features():
    texts = [" ".join(choice.choices(words, k=choice.randint(5, 40))) for _ in range(own.size(256, 8))]
    tokens = model.tokenize(texts)
    return {key: value.to(own.DEVICE) if torch.is_tensor(value) else value for key, value in tokens.items()}


while True:
    loss_of([features(), features()], None).backward()
    optimizer.step()
    optimizer.zero_grad()
    own.step()
