#!/usr/bin/env bash
# What GPUs and processes move and compute: xpu-top's figures, compared with a program's own arithmetic and
# with those of nvidia-smi or dcgmi, and the collector's cost of reading them. Needs two GPUs and some 90 s.
#
#     tests/gpu/load.sh PROGRAMS OUT
set -uo pipefail
export PATH="$(realpath "$1"):$PATH" PYTHONUNBUFFERED=1
out=$(realpath "$2") here=$(dirname "$(realpath "$0")")
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
cd "$here" || exit

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
timeout 130 xpu-top run --job load -- python3 -m torch.distributed.run --nproc_per_node 2 load.py 2>"$out/load.err" | tee "$out/load.txt" &
job=$!
for _ in $(seq 60); do
    collector=$(pgrep -n xpu-collector) && break
    sleep 0.5
done
# CPU time of the collector's threads by name, over ten seconds of the parts.
spent() { for task in /proc/"$collector"/task/*; do echo "$(cat "$task/comm") $(cut -d' ' -f1 "$task/schedstat")"; done 2>/dev/null | awk '{ all[$1] += $2 } END { for (name in all) print name, all[name] }' | sort; }
sleep 20
before=$(spent)
sleep 10
after=$(spent)
join <(echo "$before") <(echo "$after") | awk '{ printf "collector: %s takes %.3f %% of a core\n", $1, ($3 - $2) / 1e8 }'
wait "$job"
echo "exit code $?"
tail -5 "$out/load.err"
