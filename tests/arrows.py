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
    "xpu-analysis": {"xpu-wire", "xpu-model", "xpu-recording"},
    "xpu-net": {"xpu-wire"},
    "xpu-hook": {"xpu-wire"},
    "xpu-collector": {"xpu-net", "xpu-wire", "xpu-model", "xpu-recording"},
    "xpu-client": {"xpu-net", "xpu-wire", "xpu-model", "xpu-recording"},
    "xpu-tui": {"xpu-client", "xpu-wire", "xpu-model", "xpu-recording", "xpu-analysis"},
    "xpu-top": {"xpu-tui", "xpu-client", "xpu-net", "xpu-wire", "xpu-model", "xpu-recording", "xpu-analysis"},
}

# Crates that do not come with it, whatever uses them.
WITHOUT = {
    # Nothing of these comes into the training process.
    "xpu-hook": ("zmq", "zstd", "demangle"),
    # The screen reads no command line and no Parquet, and starts no GPU library.
    "xpu-tui": ("clap", "parquet", "cudarc"),
    # What has no screen draws nothing.
    "xpu-client": ("ratatui", "crossterm", "clap"),
    "xpu-analysis": ("ratatui", "crossterm", "clap", "zmq"),
}


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
    for crate, refused in WITHOUT.items():
        seen, left = set(), [crate]
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                left.extend(uses[one])
        wrong += [f"{crate} links {one}" for one in sorted(seen) if any(word in one for word in refused)]
    for line in wrong:
        print(line)
    return bool(wrong)


sys.exit(main())
