#!/usr/bin/env bash
# Checks each GPU's figures against those that the process itself measures: with one thread per GPU, and with
# one thread for all.
#
#     tests/gpu/several.sh PROGRAMS OUT [GPUS]
#
# PROGRAMS has xpu-top, xpu-collector and libxpu_hook.so. Takes half a minute. Needs two or more GPUs, g++ and
# PyTorch's libraries. Prints a row per GPU; exits with 1 if a figure is off by more than 3 %.
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2") gpus=${3:-2}
here=$(dirname "$(realpath "$0")")
export PATH="$programs:$PATH"
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
libraries=$(python3 - <<'PYTHON'
import ctypes, torch
torch.zeros(1).cuda()
torch.mm(torch.zeros(8, 8).cuda(), torch.zeros(8, 8).cuda())
wanted = {}
for line in open("/proc/self/maps"):
    path = line.split()[-1]
    for name in ("libcudart", "libcublas.so", "libcublasLt", "libnccl"):
        if name in path:
            wanted[name] = path
print(*wanted.values())
PYTHON
)
flags=()
for library in $libraries; do flags+=("$library" "-Wl,-rpath,$(dirname "$library")"); done
g++ -O1 -std=c++17 -o "$out/several" "$here/several.cpp" "${flags[@]}" -lpthread || exit
wrong=0
for way in threads one; do
    xpu-top run --job "several-$way" -- "$out/several" $way 10 "$gpus" >"$out/several-$way.jsonl" 2>"$out/several-$way.err" &
    program=$!
    # The last status before the program ends.
    while kill -0 $program 2>/dev/null; do
        xpu-top status --json --now --job "several-$way" >"$out/status.new" 2>/dev/null
        grep -q '"state": "exited"' "$out/status.new" || cp "$out/status.new" "$out/status-$way.json"
        sleep 0.5
    done
    wait $program || { cat "$out/several-$way.err"; wrong=1; }
    xpu-top status --json --now --job "several-$way" >"$out/ended-$way.json"
    python3 - "$way" "$out" <<'PYTHON' || wrong=1
import json, sys
way, out = sys.argv[1:]
own = [json.loads(line) for line in open(f"{out}/several-{way}.jsonl")]
rows = {row["rank"]: row for row in json.load(open(f"{out}/status-{way}.json"))["ranks"]}
right = len(rows) == len(own)
# The rank that enters an all-reduce last does not wait.
bus = max(gpu["bus_gb_s"] for gpu in own)
for gpu in own:
    row = rows.get(f"0.{gpu['gpu']}", {})
    device = row.get("device") or {}
    pairs = [(row.get("gemm_tflops"), gpu["tflops"]), (row.get("bus_gb_s"), bus)]
    good = [seen is not None and abs(seen / said - 1) <= 0.03 for seen, said in pairs]
    right &= all(good) and "uuid" in device
    figures = ", ".join(f"{seen} seen, {said} said" for seen, said in pairs)
    print(f"{way}: {row.get('rank')}: TFLOPS and bus GB/s {figures}; {device.get('sm_mhz')} MHz, {device.get('power_w')} W, {device.get('uuid')}")
print(way, "findings:", [(finding["class"], finding["ranks"]) for finding in json.load(open(f"{out}/status-{way}.json"))["findings"]])
sys.exit(not right)
PYTHON
done
exit $wrong
