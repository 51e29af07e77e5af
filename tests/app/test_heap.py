"""Memory of a server: what is freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

MESSAGES = """
import os, sys
from sfapp.app.heap import bound_heaps, return_freed_memory

def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

bound_heaps()
bytes(1 << 20)  # the first free of a large buffer raises glibc's threshold
before, kept = resident(), []
messages = []
for _ in range(200):  # a message of a page, and a small object that stays
    messages.append(b"a" * (512 << 10))
    kept.append(os.urandom(2_000))
messages.clear()
if sys.argv[1] == "returned":
    return_freed_memory()
print((resident() - before) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other C libraries")
def test_buffers_between_objects_that_stay_are_returned_to_the_system() -> None:
    def left(how: str) -> int:
        result = subprocess.run([sys.executable, "-c", MESSAGES, how], capture_output=True, check=True)
        return int(result.stdout)

    assert left("returned") < 10 < 50 < left("kept")
