"""Which crate may use which: what docs/architecture.md says, held against `cargo metadata`.

python3 tests/arrows.py
"""

import json
import os
import subprocess
import sys

MAY_USE = {
    "xpu-wire": set(),
    "xpu-recording": {"xpu-wire"},
    "xpu-model": {"xpu-wire"},
    "xpu-analysis": {"xpu-wire", "xpu-model"},
    "xpu-net": {"xpu-wire"},
    "xpu-hook": {"xpu-wire"},
    "xpu-collector": {"xpu-net", "xpu-wire", "xpu-model", "xpu-recording"},
    "xpu-top": {"xpu-net", "xpu-wire", "xpu-model", "xpu-recording", "xpu-analysis"},
}

# Nothing of these comes into the training process.
NOT_IN_THE_HOOK = ("zmq", "zstd", "demangle")


def main():
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--offline"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    uses = {
        names[node["id"]]: {
            names[dep["pkg"]] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])
        }
        for node in metadata["resolve"]["nodes"]
    }
    wrong = [
        f"{crate} uses {other}"
        for crate, may in MAY_USE.items()
        for other in sorted(uses[crate] & MAY_USE.keys() - may)
    ]
    seen, left = set(), ["xpu-hook"]
    while left:
        crate = left.pop()
        if crate not in seen:
            seen.add(crate)
            left.extend(uses[crate])
    wrong += [f"the hook links {crate}" for crate in sorted(seen) if any(word in crate for word in NOT_IN_THE_HOOK)]
    for line in wrong:
        print(line)
    return bool(wrong)


sys.exit(main())
