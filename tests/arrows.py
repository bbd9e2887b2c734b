"""Which crate may use which: compares docs/architecture.md with `cargo metadata`. Also, no crate may include another
crate's files, except that tests may include pages of docs.

python3 tests/arrows.py
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

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

# Crates that a crate may not depend on, not even indirectly.
WITHOUT = {
    # None of these may be in the training process.
    "xpu-hook": ("zmq", "zstd", "demangle"),
    # The screen reads no command line and no Parquet file, and starts no GPU library.
    "xpu-tui": ("clap", "parquet", "cudarc"),
    # A program without a screen draws nothing.
    "xpu-client": ("ratatui", "crossterm", "clap"),
    "xpu-analysis": ("ratatui", "crossterm", "clap", "zmq"),
}


INCLUDED = re.compile(r'include_(?:str|bytes)!\("([^"]+)"\)|#\[path = "([^"]+)"\]')


def foreign_files(packages):
    """Files outside its folder that a crate includes."""
    root = Path(__file__).resolve().parent.parent
    for package in packages:
        folder = Path(package["manifest_path"]).parent
        for source in sorted((folder / "src").rglob("*.rs")):
            for names in INCLUDED.findall(source.read_text(encoding="utf-8")):
                included = (source.parent / "".join(names)).resolve()
                if not included.is_relative_to(folder) and not included.is_relative_to(root / "docs"):
                    yield f"{source.relative_to(root)} includes {included.relative_to(root)}, of another crate"


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
    wrong += foreign_files(package for package in metadata["packages"] if package["source"] is None)
    for line in wrong:
        print(line)
    return bool(wrong)


sys.exit(main())
