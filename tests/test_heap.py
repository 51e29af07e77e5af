"""Memory of servers and of tasks: what is freed goes back to the system, or is used again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MESSAGES = """
import os, sys
from sfapp.heap import bound_heaps, return_freed_memory

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


NEW_ONLY = """
import gc, weakref
from sfapp.heap import exempt_present_objects

class Page:
    pass

before = len(gc.get_objects())
exempt_present_objects()
looked_at = len(gc.get_objects())
page = Page()
page.own, gone = page, weakref.ref(page)
del page
gc.collect()
print(before, looked_at, gone() is None)
"""


def test_collections_look_only_at_objects_made_since_the_start() -> None:
    result = subprocess.run([sys.executable, "-c", NEW_ONLY], capture_output=True, check=True, text=True)
    before, looked_at, is_collected = result.stdout.split()
    assert int(looked_at) < int(before) / 10
    assert is_collected == "True"


TASK = """
import resource, sys
from contextlib import nullcontext
from sfapp.heap import keep_freed_memory

size = 1 << 20

def cleared_pages() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        b"a" * size
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = cleared_pages()
with keep_freed_memory():
    inside = cleared_pages()
print(before, inside, cleared_pages())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other C libraries")
@pytest.mark.parametrize("trimmed", ["65536", ""], ids=["worker of Dask", "other process"])
def test_a_task_uses_freed_memory_again_and_then_leaves_its_worker_as_it_was(trimmed: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    if trimmed:
        environ["MALLOC_TRIM_THRESHOLD_"] = trimmed
    result = subprocess.run([sys.executable, "-c", TASK], capture_output=True, check=True, env=environ)
    before, inside, after = map(int, result.stdout.split())
    assert inside < 2_000  # less than a tenth of the pages of 100 buffers of 1 MiB
    assert (before > 20_000) == (after > 20_000) == bool(trimmed)


ALLOCATOR = """
import sys
from pathlib import Path
from sfapp.cli.serve import serve_from

def show(options) -> None:
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)
    sys.exit()

serve_from(Path(sys.argv[1]), show, print)
"""


def test_a_server_reads_packets_into_the_heaps_that_are_returned(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ALLOCATOR, str(tmp_path)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ARROW_")}
    result = subprocess.run(command, capture_output=True, check=True, text=True, env=environ)
    assert result.stdout == "system\n"
