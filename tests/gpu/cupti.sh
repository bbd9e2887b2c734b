#!/usr/bin/env bash
# Tests whether CUPTI survives being switched on and off. See cupti.py.
#
#     tests/gpu/cupti.sh PROGRAMS OUT SECONDS RANKS MODE...
#
# Runs one job per mode, all at the same time, each with RANKS ranks.
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2") seconds=$3 ranks=$4
shift 4
here=$(dirname "$(realpath "$0")")
export PATH="$programs:$PATH" PYTHONUNBUFFERED=1 XPU_TOP_CUPTI=1
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
cd "$here" || exit
gcc -shared -fPIC -O1 -o "$out/libcupti-client.so" cupti.c -ldl
gcc -shared -fPIC -O1 -o "$out/libfault.so" fault.c
ulimit -c unlimited
mkdir -p /tmp/cores && echo "/tmp/cores/%e.%p.%i" >/proc/sys/kernel/core_pattern
number=0
for mode in "$@"; do
    number=$((number + 1))
    job="cupti$number" launcher=""
    case $mode in *captures*) launcher="xpu-top run --job $job --" ;; esac
    (
        $launcher timeout $((seconds + 100)) python3 -m torch.distributed.run --nproc_per_node "$ranks" \
            --master_port $((29600 + number)) cupti.py "$mode" "$seconds" "$out" xpu-top "$job" >"$out/$job.log" 2>&1
        echo "$job $mode ends with $?: $(grep '"switches"' "$out/$job.log" | tail -1), $(grep -c FAULT "$out/$job.log") faults, $(grep -c refused "$out/$job.log") refused"
    ) &
done
wait
for log in "$out"/*.log; do grep -h -A8 -m1 FAULT "$log" | cut -c1-120; done
for core in /tmp/cores/*; do
    [ -e "$core" ] || continue
    echo "== $core"
    cuda-gdb -batch -ex 'info threads' -ex 'thread apply all bt 25' "$(command -v python3)" "$core" >"$out/$(basename "$core").txt" 2>&1
    grep -m1 -A3 'terminated with' "$out/$(basename "$core").txt"
done
rm -f "$out"/cupti-*.bin "$out"/*.so
