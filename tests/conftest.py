"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Tests build windows with tests/builders.py wherever pytest was started from.
sys.path.insert(0, str(Path(__file__).parent))

# PyTorch would look for plug-ins among all installed packages, in each process that imports it.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

# A shell ignores Ctrl-C in what it starts in the background, and nohup the end of its terminal; and so would
# every process of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Every run tries the same examples; random ones are for `make fuzz`.
settings.register_profile("sfapp", max_examples=50, deadline=None, derandomize=True, print_blob=True)
settings.load_profile("sfapp")


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files and folders that were flushed to disk, in order."""
    flush, found = os.fsync, list[str]()

    def noting_fsync(descriptor: int) -> None:
        flush(descriptor)
        found.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", noting_fsync)
    return found


def pytest_collection_finish() -> None:
    """Exempt what has been imported from garbage collection.

    Each simulation of NiceGUI collects garbage twice, which takes half a second if all modules' objects are
    looked at.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Release the constants of DuckDB's modules.

    NiceGUI's simulations outlive the tests and keep modules alive that Python would otherwise clear at exit;
    nanobind then prints a page on every constant of DuckDB. All connections are closed by now.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] in ("duckdb", "_duckdb")]:
        vars(sys.modules[name]).clear()
