"""Datagrams that no Kineto sends, to the daemon in a folder: `hostile.py FOLDER LEAST PID...`.

It sends at least LEAST datagrams, and continues until its input ends. Some are sent in the name of the job's
processes PID. A datagram counts once the daemon's socket has accepted it. At the end it prints how many of each kind
were accepted.
"""

import array
import collections
import itertools
import json
import os
import random
import select
import socket
import struct
import sys
import threading

folder, least, victims = sys.argv[1], int(sys.argv[2]), [int(pid) for pid in sys.argv[3:]]
daemon = os.path.join(folder, "dynolog")
numbers = itertools.count()
dice = random.Random(7)


def bound():
    """A socket with a name that a client may have."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(os.path.join(folder, f"dynoconfigclient-{os.getpid()}-{next(numbers)}"))
    return found


def drop(found):
    name = found.getsockname()
    found.close()
    if name:
        os.unlink(name)


def message(kind, payload, stated=None):
    stated = len(payload) if stated is None else stated
    return struct.pack("=Q32s", stated & (2**64 - 1), kind) + payload


def request(pids, count=None, accepts=2, job=0):
    count = len(pids) if count is None else count
    return struct.pack("=iiq", accepts, count, job) + struct.pack(f"={len(pids)}i", *pids)


def good():
    return message(b"req", request([os.getpid(), os.getppid()]))


def any_pids():
    return [dice.choice([*victims, 0, 1, -1, dice.randrange(-(2**31), 2**31)]) for _ in range(dice.randrange(1, 12))]


lasting, deaf, unbound = bound(), bound(), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
stranger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
stranger.bind(os.path.join(folder, f"stranger-{os.getpid()}"))
abstract = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
abstract.bind(f"\0dynoconfigclient-{os.getpid()}")


def send(data, by=lasting, more=()):
    by.sendmsg([data], more, 0, daemon)


def leaves():
    """The sender is gone when the answer comes."""
    one = bound()
    send(message(b"req", request(any_pids())), one)
    drop(one)


def passes_descriptors():
    held = array.array("i", [0, 1, 2] * dice.randrange(1, 80))
    send(good(), more=[(socket.SOL_SOCKET, socket.SCM_RIGHTS, held)])


def forges_credentials():
    """Credentials of another process, which only root may send."""
    theirs = struct.pack("=iii", os.getppid(), 65534, 65534)
    send(message(b"req", request(any_pids())), more=[(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, theirs)])


# Processes that register once each.
FORKS = 64

LIES = [0, 1, 2, 39, 2**31, 2**50, 2**63, 2**64 - 1]
COUNTS = [0, -1, 1, 3, 65, 2**31 - 1, -(2**31)]
TYPES = [b"", b"r", b"reqs", b"data", b"npuTraceStatus", b"r" * 32, b"\xff" * 32, b"req" * 10]

KINDS = {
    "random": lambda: send(dice.randbytes(dice.randrange(500))),
    "random_payload": lambda: send(message(dice.choice([b"req", b"ctxt"]), dice.randbytes(dice.randrange(300)))),
    "truncated": lambda: send(good()[: dice.randrange(len(good()))]),
    "lying_size": lambda: send(message(b"req", request([os.getpid()]), stated=dice.choice(LIES))),
    "lying_count": lambda: send(message(b"req", request([os.getpid(), 1], count=dice.choice(COUNTS)))),
    "wrong_type": lambda: send(message(dice.choice(TYPES), request([os.getpid()]))),
    "too_long": lambda: send(bytes(dice.choice([313, 4096, 1 << 16]))),
    "forged_pids": lambda: send(message(b"req", request(any_pids(), job=dice.randrange(-(2**63), 2**63)))),
    "context": lambda: send(message(b"ctxt", dice.randbytes(16))),
    "leaves": leaves,
    "never_reads": lambda: send(good(), deaf),
    "unbound": lambda: send(good(), unbound),
    "stranger": lambda: send(good(), stranger),
    "abstract": lambda: send(good(), abstract),
    "descriptors": passes_descriptors,
}
if os.geteuid() == 0:
    KINDS["credentials"] = forges_credentials


def hears():
    """The answers to senders that still exist: nothing to do, or a number of clients."""
    for one in (lasting, stranger, unbound, abstract):
        while select.select([one], [], [], 0)[0]:
            answer = one.recv(1 << 16)
            size, kind = struct.unpack_from("=Q32s", answer)
            assert size == len(answer) - 40 and (kind.rstrip(b"\0"), size) in [(b"req", 0), (b"ctxt", 4)], answer
            assert one is lasting, "an answer to one that would not expect it from there"
            answers.append(size)


def main():
    taken = collections.Counter()
    for _ in range(FORKS):
        if not (child := os.fork()):
            send(good(), bound())
            os._exit(0)
        os.waitpid(child, 0)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    print("begun", file=sys.stderr, flush=True)
    while not stop.is_set() or taken.total() < least:
        kind = dice.choice(list(KINDS))
        KINDS[kind]()
        taken[kind] += 1
        hears()
    print(json.dumps({"taken": taken, "answers": len(answers)}))


answers = []
main()
