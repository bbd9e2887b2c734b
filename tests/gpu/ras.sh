#!/usr/bin/env bash
# NCCL's own RAS compared with xpu-top: one of two ranks omits an AllReduce. Prints what each rank has called,
# what RAS answers to its own protocol, and what `xpu-top ras` reports of both: live, as JSON, and from the
# incident folder after the job's end. The exit code is 0 if RAS, xpu-top and the program agree.
#
#     tests/gpu/ras.sh PROGRAMS OUT
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2")
cd "$(dirname "$(realpath "$0")")" || exit
export PATH="$programs:$PATH" PYTHONUNBUFFERED=1 XPU_TOP_BASE_PORT=29500 NCCL_RAS_ADDR=127.0.0.1:28099
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
rm -f "$out/called.json"
timeout -s KILL 240 xpu-top run --job ras -- python3 -m torch.distributed.run --nproc_per_node 2 \
    --rdzv-backend c10d --rdzv-endpoint localhost:0 share.py left_out.py 200 "$out/called.json" >"$out/ras.log" 2>&1 &
job=$!
for _ in $(seq 600); do [ -s "$out/called.json" ] && break; sleep 0.2; done
echo "called: $(cat "$out/called.json")"

# The counts through RAS's own protocol, without xpu-top.
python3 - "$out/own.json" <<'PYTHON'
import json, re, socket, sys

with socket.create_connection(("127.0.0.1", 28099), 5) as ras:
    lines = ras.makefile("rw", newline="\n")
    for line, wanted in (("CLIENT PROTOCOL 2", "SERVER PROTOCOL"), ("SET FORMAT json", "OK")):
        lines.write(line + "\n")
        lines.flush()
        said = lines.readline()
        assert said.startswith(wanted), said
    lines.write("STATUS\n")
    lines.flush()
    text = lines.read()
open(sys.argv[1], "w").write(text)
# NCCL 2.28.7 to 2.28.9 omit a comma before the status of a missing rank.
document = json.loads(re.sub(r'(\d)(\s*"status")', r"\1,\2", text))
print("RAS itself: NCCL", document["nccl_version"])
for one in document["communicators"]:
    for rank in one["ranks"]:
        print(" ", one["hash"], "rank", rank["rank"], "pid", rank["pid"], rank["collective_counts"])
PYTHON

for _ in $(seq 150); do
    xpu-top status --now --job ras --json 2>/dev/null | grep -q '"kind": "hang"' && break
    sleep 0.2
done
xpu-top status --now --job ras | head -4
echo "-- xpu-top ras"
xpu-top ras --job ras | tee "$out/ras.txt"
xpu-top ras --job ras --json >"$out/ras.json"
for _ in $(seq 100); do
    folder=$(ls -d "$HOME"/.local/state/xpu-top/hangs/ras-* 2>/dev/null | head -1)
    [ -n "$folder" ] && [ -s "$folder/ras.json" ] && break
    sleep 0.2
done
# `timeout` passes the signal on to the launcher and the ranks.
kill -TERM $job
wait $job 2>/dev/null
echo "-- xpu-top ras --replay, the job is gone; the folder has: $(ls "$folder" | tr '\n' ' ')"
xpu-top ras --replay "$folder" | tee "$out/ras-replay.txt"
cp -r "$folder" "$out/"

python3 - "$out" "$folder/ras.json" <<'PYTHON'
import json, sys

out, kept = sys.argv[1:]
called = json.load(open(f"{out}/called.json"))
document = json.load(open(f"{out}/ras.json"))
launched = {
    f"rank_{rank['rank']}": rank["launched"]["all_reduce"]
    for one in document["communicators"]
    for rank in one["ranks"]
    if rank["launched"]["all_reduce"]
}
ranks = {len(one["ranks"]) for one in json.load(open(kept))["communicators"]}
print("verdict:", document["verdict"], "| launched:", launched, "| called:", called, "| ranks in ras.json:", ranks)
same = launched == called or {rank: count - launched["rank_1"] for rank, count in launched.items()} == {
    rank: count - called["rank_1"] for rank, count in called.items()
}
sys.exit(not (document["verdict"] == "agrees" and same))
PYTHON
