"""Which crate may use which: compares the table and the picture of docs/architecture.md with `cargo metadata`. Also
checks that no crate includes another crate's files, except that tests may include pages of docs.

python3 tests/arrows.py           prints what is wrong
python3 tests/arrows.py --draw    draws the picture again
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/architecture.md"

# Crates that a crate may not depend on, not even indirectly.
WITHOUT = {
    # None of these may be in the training process.
    "hook": ("zmq", "zstd", "demangle"),
    # The screen reads no command line and no Parquet file, and starts no GPU library.
    "tui": ("clap", "parquet", "cudarc"),
    # A program without a screen draws nothing.
    "client": ("ratatui", "crossterm", "clap"),
    "analysis": ("ratatui", "crossterm", "clap", "zmq"),
}

# A row of the table: `folder` or `folder/{one,two}`, what it is, and the crates that it may use.
ROW = re.compile(r"^\| `([^`{]+)(?:\{([^`}]+)\})?` \|.*\|(.*)\|$", re.M)
PICTURE = re.compile(r"(?<=^```mermaid\n)[^`]*", re.M)
INCLUDED = re.compile(r'include_(?:str|bytes)!\("([^"]+)"\)|#\[path = "([^"]+)"\]')


def table(page):
    """The crates that each crate may use, by folder."""
    crates = {}
    for folder, names, uses in ROW.findall(page):
        for name in names.split(","):
            crates[folder + name] = set(re.findall("`([^`]+)`", uses))
    return crates


def picture(uses):
    """An arrow from each crate to each crate that it uses, except where a path of other arrows leads there. Crates
    with the same arrows share a line."""

    def reached(crate):
        return uses[crate].union(*map(reached, uses[crate]))

    lines = {}
    for crate, used in uses.items():
        arrows = used.difference(*map(reached, used))
        lines.setdefault(" & ".join(sorted(arrows)), []).append(crate)
    drawn = ["graph TD"]
    for arrows, crates in lines.items():
        drawn += [f"    {' & '.join(sorted(crates))} --> {arrows}"] if arrows else [f"    {one}" for one in crates]
    return "\n".join(drawn) + "\n"


def linked(dependencies, package):
    """All packages that end up in `package`."""
    seen, left = set(), [package]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left.extend(dependencies[one])
    return seen


def foreign_files(packages):
    """Files outside its folder that a crate includes."""
    for package in packages:
        folder = Path(package["manifest_path"]).parent
        for source in sorted((folder / "src").rglob("*.rs")):
            for names in INCLUDED.findall(source.read_text(encoding="utf-8")):
                included = (source.parent / "".join(names)).resolve()
                if not included.is_relative_to(folder) and not included.is_relative_to(ROOT / "docs"):
                    yield f"{source.relative_to(ROOT)} includes {included.relative_to(ROOT)}, of another crate"


def main():
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--offline"]
    # Crates of other platforms need not have been downloaded.
    command += ["--filter-platform", "host-tuple"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    local = [package for package in metadata["packages"] if package["source"] is None]
    folders = {package["id"]: Path(package["manifest_path"]).parent.relative_to(ROOT) for package in local}
    members = {id: folders[id].name for id in metadata["workspace_members"]}
    dependencies = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    uses = {crate: {members[one] for one in dependencies[id] if one in members} for id, crate in members.items()}

    page = PAGE.read_text(encoding="utf-8")
    drawn = PICTURE.sub(lambda _: picture(uses), page)
    if "--draw" in sys.argv:
        PAGE.write_text(drawn, encoding="utf-8")
        page = drawn

    may_use = table(page)
    listed, present = set(may_use), {str(folders[id]) for id in members}
    wrong = [f"{folder} is not in the table of {PAGE.name}" for folder in sorted(present - listed)]
    wrong += [f"{folder}, in the table of {PAGE.name}, is no crate" for folder in sorted(listed - present)]
    may_use = {Path(folder).name: names for folder, names in may_use.items()}
    wrong += [
        f"{crate} uses {other}, which the table of {PAGE.name} does not allow"
        for crate, used in uses.items()
        for other in sorted(used - may_use.get(crate, used))
    ]
    if not PICTURE.search(page) or page != drawn:
        wrong.append(f"the picture of {PAGE.name} differs: python3 tests/arrows.py --draw")
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    for id, crate in members.items():
        found = sorted(names[one] for one in linked(dependencies, id))
        wrong += [f"{crate} links {one}" for one in found if any(word in one for word in WITHOUT.get(crate, ()))]
    wrong += foreign_files(local)
    for line in wrong:
        print(line)
    return bool(wrong)


sys.exit(main())
