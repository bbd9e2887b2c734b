#!/usr/bin/env bash
# What docs/measurements.md states, on a machine with two or more GPUs and PyTorch:
#
#     tests/gpu/run.sh PROGRAMS OUT [PART...]
#
# PROGRAMS is a folder with xpu-top, xpu-collector and libxpu_hook.so; results go to OUT. Parts: watch agree overhead memory
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2")
shift 2
parts=${*:-watch agree overhead memory}
here=$(dirname "$(realpath "$0")")
train=${TRAIN:-$here/train.py}
export PATH="$programs:$PATH" PYTHONUNBUFFERED=1
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
cd "$here" || exit

run() { timeout 150 xpu-top run --job "$1" -- python3 -m torch.distributed.run --nproc_per_node 2 "${@:2}"; }
# Waits for the first timed GEMM: CUDA and cuBLAS take ten seconds and more to begin.
when_busy() {
    for _ in $(seq 60); do
        xpu-top status --job "$1" --json 2>/dev/null | grep -q '"gemm_tflops": [0-9]' && break
        sleep 0.5
    done
}

machine() {
    nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
    python3 -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, "NCCL", torch.cuda.nccl.version())'
    uname -r
}

# The screen on a real job, as a picture of itself, and the status of the same moment.
watch() {
    for kind in ddp fsdp; do
        run "$kind" "$train" "$kind" 900 >"$out/train-$kind.log" 2>&1 &
        when_busy "$kind"
        tmux -f /dev/null new-session -d -s "$kind" -x 132 -y 40 \
            "cd '$out' && COLORTERM=truecolor TERM=xterm-256color xpu-top --job $kind 2>'$out/screen-$kind.err'"
        sleep 8
        xpu-top status --job "$kind" --json --rank 0 --wait 5 >"$out/status-$kind.json"
        echo "status of $kind: exit code $?"
        tmux send-keys -t "$kind" S
        nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory --format=csv,noheader >"$out/contexts-$kind.txt"
        sleep 1
        tmux capture-pane -p -t "$kind" >"$out/screen-$kind.txt"
        tmux send-keys -t "$kind" q
        wait
        tail -2 "$out/train-$kind.log"
        head -c 1500 "$out/status-$kind.json"
    done
}

agree() {
    for kind in ddp fsdp; do
        run agreement agreement.py xpu-top $kind 2>>"$out/agreement.err" | tee -a "$out/agreement.jsonl"
    done
}

overhead() {
    # Jobs that wait for their CPU vary more: more, shorter blocks.
    for job in "ddp 2048 8 1024 4 40 10" "fsdp 2048 8 1024 4 120 5" "ddp 1024 16 512 4 120 5" "fsdp 4096 8 1024 4 30 10"; do
        # shellcheck disable=SC2086 # the words of a job are arguments
        run overhead overhead.py $job 2>>"$out/overhead.err" | tee -a "$out/overhead.jsonl"
    done
}

# Resident memory of a rank with and without the hook, from its own /proc.
memory() {
    for how in with without; do
        if [ $how = with ]; then launcher="xpu-top run --job memory --"; else launcher=""; fi
        $launcher python3 -m torch.distributed.run --nproc_per_node 2 resident.py 2>/dev/null | sed "s/^/$how the hook: /"
    done
}

machine | tee "$out/machine.txt"
for part in $parts; do
    echo "== $part"
    $part
done
cat "$XPU_TOP_RUNTIME_DIR"/*.log >"$out/collector.log" 2>/dev/null
(cd "$out" && tar czf results.tgz --exclude results.tgz ./*)
