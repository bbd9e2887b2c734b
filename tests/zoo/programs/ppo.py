"""PPO on a small language model: it samples answers one token at a time with a KV cache, then learns from them in
four epochs of three minibatches. Each optimizer step is a step."""

import copy

import own
import torch
from torch import nn
from transformers import GPT2Config, GPT2Model

PROMPT, ANSWER = own.size(32, 4), own.size(64, 6)
ROLLOUTS, MINIBATCHES, EPOCHS, CLIP, PENALTY = own.size(96, 6), 3, 4, 0.2, 0.05
config = GPT2Config(
    vocab_size=own.size(4096, 64), n_positions=128, n_embd=own.size(768, 32), n_layer=own.size(6, 2), n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)  # fmt: skip


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = GPT2Model(config)
        self.actor = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.critic = nn.Linear(config.n_embd, 1)

    def forward(self, tokens, cache=None, use_cache=False):
        out = self.body(input_ids=tokens, past_key_values=cache, use_cache=use_cache)
        hidden = out.last_hidden_state
        return self.actor(hidden), self.critic(hidden).squeeze(-1), out.past_key_values


def of_answers(logits, tokens):
    """The log probability of each token of the answers."""
    logits = logits[:, PROMPT - 1 : -1].float().log_softmax(-1)
    return logits.gather(-1, tokens[:, PROMPT:, None]).squeeze(-1), logits


@torch.no_grad()
def roll_out():
    tokens = torch.randint(config.vocab_size, (ROLLOUTS, PROMPT), device=own.DEVICE)
    fresh, cache = tokens, None
    for _ in range(ANSWER):
        logits, _, cache = policy(fresh, cache, use_cache=True)
        fresh = torch.multinomial(logits[:, -1].float().softmax(-1), 1)
        tokens = torch.cat([tokens, fresh], 1)
    logits, values, _ = policy(tokens)
    before, values = of_answers(logits, tokens)[0], values[:, PROMPT - 1 : -1]
    # Even tokens are rewarded, and distance from the reference is penalised.
    rewards = -PENALTY * (before - of_answers(reference(tokens)[0], tokens)[0])
    rewards[:, -1] += (tokens[:, PROMPT:] % 2 == 0).float().mean(1)
    advantages, carried = torch.zeros_like(rewards), 0.0
    for at in reversed(range(ANSWER)):
        following = values[:, at + 1] if at + 1 < ANSWER else 0.0
        carried = rewards[:, at] + following - values[:, at] + 0.95 * carried
        advantages[:, at] = carried
    returns = advantages + values
    return tokens, before, (advantages - advantages.mean()) / (advantages.std() + 1e-8), returns, rewards.sum(1).mean()


policy = Policy().to(own.DEVICE)
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)
while True:
    tokens, before, advantages, returns, reward = roll_out()
    print("mean reward", reward.item(), flush=True)
    for _ in range(EPOCHS):
        for rows in torch.randperm(ROLLOUTS, device=own.DEVICE).chunk(MINIBATCHES):
            logits, values, _ = policy(tokens[rows])
            after, distribution = of_answers(logits, tokens[rows])
            ratio = (after - before[rows]).exp()
            gain = torch.min(ratio * advantages[rows], ratio.clamp(1 - CLIP, 1 + CLIP) * advantages[rows]).mean()
            entropy = -(distribution.exp() * distribution).sum(-1).mean()
            off = (values[:, PROMPT - 1 : -1] - returns[rows]).square().mean()
            optimizer.zero_grad()
            (-gain + 0.5 * off - 0.01 * entropy).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
            own.step()
