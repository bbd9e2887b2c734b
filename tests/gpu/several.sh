#!/usr/bin/env bash
# Checks each GPU's figures against those that the process itself measures: with one thread per GPU, with one
# thread for all, and with NCCL linked in statically where the machine has libnccl_static.a.
#
#     tests/gpu/several.sh PROGRAMS OUT [GPUS]
#
# PROGRAMS has xpu-top, xpu-collector and libxpu_hook.so. Takes a minute. Needs two or more GPUs, g++ and
# PyTorch's libraries. Prints a row per GPU; exits with 1 if a rate is off by more than 3 %, or a count of calls
# is not equal.
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2") gpus=${3:-2}
here=$(dirname "$(realpath "$0")")
export PATH="$programs:$PATH"
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME XPU_TOP_BASE_PORT=27000
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
flags=() flags_static=()
for library in $libraries; do
    both=("$library" "-Wl,-rpath,$(dirname "$library")")
    flags+=("${both[@]}")
    [[ $library == *libnccl* ]] || flags_static+=("${both[@]}")
done
g++ -O1 -std=c++17 -o "$out/several-shared" "$here/several.cpp" "${flags[@]}" -lpthread || exit
kinds=(shared)
if [ -e /usr/lib/x86_64-linux-gnu/libnccl_static.a ]; then
    g++ -O1 -std=c++17 -o "$out/several-static" "$here/several.cpp" -l:libnccl_static.a "${flags_static[@]}" \
        -lpthread -lrt -ldl && kinds+=(static)
fi
wrong=0
for kind in "${kinds[@]}"; do
    for way in threads one; do
        job=$kind-$way
        xpu-top run --job "$job" -- "$out/several-$kind" $way 10 "$gpus" >"$out/$job.jsonl" 2>"$out/$job.err" &
        program=$!
        # The last status before the program is done.
        while kill -0 $program 2>/dev/null && [ ! -s "$out/$job.jsonl" ]; do
            xpu-top status --json --now --job "$job" >"$out/status.new" 2>/dev/null
            [ -s "$out/$job.jsonl" ] || cp "$out/status.new" "$out/$job.json"
            sleep 0.5
        done
        for ((gpu = 0; gpu < gpus; gpu++)); do
            xpu-top status --json --now --job "$job" --rank "0.$gpu" --wait 3 >"$out/$job-$gpu.json"
        done
        wait $program || { cat "$out/$job.err"; wrong=1; }
        xpu-top status --json --now --job "$job" >"$out/$job-ended.json"
        python3 - "$job" "$out" <<'PYTHON' || wrong=1
import json, sys
job, out = sys.argv[1:]
own = [json.loads(line) for line in open(f"{out}/{job}.jsonl")]
status = json.load(open(f"{out}/{job}.json"))
rows = {row["rank"]: row for row in status["ranks"]}
right = len(rows) == len(own)
# The rank that enters an all-reduce last does not wait.
bus = max(gpu["bus_gb_s"] for gpu in own)
for gpu in own:
    rank = f"0.{gpu['gpu']}"
    row = rows.get(rank, {})
    device = row.get("device") or {}
    detail = next((one for one in json.load(open(f"{out}/{job}-{gpu['gpu']}.json"))["ranks"] if one["rank"] == rank), {})
    counts = [sum(one["count"] for one in detail.get(what, [])) for what in ("gemms", "collectives")]
    pairs = [(row.get("gemm_tflops"), gpu["tflops"]), (row.get("bus_gb_s"), bus)]
    good = [seen is not None and abs(seen / said - 1) <= 0.03 for seen, said in pairs]
    right &= all(good) and "uuid" in device and counts == [gpu["gemms"], gpu["reduces"]]
    figures = ", ".join(f"{seen} seen, {said} said" for seen, said in pairs)
    print(f"{job}: {row.get('rank')}: TFLOPS and bus GB/s {figures}; GEMMs and all-reduces {counts} counted,",
          f"{gpu['gemms']}, {gpu['reduces']} made; {detail.get('nccl_calls')};",
          f"{device.get('sm_mhz')} MHz, {device.get('power_w')} W, {device.get('uuid')}")
print(job, "findings:", [(finding["class"], finding["ranks"]) for finding in status["findings"]])
sys.exit(not right)
PYTHON
    done
done
exit $wrong
