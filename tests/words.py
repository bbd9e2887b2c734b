"""Finds private words, which must not return: names use the terms of docs/glossary.md.

`make lint` runs this. Prints each place, and exits with 1 if there is any. Identifiers are checked in Rust and Python,
in lower and upper case.

Exceptions that stay, because programs and files of users have these names: in `status --json` and filters
`lateness_ms_p50` (arrival skew, median), `late` and `joined_pct` (share of matched collectives), the metric
`xpu_top_lateness_seconds` with its constant `LATENESS`, and the prefix `.told-` of marker files in the folder of hangs.
They contain none of the words below as a whole name.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The history, and this list itself.
EXCLUDED = {"CHANGELOG.md", "tests/words.py"}
BINARY = {".bin", ".cast", ".lock", ".png", ".svg", ".xpurec"}

# Parts of names (`a_b`, `aB`), and words in sentences.
WORDS = """
beat beats bore course errand errands librarian portrait portraits projector projectors punctuality reel rhythm road
roads shelf sieve spoken stretch stretches survey tape theatre wings
""".split()
NAMES = """
is_at_it last_words LastWords off_the_door cut_piece flush_left flush_right tell_kept tell_unreachable told_apart
""".split()

# Not allowed as names in code, in any case (`odd`, `Odd`, `ODD`). In sentences ("no room for it", "an odd number")
# they are plain English.
IN_CODE = "room rooms ways odd volume told standstill meeting attendance".split()

# Phrases for which the field has a term.
PHRASES = [
    "ranks that are so",
    "for want of memory",
    "products run at",
    "to blame",
    "has stood for",
    "come to a standstill",
]

# In comments, these words must be read twice. Use "reports", "shows", "distinguishes", "this many".
RIDDLES = re.compile(r"\b([Tt]old|[Tt]ells|[Ss]o many)\b")
COMMENT = {".rs": r"//.*", ".py": r"#.*", ".c": r"(?://|/?\*).*", ".h": r"(?://|/?\*).*"}

# A function reports, shows, lists, exposes or sends something; a value is reported, known, shown or read.
TELLING = re.compile(r"\b(?:fn|def) ((?:told|tells?)(?:_\w+)?)\b")

ORDINARY = re.compile(r"\bof course\b|[hH]eartbeat|next-odd")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
RUST_TEXT = re.compile(r'//.*|"(?:[^"\\]|\\.)*"|\'[a-z_]+\b(?!\')')
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def code_of(path: str, text: str) -> list[str]:
    """The lines of a Rust or Python file without comments and texts. Of other files, empty lines."""
    lines = text.splitlines()
    if path.endswith(".rs"):
        return [RUST_TEXT.sub("", line) for line in lines]
    code = [""] * len(lines)
    if path.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                code[token.start[0] - 1] += f"{token.string} "
    return code


def faults(path: str, line: str, code: str):
    """The faults of one line, of which `code` is the code."""
    rest = ORDINARY.sub("", line)
    parts = {part.lower() for part in PART.findall(rest)}
    yield from (word for word in WORDS if word in parts)
    yield from (name for name in NAMES if re.search(rf"(?<!\w){name}(?!\w)", rest))
    yield from (phrase for phrase in PHRASES if phrase in rest)
    yield from (name for name in IDENTIFIER.findall(code) if name.lower() in IN_CODE)
    yield from TELLING.findall(code)
    comment = COMMENT.get(Path(path).suffix)
    if comment and (found := re.search(comment, QUOTED.sub("", rest))):
        yield from RIDDLES.findall(found[0])


def main() -> int:
    """Prints all faults. Returns the exit code."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = 0
    for path in filter(None, listed.split("\0")):
        file = ROOT / path
        if path in EXCLUDED or file.suffix in BINARY or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        for number, (line, code) in enumerate(zip(text.splitlines(), code_of(path, text), strict=True), 1):
            for word in faults(path, line, code):
                print(f"{path}:{number}: `{word}`: {line.strip()[:100]}")
                found += 1
    if found:
        print(f"{found} private words: docs/glossary.md has the terms", file=sys.stderr)
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
