#!/usr/bin/env bash
# `xpu-top qualify` on real GPUs: healthy GPUs pass, and a GPU that another process uses fails. Needs one or
# two GPUs and less than 90 s.
#
#     tests/gpu/qualify.sh PROGRAMS OUT
#
# PROGRAMS has xpu-top; python3 has PyTorch, whose wheels contain CUDA's libraries. The exit code is 0 if all
# results are as expected.
set -uo pipefail
export PATH="$(realpath "$1"):$PATH" PYTHONUNBUFFERED=1
out=$(realpath "$2")
HOME=$(mktemp -d) XPU_TOP_RUNTIME_DIR=$(mktemp -d)
export HOME XPU_TOP_RUNTIME_DIR
unset XDG_STATE_HOME
wrong=0

check() { # NAME EXPECTED-CODE CODE
    if [ "$2" = "$3" ]; then echo "$1: exit code $3, as expected"; else echo "$1: exit code $3 instead of $2"; wrong=1; fi
}
gpus=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | wc -l)
nvidia-smi --query-gpu=index,name,driver_version,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader

# The longer run, as text.
begun=$SECONDS
xpu-top qualify >"$out/healthy.txt"
check "healthy, $gpus GPUs, $((SECONDS - begun)) s" 0 $?
cat "$out/healthy.txt"

# A single GPU has no neighbours to compare with, only its own past: three quick runs.
for run in 1 2 3; do
    begun=$SECONDS
    xpu-top qualify --quick --json >"$out/quick-$run.json"
    check "quick run $run, $((SECONDS - begun)) s" 0 $?
done

# Another process multiplies on GPU 0.
python3 - <<'PY' &
import torch
one = torch.randn(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
while True:
    for _ in range(20):
        one @ one
    torch.cuda.synchronize()
PY
load=$!
trap 'kill $load 2>/dev/null' EXIT
for _ in $(seq 60); do
    [ "$(nvidia-smi --id=0 --query-gpu=utilization.gpu --format=csv,noheader,nounits)" -gt 90 ] && break
    sleep 0.5
done
xpu-top qualify --quick >"$out/refused.txt"
check "beside a job, without being told" 2 $?
tail -4 "$out/refused.txt"
xpu-top qualify --quick --beside-job --json >"$out/beside.json"
check "a neighbour's GEMMs on GPU 0" 1 $?
python3 - "$out"/quick-3.json "$out"/beside.json <<'PY' || wrong=1
import json
import sys

healthy, beside = (json.load(open(path))["hosts"][0] for path in sys.argv[1:])
for name, host in (("healthy", healthy), ("beside", beside)):
    for gpu in host["gpus"]:
        rates = {f"{one['kind']} {one['name']}": round(one["median"], 1) for one in gpu["figures"]}
        print(name, gpu["index"], gpu["verdict"], json.dumps(rates), json.dumps(gpu["condition"]))
    for pair in host["pairs"]:
        print(name, pair["from"], "to", pair["to"], round(pair["figure"]["median"], 1), pair["access"], pair["link"])
    print(name, "all-reduce", host["all_reduce"] and host["all_reduce"]["median"], f"{host['seconds']:.1f} s")
failing = [gpu["index"] for gpu in beside["gpus"] if gpu["verdict"] == "fail"]
print("fails:", failing)
print("\n".join(beside["why"][:3]))
sys.exit(failing != [0])
PY
kill $load
wait $load 2>/dev/null
exit $wrong
