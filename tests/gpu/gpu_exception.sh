#!/usr/bin/env bash
# The kernel in the report of a rank that a GPU exception ended (illegal address, assertion). Also checks
# whether the rank ends as it does without xpu-top, and the cost of a launch while the driver waits for
# exceptions.
#
#     tests/gpu/gpu_exception.sh PROGRAMS OUT
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2")
cd "$(dirname "$(realpath "$0")")" || exit
export PATH="$programs:$PATH" PYTHONUNBUFFERED=1
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
for how in address many assert; do
    python3 exits.py $how >"$out/$how.plain" 2>&1
    plain=$?
    xpu-top run --gpu-core --job "$how" -- python3 exits.py $how >"$out/$how.log" 2>&1
    echo "== $how: ends with $? under --gpu-core, with $plain without"
    for _ in $(seq 150); do
        xpu-top status --now --json --job "$how" >"$out/$how.json"
        grep -q '"exit": {' "$out/$how.json" && break
        sleep 0.2
    done
    python3 - "$out/$how.json" <<'PYTHON'
import json, sys
status = json.load(open(sys.argv[1]))
print(json.dumps((status["ranks"][0].get("exit") or {}).get("kernel")))
for finding in status["findings"]:
    print(finding["kind"], finding["class"], finding["evidence"])
PYTHON
    ls -la "$XPU_TOP_RUNTIME_DIR/gpu" | grep -c gpu-core
done
cat >"$out/launch.py" <<'P'
import time

import torch

x = torch.zeros(64, device="cuda")
best = []
for _ in range(20):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(500):
        x.add_(1)
    best.append((time.perf_counter() - begun) / 500)
    torch.cuda.synchronize()
print(f"{sorted(best)[10] * 1e6:.2f} us a launch")
P
for round in 1 2 3; do
    for option in "" --gpu-core; do
        # shellcheck disable=SC2086 # an empty option must be no argument
        echo "round $round, ${option:-without}: $(xpu-top run $option --job launch -- python3 "$out/launch.py" 2>>"$out/launch.err")"
    done
done
