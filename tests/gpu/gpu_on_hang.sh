#!/usr/bin/env bash
# `xpu-top run --gpu-core-on-hang`: one of two ranks hangs behind an endless kernel. Shows the content of the
# incident folder once it has the kernels, the named rank, and the utilisation and power of both GPUs during the
# hang.
#
#     tests/gpu/gpu_on_hang.sh PROGRAMS OUT
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2")
cd "$(dirname "$(realpath "$0")")" || exit
export PATH="$programs:$PATH" PYTHONUNBUFFERED=1 XPU_TOP_BASE_PORT=29500
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
timeout -s KILL 150 xpu-top run --gpu-core-on-hang --on-hang "cat >'$out/told.json'" --job unasked -- python3 -m torch.distributed.run \
    --nproc_per_node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0 share.py hangs.py kernel 8 "$out/own" >"$out/unasked.log" 2>&1 &
job=$!
for _ in $(seq 300); do [ -s "$out/own.began" ] && break; sleep 0.2; done
sleep 14
nvidia-smi --query-gpu=index,utilization.gpu,power.draw --format=csv,noheader | tee "$out/loads.txt"
xpu-top status --now --hosts 127.0.0.1 --base-port 29500 | tee "$out/status.txt" | head -5
for _ in $(seq 300); do folder=$(ls -d "$HOME"/.local/state/xpu-top/hangs/unasked-* 2>/dev/null) && break; sleep 0.2; done
until xpu-top stacks --replay "$folder" | grep -q "spin_kernel\|GPU 0" || ! kill -0 $job; do sleep 1; done
echo "the kernels were there $(python3 -c "import time; print(round(time.time() - float(open('$out/own.began').read())))") s after the hang began"
kill $job
wait $job
echo "$folder" | wc -l
xpu-top status --replay "$folder" | tee "$out/after.txt" | head -5
xpu-top stacks --replay "$folder" | tee "$out/stacks.txt" | head -12
ls -la "$XPU_TOP_RUNTIME_DIR"/gpu
cp -r "$folder" "$out/"
