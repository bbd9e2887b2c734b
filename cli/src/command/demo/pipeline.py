"""The training step of one stage of a pipeline: microbatches in the order of 1F1B, as in Megatron.

Activations go to the next stage and gradients to the previous one, by ncclSend and ncclRecv. Messages in both
directions between two stages are one group, because each would wait for the other.
"""

import random

MICROBATCHES = 16
HIDDEN = 4096
NCCL_BF16 = 9

# With --long-sequences, the lengths of the microbatches of a step, in some order. Their mean is 1.
LENGTHS = [0.5 + (number + 0.5) / MICROBATCHES for number in range(MICROBATCHES)]


class Place:
    """A rank's place among the stages and replicas. The replicas of a stage have successive ranks, as in Megatron."""

    def __init__(self, rank, world, stages):
        self.replicas = world // stages
        self.stage, self.replica = divmod(rank, self.replicas)
        self.stages = stages
        self.is_first, self.is_last = self.stage == 0, self.stage == stages - 1


class Lengths:
    """The tokens of each microbatch, which all stages of a replica know."""

    def __init__(self, seed, place, tokens, differ):
        self.random = random.Random(seed * 1_000_003 + place.replica)
        self.tokens, self.differ = tokens, differ

    def of_step(self):
        if not self.differ:
            return [self.tokens] * MICROBATCHES
        # Multiples of 64, as they are padded.
        lengths = [round(self.tokens * length / 64) * 64 for length in LENGTHS]
        self.random.shuffle(lengths)
        return lengths


class Neighbours:
    """Sends and receives between a stage and those beside it."""

    def __init__(self, cuda, communicator, place, buffer, stream):
        self.cuda, self.communicator, self.place = cuda, communicator, place
        self.buffer, self.stream = buffer, stream

    def exchange(self, *messages):
        """Each message: whether it is sent, the distance to the other stage, and its tokens."""
        messages = [one for one in messages if 0 <= self.place.stage + one[1] < self.place.stages]
        if len(messages) > 1:
            self.cuda.ncclGroupStart()
        for is_sent, distance, tokens in messages:
            call = self.cuda.ncclSend if is_sent else self.cuda.ncclRecv
            peer = self.place.stage + distance
            call(self.buffer, tokens * HIDDEN, NCCL_BF16, peer, self.communicator, self.stream)
        if len(messages) > 1:
            self.cuda.ncclGroupEnd()


def train_microbatches(model, neighbours, lengths, gradient_ready):
    """Forward and backward of all microbatches. `gradient_ready` is called in the last backward."""
    place = neighbours.place
    forwards, backwards = iter(lengths), iter(lengths)
    left = len(lengths)

    def forward():
        model.resize(next(forwards))
        model.forward()

    def backward():
        nonlocal left
        left -= 1
        model.resize(next(backwards))
        model.backward(gradient_ready if left == 0 else lambda _layer: None)

    early = min(len(lengths), place.stages - place.stage - 1)
    for number in range(early):
        neighbours.exchange((False, -1, lengths[number]))
        forward()
        neighbours.exchange((True, 1, lengths[number]))
    if early < len(lengths):
        neighbours.exchange((False, -1, lengths[early]))
    for number in range(early, len(lengths)):
        forward()
        done = number - early
        neighbours.exchange((True, 1, lengths[number]), (False, 1, lengths[done]))
        backward()
        messages = [(True, -1, lengths[done])]
        if number + 1 < len(lengths):
            messages.append((False, -1, lengths[number + 1]))
        neighbours.exchange(*messages)
    for number in range(len(lengths) - early, len(lengths)):
        neighbours.exchange((False, 1, lengths[number]))
        backward()
        neighbours.exchange((True, -1, lengths[number]))
