"""A daemon that harms whoever it can: `hostile_daemon.py TARGET NAME...`.

It takes these names (`@NAME` is abstract, others are paths), answers whoever asks there with garbage, and floods the
socket TARGET, if that exists and is not its own. It prints how many datagrams it has sent there once it is a thousand.
"""

import os
import random
import select
import socket
import struct
import sys
import threading

target, names = sys.argv[1], sys.argv[2:]
dice = random.Random(7)


def taken(name):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.bind(f"\0{name[1:]}\0" if name.startswith("@") else name)
    return one


def garbage():
    """With a correct size: Kineto tries to read it as a configuration."""
    lines = [b"ACTIVITIES_LOG_FILE", b"=", b"\xff" * 100, b"PROFILE_START_ITERATION=-7", b"a=b=c", b"\0" * 50]
    text = b"\n".join(dice.choices(lines, k=dice.randrange(1, 20))) + dice.randbytes(dice.randrange(100))
    return struct.pack("=Q32s", len(text), dice.choice([b"req", b"ctxt", b"\xff" * 32])) + text


def flood():
    sent = 0
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.bind(os.path.join(os.path.dirname(target), f"dynoconfigclient-{os.getpid()}"))
    while True:
        try:
            one.sendto(dice.choice([garbage, lambda: dice.randbytes(dice.randrange(400))])(), target)
        except OSError:
            # There is no such socket now.
            select.select([], [], [], 0.001)
            continue
        sent += 1
        if sent == 1000:
            print("flooded", file=sys.stderr, flush=True)


squatted = [taken(name) for name in names]
if target not in names:
    threading.Thread(target=flood, daemon=True).start()
print("ready", file=sys.stderr, flush=True)
while True:
    for one in select.select([*squatted, sys.stdin], [], [])[0]:
        if one is sys.stdin:
            sys.exit()
        _, client = one.recvfrom(1 << 16)
        if client:
            print("answered", file=sys.stderr, flush=True)
            one.sendto(garbage(), client)
