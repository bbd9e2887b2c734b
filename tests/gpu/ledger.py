"""Prints one line per status document: the ledger's content for the requested rank.

ledger.py FILE...
"""

import json
import sys

for path in sys.argv[1:]:
    with open(path) as file:
        text = file.read()
    for rank in json.loads(text)["ranks"] if text.strip() else []:
        for line in rank.get("communicators", []):
            counts = {key: line[key] for key in ("size", "entered", "enqueued", "completed", "last_operation")}
            print(path.rsplit("/", 1)[-1], f"rank {rank['rank']} {rank['state']}", counts, rank.get("inside", []))
