#!/usr/bin/env bash
# Captures with all kernels on older CUDA: kernels, fills and copies of each step, and whether the job
# survives many captures.
#
#     tests/gpu/toolkits.sh PROGRAMS OUT CAPTURES FOLDER...
#
# Each folder has one libcudart and the libcupti of its version, as in the wheels nvidia-cuda-runtime and
# nvidia-cuda-cupti.
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2") captures=$3
shift 3
here=$(dirname "$(realpath "$0")")
export PATH="$programs:$PATH"
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
gcc -O1 -w -o "$out/toolkit" "$here/toolkit.c" -ldl || exit
for folder in "$@"; do
    folder=$(realpath "$folder")
    job=cuda-$(basename "$folder")
    runtime=$(basename "$(ls "$folder"/libcudart.so.*)")
    echo "== $job: $runtime, $(basename "$(ls "$folder"/libcupti.so.*)")"
    LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH:-}" xpu-top run --job "$job" -- "$out/toolkit" "$runtime" 600 2>"$out/$job.log" &
    until xpu-top status --now --json --job "$job" 2>/dev/null | grep -q '"step": [0-9]'; do
        kill -0 $! 2>/dev/null || break
    done
    whole=0
    for number in $(seq "$captures"); do
        rm -f "$out/$job.bin"
        xpu-top capture --job "$job" --kernels --steps 5 --wait 20 -o "$out/$job.bin" >"$out/$job.txt" 2>&1 && whole=$((whole + 1))
    done
    kill -0 $! 2>/dev/null && echo "alive after $captures captures, $whole of them whole" || echo "DIED"
    tail -3 "$out/$job.txt"
    xpu-top report "$out/$job.bin" --json >"$out/$job.json"
    python3 - "$out/$job.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
for rank in report["ranks"]:
    print([step["operations"] for step in rank["steps"]][:2], [step["on_gpu_ns"] for step in rank["steps"]][:1])
print({key: report[key] for key in report if key in ("kernels", "notes", "dropped", "untimed")})
PYTHON
    kill $! 2>/dev/null
    wait $! 2>/dev/null
    cat "$out/$job.log"
done
