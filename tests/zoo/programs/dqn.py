"""Q-learning: acts in an environment on the CPU, and every fourth action updates from a replay buffer. A step is one
update."""

import copy
import random

import own
import torch
from torch import nn

STATE, ACTIONS, WIDTH, ROWS = 64, 8, own.size(2048, 32), own.size(1024, 16)
network = nn.Sequential(
    nn.Linear(STATE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, ACTIONS)
).to(own.DEVICE)
target = copy.deepcopy(network)
optimizer = torch.optim.RMSprop(network.parameters(), lr=1e-5)
buffer = [(torch.randn(STATE), 0, 0.0, torch.randn(STATE)) for _ in range(ROWS)]
state, acted, updates = torch.randn(STATE), 0, 0
while True:
    with torch.inference_mode():
        action = network(state.to(own.DEVICE)[None]).argmax(1).item() if random.random() > 0.1 else 0
    after = 0.9 * state + 0.1 * torch.randn(STATE) + action / ACTIONS
    buffer[acted % ROWS if len(buffer) > 20 * ROWS else 0] = (state, action, float(after.mean()), after)
    state, acted = after, acted + 1
    if acted % 4:
        continue
    states, actions, rewards, afters = zip(*random.sample(buffer, ROWS))
    with torch.no_grad():
        best = target(torch.stack(afters).to(own.DEVICE)).max(1).values
    wanted = torch.tensor(rewards, device=own.DEVICE) + 0.99 * best
    chosen = torch.tensor(actions, device=own.DEVICE)[:, None]
    value = network(torch.stack(states).to(own.DEVICE)).gather(1, chosen)[:, 0]
    optimizer.zero_grad()
    nn.functional.smooth_l1_loss(value, wanted).backward()
    optimizer.step()
    updates += 1
    if updates % 100 == 0:
        target.load_state_dict(network.state_dict())
    own.step()
