#!/usr/bin/env bash
# Makes the measurements of docs/measurements-log.md, on a machine with two or more GPUs and PyTorch:
#
#     tests/gpu/run.sh PROGRAMS OUT [PART...]
#
# PROGRAMS is a folder with xpu-top, xpu-collector and libxpu_hook.so; results go to OUT. With SHARED=1 the
# ranks share one GPU. Parts: watch agree counts kernels same hang overhead memory device capture activity
# exposed replay. With four or more GPUs also: faults
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2")
shift 2
parts=${*:-watch agree counts kernels same hang overhead memory device capture activity exposed replay}
here=$(dirname "$(realpath "$0")")
train=${TRAIN:-$here/train.py}
export PATH="$programs:$PATH" PYTHONUNBUFFERED=1
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
cd "$here" || exit

run() { timeout ${LIMIT:-400} xpu-top run --job "$1" -- python3 -m torch.distributed.run --nproc_per_node ${RANKS:-2} ${SHARED:+share.py} "${@:2}"; }
# Waits for the first timed GEMM: CUDA and cuBLAS take ten seconds and more to begin.
when_busy() {
    for _ in $(seq 60); do
        xpu-top status --now --job "$1" --json 2>/dev/null | grep -q '"gemm_tflops": [0-9]' && break
        sleep 0.5
    done
}

machine() {
    nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
    python3 -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, "NCCL", torch.cuda.nccl.version())'
    uname -r
}

# The screen on a real job, saved as text, and the status at the same moment.
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
    for kind in ${AGREE:-ddp fsdp}; do
        XPU_TOP_KERNELS=flash_fwd:flash_bwd run agreement agreement.py xpu-top $kind 2>>"$out/agreement.err" | tee -a "$out/agreement.jsonl"
    done
}

# The hook's counts compared with an independent counter's, and FLOPs with the model's own.
counts() {
    cc -O2 -shared -fPIC -o "$out/libcount.so" count.c -ldl
    for kind in ${COUNTED:-ddp fsdp graphed}; do
        LD_PRELOAD="$out/libcount.so" run counts counts.py xpu-top $kind 2>>"$out/counts.err" | tee -a "$out/counts.jsonl"
    done
}

# Counts of kernels by name, compared with torch.profiler's.
kernels() {
    XPU_TOP_KERNELS=flash_fwd:fmha:sdpa:elementwise:triton timeout 120 xpu-top run --job kernels -- \
        python3 kernels.py xpu-top 2>>"$out/kernels.err" | tee -a "$out/kernels.jsonl"
}

# The loss of every step: without the hook twice (is the job itself deterministic?), with it, and with
# everything timed.
same() {
    for kind in ${SAME:-ddp fsdp}; do
        for how in without again with everything; do
            launcher="xpu-top run --job same --" budget=0.1
            case $how in without | again) launcher="" ;; everything) budget=off ;; esac
            XPU_TOP_BUDGET=$budget $launcher timeout 100 python3 -m torch.distributed.run --nproc_per_node 2 \
                same_loss.py $kind 60 >"$out/loss-$kind-$how.txt" 2>>"$out/same.err"
        done
        for how in again with everything; do
            cmp "$out/loss-$kind-without.txt" "$out/loss-$kind-$how.txt" \
                && echo "$kind: $(wc -l <"$out/loss-$kind-$how.txt") losses $how the hook are the same bits as without"
        done
    done
}

# What the ledger shows from outside for a job that hangs.
hang() {
    for how in ${HANGS:-stop kill gpu}; do
        EXPECTED=$out/expected-$how.json timeout -s KILL 60 xpu-top run --job "hang-$how" -- \
            python3 -m torch.distributed.run --nproc_per_node 2 hang.py $how >"$out/hang-$how.log" 2>&1 &
        for _ in $(seq 100); do [ -s "$out/expected-$how.json" ] && break; sleep 0.3; done
        # When rank 1 is killed, torchrun soon kills rank 0. The ledger is read while rank 0 still waits, and
        # afterwards.
        for moment in 4 9; do
            sleep $((moment - 2))
            for rank in 0 1; do
                timeout 8 xpu-top status --now --json --job "hang-$how" --rank $rank --wait 2 >"$out/hang-$how-$moment-$rank.json"
            done
        done
        echo "$how: called $(cat "$out/expected-$how.json")"
        python3 ledger.py "$out/hang-$how"-*.json
        pkill -KILL -f hang.py
        wait
    done
}

# One rank of four has a fault: when the screen reports it, and what screen and status show.
faults() {
    for fault in ${FAULTS:-none gemm sleep skip shape loader}; do
        export STARTED=$out/started-$fault
        timeout -s KILL 100 xpu-top run --job "$fault" -- \
            python3 -m torch.distributed.run --nproc_per_node 4 faults.py "$fault" 60 >"$out/fault-$fault.log" 2>&1 &
        when_busy "$fault"
        tmux -f /dev/null new-session -d -s "$fault" -x 132 -y 40 \
            "cd '$out' && COLORTERM=truecolor TERM=xterm-256color xpu-top --job $fault 2>'$out/screen-$fault.err'"
        xpu-top record --job "$fault" -o "$out/fault-$fault.xpu" --for 60s >"$out/record-$fault.log" 2>&1 &
        for _ in $(seq 200); do [ -s "$STARTED" ] && break; sleep 0.2; done
        python3 named.py "$fault" "$STARTED" "${NAMED_WITHIN:-30}"
        sleep 4
        tmux send-keys -t "$fault" S
        sleep 0.5
        tmux capture-pane -p -t "$fault" >"$out/screen-$fault.txt"
        tmux send-keys -t "$fault" s
        sleep 2
        tmux capture-pane -p -t "$fault" >"$out/screen-$fault-stacks.txt"
        tmux send-keys -t "$fault" S
        xpu-top status --json --job "$fault" >"$out/status-$fault.json"
        echo "$fault: status ends with $?"
        python3 -c 'import json, sys; [print("  ", *map(f.get, ("kind", "class", "ranks", "confidence", "evidence")))
            for f in json.load(open(sys.argv[1]))["findings"]]' "$out/status-$fault.json"
        timeout 20 xpu-top stacks --job "$fault" >"$out/stacks-$fault.txt"
        tmux send-keys -t "$fault" q
        pkill -INT -f "xpu-top record"
        sleep 1
        pkill -KILL -f faults.py
        wait
    done
}

overhead() {
    cp -r "$programs/ncclprof" "$out/ncclprof" 2>/dev/null
    plugin=""
    if g++ -O2 -fPIC -shared -I"$out/ncclprof/example/nccl" -I/usr/local/cuda/include \
        -o "$out/libnccl-profiler-example.so" "$out"/ncclprof/example/*.cc 2>"$out/plugin.err"; then
        plugin="--nccl-example $out/libnccl-profiler-example.so"
    fi
    rm -rf "$out/ncclprof"
    # shellcheck disable=SC2086 # the words of an option are arguments
    for jobs in ${OVERHEAD:-"$DATA_PARALLEL" "$OTHER_PARALLEL" "$COMPILED"}; do
        run overhead overhead.py $plugin --rounds "${ROUNDS:-30}" --profiler "${PROFILED:-8}" ${jobs//,/ } 2>>"$out/overhead.err" \
            | tee -a "$out/overhead.jsonl"
    done
}
DATA_PARALLEL=ddp:2048:8:1024:4,ddp:4096:8:1024:4,ddp:1024:16:512:4,fsdp:2048:8:1024:4,fsdp:4096:8:1024:4,fsdp:1024:16:512:4
OTHER_PARALLEL=tp:2048:8:1024:4,pipeline:2048:8:1024:4,moe:2048:8:1024:4,fp8:4096:24:2048:4
COMPILED=graphed:1024:4:512:4

# The resident memory of a rank with and without the hook, from its own /proc.
memory() {
    for how in with without; do
        if [ $how = with ]; then launcher="xpu-top run --job memory --"; else launcher=""; fi
        $launcher python3 -m torch.distributed.run --nproc_per_node 2 resident.py 2>/dev/null | sed "s/^/$how the hook: /"
    done
}

# GPU health, compared with nvidia-smi's, under load.
device() {
    run device "$train" ddp 1500 >"$out/train-device.log" 2>&1 &
    when_busy device
    python3 device.py device "${ROUNDS:-3}" | tee "$out/device.txt"
    xpu-top status --json --job device --rank 0 --wait 5 >"$out/status-device.json"
    wait
}

# Three captured steps compared with three that torch.profiler sees, and the step time before, during and
# after.
capture() {
    for kind in ${CAPTURED:-ddp fsdp}; do
        run capture capture.py xpu-top "$kind" "$out/capture-$kind.bin" 2>>"$out/capture.err" | tee -a "$out/capture.jsonl"
        xpu-top report "$out/capture-$kind.bin" >"$out/report-$kind.txt"
        xpu-top export "$out/capture-$kind.bin" --chrome "$out/capture-$kind.json"
    done
}

# All kernels of captured steps, compared with torch.profiler's; which of the two gives way; and the cost.
activity() {
    for kind in ${ACTIVITIES:-ddp fsdp}; do
        XPU_TOP_CUPTI=1 run activity activity.py xpu-top "$kind" "$out" 2>>"$out/activity.err" | tee -a "$out/activity.jsonl"
    done
}

# Exposed communication in the live status, compared with a capture's and torch.profiler's.
exposed() {
    for kind in ${EXPOSED:-ddp fsdp}; do
        XPU_TOP_CUPTI=1 run exposed exposed.py xpu-top "$kind" "$out/exposed-$kind.bin" "${SECONDS_LIVE:-40}" 2>>"$out/exposed.err" \
            | tee -a "$out/exposed.jsonl"
    done
}

# Re-runs the GEMMs of a captured job one by one after the job has ended, with the CUDA libraries that PyTorch
# loads.
replay() {
    libraries=$(python3 -c 'import torch; torch.cuda.init(); torch.mm(*[torch.ones(8, 8, device="cuda")] * 2)
print(":".join(dict.fromkeys(line.split()[-1].rsplit("/", 1)[0] for line in open("/proc/self/maps") if "/libcu" in line)))')
    for kind in ${REPLAYED:-ddp fsdp}; do
        run replay "$train" "$kind" 2000 >"$out/train-replay-$kind.log" 2>&1 &
        when_busy replay
        for _ in $(seq 60); do xpu-top status --now --job replay --json 2>/dev/null | grep -q '"min": [1-9]' && break; sleep 0.5; done
        xpu-top capture --job replay --light --steps 5 --wait 60 -o "$out/replay-$kind.bin"
        pkill -TERM -f torch.distributed.run
        wait
        for _ in $(seq 60); do [ -z "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader)" ] && break; sleep 0.5; done
        for device in 0 1; do
            echo "$kind on GPU $device"
            # Without named libraries, it must find PyTorch's by itself.
            xpu-top gemm-replay "$out/replay-$kind.bin" --device $device >/dev/null 2>"$out/replay-$kind-found.err"
            echo "without LD_LIBRARY_PATH it ends with $?: $(head -c 300 "$out/replay-$kind-found.err")"
            time LD_LIBRARY_PATH=$libraries:${LD_LIBRARY_PATH:-} \
                xpu-top gemm-replay "$out/replay-$kind.bin" --device $device --json >"$out/replay-$kind-$device.json"
            LD_LIBRARY_PATH=$libraries:${LD_LIBRARY_PATH:-} \
                xpu-top gemm-replay "$out/replay-$kind.bin" --device $device | tee "$out/replay-$kind-$device.txt"
        done
    done
}

machine | tee "$out/machine.txt"
for part in $parts; do
    echo "== $part"
    $part
done
# The next run has its own key, which this run's collector does not know.
pkill -x xpu-collector
cat "$XPU_TOP_RUNTIME_DIR"/*.log >"$out/collector.log" 2>/dev/null
(cd "$out" && tar czf results.tgz --exclude results.tgz ./*)
