#!/usr/bin/env bash
# Kernels on GPUs, from core dumps: `xpu-top stacks --gpus` on two ranks, one of which hangs behind an endless
# kernel. Also makes the core dump of a kernel that writes to a wrong address, as in collector/src/stacks/gpu.
#
#     tests/gpu/gpu_core.sh PROGRAMS OUT [key]
#
# With "key", the kernels are requested with U on the screen, which is then in OUT/screen.svg.
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2")
cd "$(dirname "$(realpath "$0")")" || exit
export PATH="$programs:$PATH" PYTHONUNBUFFERED=1 XPU_TOP_BASE_PORT=29400
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
timeout -s KILL 180 xpu-top run --gpu-core --job core -- python3 -m torch.distributed.run --nproc_per_node 2 --rdzv-backend c10d \
    --rdzv-endpoint localhost:0 share.py hangs.py kernel 8 "$out/own" >"$out/hang.log" 2>&1 &
where="--hosts 127.0.0.1 --base-port 29400"
for _ in $(seq 300); do [ -s "$out/own.began" ] && break; sleep 0.2; done
# shellcheck disable=SC2086 # the words of an option are arguments
for _ in $(seq 30); do xpu-top status --now $where >"$out/status.txt" 2>&1; [ $? = 2 ] && break; sleep 1; done
head -5 "$out/status.txt"
(for _ in $(seq 60); do ls -l --time-style=+%s.%N "$XPU_TOP_RUNTIME_DIR"/gpu; sleep 0.5; done >"$out/files.txt" 2>&1) &
if [ "${3:-}" = key ]; then
    # shellcheck disable=SC2086
    python3 press.py "$out/screen.svg" spin_kernel xpu-top $where
else
    # shellcheck disable=SC2086
    time xpu-top stacks --gpus --yes $where >"$out/stacks.txt" 2>"$out/stacks.err"
    echo "stacks --gpus ends with $?: $(cat "$out/stacks.err")"
    head -12 "$out/stacks.txt" | cut -c1-160
fi
ls -la "$XPU_TOP_RUNTIME_DIR"/gpu
pkill -KILL -f "$out/own"
cat >"$out/address.py" <<'P'
import cupy
import numpy

code = 'extern "C" __global__ void writes_to_nowhere(int *p) { p[threadIdx.x] = 1; }'
cupy.RawKernel(code, "writes_to_nowhere")((3,), (64,), (numpy.uint64(16),))
cupy.cuda.Device().synchronize()
P
export CUDA_COREDUMP_GENERATION_FLAGS=skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory
CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=$out/address.core timeout 60 python3 "$out/address.py" >"$out/address.log" 2>&1
gzip -9f "$out/address.core"
