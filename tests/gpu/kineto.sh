#!/usr/bin/env bash
# PyTorch's own traces of a running job, started from outside: both ranks trace the same steps. Prints the
# content of the traces.
#
#     tests/gpu/kineto.sh PROGRAMS OUT
set -uo pipefail
export PATH="$(realpath "$1"):$PATH" PYTHONUNBUFFERED=1
out=$(realpath "$2") here=$(dirname "$(realpath "$0")")
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
cd "$here" || exit

timeout 240 xpu-top run --job kineto -- python3 -m torch.distributed.run --nproc_per_node 2 share.py slow.py none 60 1 "$HOME/own" >"$out/kineto-job.log" 2>&1 &
job=$!
for _ in $(seq 120); do
    xpu-top status --now --job kineto --json 2>/dev/null | grep -q '"gemm_tflops": [0-9]' && break
    sleep 0.5
done
for what in "--steps 3" "--duration 500ms --with-stack --record-shapes" \
    "--steps 3 --profile-memory --with-flops --with-modules --with-stack"; do
    name=trace-$(echo "$what" | tr -dc 'a-z0-9')
    # shellcheck disable=SC2086 # several words
    time xpu-top kineto $what -o "$out/$name"
    echo "xpu-top kineto $what: exit code $?"
    cat "$out/$name/manifest.json"
    python3 - "$out/$name" <<'PY'
import collections, gzip, json, pathlib, sys

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json.gz")):
    trace = json.load(gzip.open(path))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    kinds = collections.Counter(event.get("cat") for event in events)
    nccl = sum("nccl" in event["name"].lower() for event in events if event.get("cat") == "kernel")
    flops = sum("flops" in str(event.get("args", {})).lower() for event in events)
    memory = sum(event.get("name") == "[memory]" for event in trace["traceEvents"])
    modules = sum("nn.Module" in event["name"] for event in events)
    steps = [event["name"] for event in events if event["name"].startswith("Optimizer.step")]
    print(path.name, path.stat().st_size, "bytes", dict(kinds), "NCCL kernels", nccl, "optimizer steps", len(steps),
          "events of memory", memory, "with FLOPs", flops, "of modules", modules)
PY
done
kill "$job"
wait "$job"
awk -v s="$HOME/own.0" 'BEGIN { while ((getline line < s) > 0) { split(line, a, " "); if (last && a[1]-last > most) most = a[1]-last; last = a[1]; n++ } print n, "steps; longest", most, "s" }'
