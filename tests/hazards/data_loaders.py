"""Python's multiprocessing as a data loader uses it: workers forked after the GPU was used, which prepare batches,
spawned workers, and spawned ranks that use the GPU themselves. Ends with exit code 0."""

import multiprocessing
import sys
from pathlib import Path

WORKERS, BATCHES = 3, 40


def prepare(worker, queue):
    for batch in range(BATCHES):
        queue.put(sum(range(worker, worker + batch)))


def train_alone(worker, queue):
    import gpu

    for _ in range(BATCHES):
        gpu.ok(gpu.gemm_ex(128, 128, 128))
    gpu.sync()
    queue.put(worker)


def run(method, work, messages, consume):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    workers = [context.Process(target=work, args=(worker, queue)) for worker in range(WORKERS)]
    for worker in workers:
        worker.start()
    total = 0
    for _ in range(WORKERS * messages):
        total += queue.get(timeout=60)
        consume()
    for worker in workers:
        worker.join()
    codes = [worker.exitcode for worker in workers]
    print(f"{method} {work.__name__}: {total}, exit codes {codes}", flush=True)


def main():
    import gpu

    def train():
        gpu.ok(gpu.gemm_ex(256, 256, 256))

    for _ in range(10):
        train()
    run("fork", prepare, BATCHES, train)
    run("spawn", prepare, BATCHES, train)
    run("spawn", train_alone, 1, train)
    gpu.sync()
    print("last error", gpu.process.cudaGetLastError())


sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hook"))
if __name__ == "__main__":
    main()
