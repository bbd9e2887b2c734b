"""The shape of the source tree in numbers, for docs/measurements-log.md. A person runs it:

python3 tests/shape.py                       this checkout
python3 tests/shape.py CHECKOUT [--cycles]   another one; with each cycle

Counts the files in git, without net/zmq-sys. "Tests aside" leaves out the stand-ins (`simgpu`), the folders `tests`,
`benches`, `examples` and `fuzz_targets`, files named `tests.rs` or `*_tests.rs`, and items with `#[cfg(test)]`, whose
lines do not count in a file's length.

A cycle is a pair of sibling modules that use each other: a path (`use` or not) that begins with `crate`, `super` or
`self` leads from one, or a module inside it, into the other, and likewise back. Paths inside macros and items that a
parent exports again are not followed, so there may be more.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TEST_FOLDERS = {"tests", "benches", "examples", "fuzz_targets", "simgpu"}
STRING_OR_COMMENT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|"(?:[^"\\]|\\.)*"|'(?:[^'\\\n]|\\[^\n]{1,9})'""", re.S
)
CFG_TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*")
ITEM = re.compile(
    r"(?:pub\b(?:\([^)]*\))? ?)?(?:unsafe |async |const |extern )*(?:fn|impl|mod|use|struct|enum|static|type)\b"
)
TEST_FILE = re.compile(r"(?:pub(?:\([^)]*\))? )?mod (\w+);")
PUBLIC = re.compile(
    r"^\s*pub (?:unsafe |async |const |extern )*(?:fn|struct|enum|union|trait|type|const|static|mod|use)\b", re.M
)
PATH = re.compile(r"\b(?:crate|super|self)\s*::\s*[\w:{]")
WORD = re.compile(r"::|\w+|[{},*;()]|\S")


def end_of_item(code, at):
    """The end of the item that begins at `at`: its `;` or closing brace; of a field or a variant, its `,`."""
    depth, ends = 0, ";}" if ITEM.match(code, at) else ";,}"
    for end in range(at, len(code)):
        letter = code[end]
        depth += (letter in "{([") - (letter in "})]")
        if depth < 0:
            return end
        if depth == 0 and letter in ends:
            return end + 1
    return len(code)


def without_tests(text):
    """The code without comments, strings and items of tests; its lines as they are in the file; and the modules that
    are only tests."""
    code = STRING_OR_COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    tests, cut, at = set(), set(), 0
    while found := CFG_TEST.search(code, at):
        end = end_of_item(code, found.end())
        if file := TEST_FILE.match(code, found.end()):
            tests.add(file[1])
        cut |= set(range(code.count("\n", 0, found.start()), code.count("\n", 0, end) + 1))
        code = code[: found.start()] + re.sub(r"[^\n]", " ", code[found.start() : end]) + code[end:]
        at = end
    return code, len(text.splitlines()) - len(cut), tests


def paths(code):
    """The paths in the code that begin with `crate`, `super` or `self`, with braces expanded."""
    for found in PATH.finditer(code):
        open_groups, path, begins = [], [], True
        for word in WORD.finditer(code, found.start()):
            word = word[0]
            if word == "::":
                begins = True
            elif word == "{" and begins:
                open_groups.append(list(path))
            elif open_groups and word in {",", "}"}:
                yield path
                path, begins = list(open_groups[-1]), True
                if word == "}":
                    open_groups.pop()
                if not open_groups:
                    break
            elif re.match(r"\w", word) and begins:
                path, begins = [*path, word], False
            elif not open_groups:
                yield path
                break


def modules(files, folder):
    """The module of each file below this `src`, as its path in the crate."""
    named = {}
    for file in files:
        parts = Path(file).relative_to(folder).with_suffix("").parts
        if parts[-1] == "mod" or parts in {("lib",), ("main",)}:
            parts = parts[:-1]
        named[file] = parts
    return named


def reached(path, module, known):
    """The module that a path in `module` leads to."""
    here = () if path[0] == "crate" else module
    for word in path[1:] if path[0] in {"crate", "self"} else path:
        if word == "super":
            here = here[:-1]
        elif word == "self":
            continue
        elif (*here, word) in known:
            here = (*here, word)
        else:
            break
    return here


def mutual(named, codes):
    """The pairs of sibling modules that use each other."""
    known, edges = set(named.values()), set()
    for file, module in named.items():
        for path in paths(codes[file]):
            to = reached(path, module, known)
            same = next((at for at, (a, b) in enumerate(zip(module, to, strict=False)) if a != b), None)
            if same is not None:
                edges.add((module[: same + 1], to[: same + 1]))
    return {(a, b) for a, b in edges if a < b and (b, a) in edges}


def main():
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    root = Path(given[0] if given else Path(__file__).parent.parent).resolve()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [file for file in listed.split("\0") if file and not file.startswith("net/zmq-sys/")]
    rust = [file for file in files if file.endswith(".rs")]
    texts = {file: (root / file).read_text(encoding="utf-8") for file in rust}
    codes, lengths, only_tests = {}, {}, set()
    for file, text in texts.items():
        codes[file], lengths[file], names = without_tests(text)
        parent = Path(file).parent
        inside = parent if Path(file).stem in {"lib", "main", "mod"} else parent / Path(file).stem
        only_tests |= {str(inside / name) for name in names}

    def is_test(file):
        path = Path(file)
        named = path.stem == "tests" or path.stem.endswith("_tests")
        below = [str(path.with_suffix("")), *map(str, path.parents)]
        return named or TEST_FOLDERS & set(path.parts) or only_tests & set(below)

    source = [file for file in rust if not is_test(file)]
    crates = [str(Path(file).parent) for file in files if Path(file).name == "Cargo.toml" and "/" in file]
    print("crate: files at the top of src, files, cycles (tests aside)")
    total = 0
    for crate in sorted(crates):
        own = [file for file in source if file.startswith(f"{crate}/src/")]
        if not own:
            continue
        pairs = mutual(modules(own, f"{crate}/src"), codes)
        total += len(pairs)
        top = sum(Path(file).parent == Path(crate, "src") for file in own)
        print(f"  {crate}: {top}, {len(own)}, {len(pairs)}")
        if "--cycles" in sys.argv:
            print("".join(f"    {'::'.join(a)} - {'::'.join(b)}\n" for a, b in sorted(pairs)), end="")
    print(f"cycles in all crates: {total}")
    longest = Counter({file: lengths[file] for file in source}).most_common(5)
    print("largest source files, tests aside:", *(f"\n  {lines} {file}" for file, lines in longest))
    print(f"source files over 300 lines: {sum(lengths[file] > 300 for file in source)} of {len(source)}")
    print(f"public items: {sum(len(PUBLIC.findall(codes[file])) for file in source)}")
    lines = sum(len(text.splitlines()) for text in texts.values())
    print(f"lines of Rust: {lines}; tests aside {sum(lengths[file] for file in source)}")
    print(f"words of the README: {len((root / 'README.md').read_text(encoding='utf-8').split())}")


if __name__ == "__main__":
    main()
