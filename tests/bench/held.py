"""How long reading the stacks of a rank of many threads keeps its threads from running.

    python3 tests/bench/held.py target/release/xpu-collector

Starts ranks that do nothing but look at the clock in their main thread, beside threads that wait, and has their
stacks read: as a job that hangs is read, with native frames (`--native`), and as one is on demand, without. A gap in
the main thread's clock is time it did not run, for whatever reason: the gaps without any reading are beside them.
What the reader itself says is the longest that it held any one thread.
"""

import json
import subprocess
import sys
import time

RANKS, THREADS, SECONDS = 8, 100, 4.0

RANK = f"""
import sys, threading, time
for _ in range({THREADS} - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    end, last, longest = time.perf_counter() + float(line), time.perf_counter(), 0.0
    while last < end:
        time.sleep(0.0001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    print(longest, flush=True)
"""


def gaps(ranks, meanwhile):
    for rank in ranks:
        rank.stdin.write(f"{SECONDS}\n")
        rank.stdin.flush()
    time.sleep(0.5)
    took = meanwhile()
    longest = sorted(float(rank.stdout.readline()) * 1e3 for rank in ranks)
    return {
        "longest gap, ms": round(longest[-1], 2),
        "median of ranks, ms": round(longest[len(longest) // 2], 2),
        "read in, s": took,
    }


def main():
    collector = sys.argv[1]
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(RANKS)
    ]
    for rank in ranks:
        rank.stdout.readline()

    def read(*how):
        def reading():
            begun = time.perf_counter()
            readers = [
                subprocess.Popen([collector, "--read-stacks", str(rank.pid), *how], stdout=subprocess.DEVNULL)
                for rank in ranks
            ]
            codes = [reader.wait() for reader in readers]
            assert not any(codes), codes
            return round(time.perf_counter() - begun, 3)

        return reading

    rounds = [("nothing", lambda: 0), ("without native frames", read()), ("with native frames", read("--native"))]
    for name, meanwhile in rounds * 3:
        print(name, json.dumps(gaps(ranks, meanwhile)))
    for rank in ranks:
        rank.kill()


if __name__ == "__main__":
    main()
