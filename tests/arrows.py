"""Which crate may use which: compares the table and the picture of docs/architecture.md with `cargo metadata`. Also
checks that no crate includes another crate's files, in sources, tests, examples and benches, except pages of docs and
what INCLUDES lists; and that dev-dependencies follow the table too, except what DEV_USES lists.

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

# Files of another crate that a crate includes, and why.
INCLUDES = {
    # A test of the lock-free code runs the sources unchanged, with loom's atomics in place of the real ones.
    "tests/models/main.rs": ".",
    # The bench measures the hook's ring itself. The hook is a cdylib, which no crate can use as a library.
    "tests/bench/main.rs": "hook/src/observe",
    # A test of the collector notes what it skips in the same way as the end-to-end tests do. It does not use their
    # crate, which depends on the whole product.
    "collector/tests/strangers.rs": "tests/lab/skip.rs",
    # The scenarios, and a crowd of hosts with a history, run the collector's own code, for which Cargo builds them as
    # its examples.
    "collector/Cargo.toml": "tests",
    # The same timeline without the runtime's exports: for processes that load no shared CUDA runtime.
    "simgpu/timeline/Cargo.toml": "simgpu/cudart/src/lib.rs",
}

# Crates that the tests of every crate may use.
FOR_TESTS = {"simulation"}

# Other crates that only the tests of a crate use, and why.
DEV_USES = {
    # Findings are tested with recordings of real jobs.
    "model": {"recording"},
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


def included_files(folder, targets, others):
    """Each file that a crate's sources and manifest name, with the file that names it. Crates in `others`, folders
    below this one, are left out."""
    for source in sorted(folder.rglob("*.rs")):
        if "target" in source.parts or any(source.is_relative_to(other) for other in others):
            continue
        for names in INCLUDED.findall(source.read_text(encoding="utf-8")):
            yield source, (source.parent / "".join(names)).resolve()
    for target in targets:
        yield folder / "Cargo.toml", Path(target["src_path"]).resolve()


def foreign_files(packages):
    """Files outside its folder that a crate includes, and rows of INCLUDES that nothing needs."""
    folders = {Path(package["manifest_path"]).parent for package in packages}
    needed = set()
    for package in packages:
        folder = Path(package["manifest_path"]).parent
        others = {other for other in folders if other != folder and other.is_relative_to(folder)}
        for source, included in included_files(folder, package["targets"], others):
            if included.is_relative_to(folder) or included.is_relative_to(ROOT / "docs"):
                continue
            name = str(source.relative_to(ROOT))
            if name in INCLUDES and included.is_relative_to(ROOT / INCLUDES[name]):
                needed.add(name)
            else:
                yield f"{name} includes {included.relative_to(ROOT)}, of another crate"
    for name in sorted(INCLUDES.keys() - needed):
        yield f"{name} includes no file of another crate: remove it from INCLUDES"


def main():
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--offline"]
    # Crates of other platforms need not have been downloaded.
    command += ["--filter-platform", "host-tuple"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    local = [package for package in metadata["packages"] if package["source"] is None]
    folders = {package["id"]: Path(package["manifest_path"]).parent.relative_to(ROOT) for package in local}
    members = {id: folders[id].name for id in metadata["workspace_members"]}

    def of_kind(wanted):
        return {
            node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] in wanted for kind in dep["dep_kinds"])]
            for node in metadata["resolve"]["nodes"]
        }

    dependencies, for_tests = of_kind({None}), of_kind({"dev", "build"})
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
    wrong += [
        f"the tests or build.rs of {members[id]} use {members[other]}, which the table of {PAGE.name} does not allow"
        for id in members
        for other in sorted(for_tests[id])
        if members.get(other) not in {None, *FOR_TESTS, *may_use.get(members[id], ()), *DEV_USES.get(members[id], ())}
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
