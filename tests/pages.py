"""Checks the pages in Markdown: prose ends at 110 columns, each link leads to a file and a heading of this repository,
and each source file that is named exists.

`make lint` runs this. Prints each place, and exits with 1 if there is any.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 110
# Such a line cannot be wrapped: a table, code, a heading, a picture, or a single long word such as an address.
FIXED = re.compile(r"\||    |#|!\[|([-*] |  )?\S+$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`([\w-]+/[\w./-]+\.(?:rs|py|js))`")
# Their sections are dated.
DATED = {"CHANGELOG.md", "measurements-log.md"}
TOP = {path.name for path in ROOT.iterdir() if path.is_dir()}


def prose(text):
    """The numbered lines outside of fences."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them: equal ones are numbered."""
    seen = Counter()
    for _, line in prose(page.read_text(encoding="utf-8")):
        if re.match("#+ ", line):
            anchor = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
            yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
            seen[anchor] += 1


def faults(page):
    """The faults of one page, with their line numbers."""
    for number, line in prose(page.read_text(encoding="utf-8")):
        if len(line) > WIDTH and not FIXED.match(line):
            yield number, f"{len(line)} columns"
        for link in LINK.findall(line):
            file, _, heading = link.partition("#")
            target = page.parent / file if file else page
            if re.match(r"\w+:", link):
                continue
            if not target.exists():
                yield number, f"{file} does not exist"
            elif heading and target.suffix == ".md" and heading not in anchors(target):
                yield number, f"{link}: there is no such heading"
        for source in () if page.name in DATED else SOURCE.findall(line):
            if source.split("/")[0] in TOP and not (ROOT / source).exists():
                yield number, f"{source} does not exist"


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    wrong = [
        f"{path}:{number}: {fault}"
        for path in filter(None, listed.stdout.split("\0"))
        if (ROOT / path).is_file()
        for number, fault in faults(ROOT / path)
    ]
    for line in wrong:
        print(line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
