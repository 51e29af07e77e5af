"""``make bench``: print every figure with its yardstick and its bar; exit with 1 if a bar is missed.

``python -m benchmarks accounting ingest`` runs only those, and ``pages:first,views`` two parts of the pages.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.harness import HEADER

PARTS = (
    "startup",
    "accounting",
    "late_rank_causes",
    "packets",
    "ingest",
    "bucket_ingest",
    "pages",
    "notebook",
    "kair",
    "stacks",
    "traces",
)


def main(parts: list[str]) -> int:
    print(HEADER)
    missed = 0
    for part in parts or PARTS:
        name, _, parts_of_it = part.partition(":")
        wanted = parts_of_it.split(",") if parts_of_it else []
        for result in importlib.import_module(f"benchmarks.{name}").run(*wanted):
            print(result.line(), flush=True)
            missed += not result.holds
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
