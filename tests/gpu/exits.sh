#!/usr/bin/env bash
# Ranks of real PyTorch that end badly: what is reported of each, and whether the exit codes stay the same.
#
#     tests/gpu/exits.sh PROGRAMS OUT exception segfault abort exit kill memory assert address nccl
set -uo pipefail
programs=$(realpath "$1") out=$(realpath "$2")
shift 2
here=$(dirname "$(realpath "$0")")
export PATH="$programs:$PATH"
XPU_TOP_RUNTIME_DIR=$(mktemp -d) HOME=$(mktemp -d)
export XPU_TOP_RUNTIME_DIR HOME
for how in "$@"; do
    python3 "$here/exits.py" $how >"$out/$how.plain" 2>&1
    plain=$?
    xpu-top run --job "$how" -- python3 "$here/exits.py" $how >"$out/$how.log" 2>&1
    echo "== $how: ends with $? under xpu-top, with $plain without"
    for _ in $(seq 100); do
        xpu-top status --now --json --job "$how" >"$out/$how.json"
        grep -q '"exit": {' "$out/$how.json" && break
    done
    python3 - "$out/$how.json" <<'PYTHON'
import json, sys
status = json.load(open(sys.argv[1]))
print(json.dumps(status["ranks"][0].get("exit"))[:900])
for finding in status["findings"]:
    print(finding["kind"], finding["class"], finding["evidence"])
PYTHON
done
