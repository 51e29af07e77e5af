"""From a trace to operator events beside the packets: another process does it, at the lowest priority.

Reading a trace takes seconds of Python, which in this process would be training's. The other process is
bounded in time and memory; where it fails, the trace itself is kept.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfapp.files import atomic_writer
from sfapp.model.capture import CaptureRequest
from sfapp.packets.job import JobRank
from sfapp.recorder.capture.profiler import Profiling

CONVERT_SECONDS = 120.0
"""How long a trace may take to be read; a large model's hundred megabytes take ten seconds."""

FREE_BYTES = 1 << 30
"""Bytes that must be free on the disk for temporary files before a capture begins."""

_COMMAND = (sys.executable, "-m", "sfapp.importers.capture_converter")
_PIECE = 1 << 20
_LOOK_SECONDS = 0.05


@dataclass(slots=True, eq=False)
class Captured:
    """Steps that were profiled, not yet written down.

    Attributes:
        team: the rank's, when it was profiled.
        why: why there are fewer steps than asked for.
    """

    request: CaptureRequest
    profiling: Profiling
    team: JobRank
    why: str = ""


@dataclass(frozen=True, slots=True)
class Converted:
    """What came of a trace.

    Attributes:
        events: operator events that were written; 0 where it failed.
        trace_bytes: size of the trace.
        why: what went wrong.
    """

    events: int = 0
    trace_bytes: int = 0
    why: str = ""


class Ring:
    """A few captures that wait to be written down; one more than it holds is dropped."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[Captured] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, captured: Captured) -> bool:
        """Hand one over; False if there is no room."""
        if len(self._waiting) >= self._room:
            return False
        self._waiting.append(captured)
        return True

    def take(self) -> Captured | None:
        """The oldest, None where there is none."""
        return self._waiting.popleft() if self._waiting else None


class Converter:
    """Writes captures down, one at a time. ``hurry`` may be called from any thread."""

    def __init__(self) -> None:
        self._until = float("inf")
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def hurry(self, seconds: float) -> None:
        """What is under way may take so long still."""
        with self._lock:
            self._until = min(self._until, time.monotonic() + seconds)
            if seconds <= 0 and self._child is not None:
                self._child.kill()

    def convert(self, captured: Captured, root: Path, folder: Path) -> Converted:
        """Write the events of a capture next to the packets.

        Args:
            root: the folder for packets.
            folder: for the trace meanwhile: on this machine, for writing it holds up Python.
        """
        raw = folder / "trace.json"
        captured.profiling.export(str(raw))
        size = raw.stat().st_size
        said = self._read(captured, root, raw)
        if not said.get("why"):
            return Converted(int(said["events"]), size)
        kept = self._keep(captured, root, raw)
        return Converted(0, size, f"{said['why']}; {kept}"[:300])

    def _read(self, captured: Captured, root: Path, raw: Path) -> dict[str, Any]:
        """What the other process says."""
        from sfapp.packets.process_priority import lowest_priority

        order = {
            "trace": str(raw),
            "root": str(root.absolute()),
            "run_id": captured.team.job.run_id,
            "rank": captured.team.identity.rank,
            "window_of": list(captured.profiling.window_of.items()),
        }
        with self._lock:
            limit = min(time.monotonic() + CONVERT_SECONDS, self._until)
            if limit <= time.monotonic():
                return {"why": "the job ended before its trace was read"}
            child = self._child = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(os.environ),
            )
        try:
            lowest_priority(child.pid)
            return self._answer(child, json.dumps(order).encode())
        finally:
            with self._lock:
                self._child = None
            child.kill()
            child.wait()

    def _answer(self, child: subprocess.Popen[bytes], order: bytes) -> dict[str, Any]:
        begin = time.monotonic()
        more: bytes | None = order
        with child:
            while True:
                try:
                    said, complained = child.communicate(more, timeout=_LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    more = None
                if time.monotonic() > min(begin + CONVERT_SECONDS, self._until):
                    child.kill()
                    return {"why": "the trace took too long to read"}
        try:
            answer = json.loads(said)
        except ValueError:
            last = complained.decode(errors="replace").strip().rpartition("\n")[2][:200]
            return {"why": f"what reads the trace ended with {child.returncode}: {last}"}
        return answer if isinstance(answer, dict) else {"why": "what reads the trace said nothing"}

    def _keep(self, captured: Captured, root: Path, raw: Path) -> str:
        """Leave the trace itself beside the packet of its first window; says where."""
        from sfapp.packets.captures import trace_path

        window = next(iter(captured.profiling.window_of.values()))
        path = trace_path(root, captured.team.job.run_id, window, captured.team.identity.rank)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                raw.open("rb") as source,
                atomic_writer(path, sync=False) as file,
                gzip.open(file, "wb", compresslevel=1) as target,
            ):
                while piece := source.read(_PIECE):
                    if time.monotonic() >= self._until + 1.0:
                        raise TimeoutError("the trace was too large to keep")
                    target.write(piece)
        except TimeoutError as error:
            return str(error)
        except OSError as error:
            return f"the trace could not be kept: {error.strerror or error}"
        return f"its trace is {path.name}"


def free_bytes(folder: Path) -> int:
    """Bytes that are free where a folder is."""
    return shutil.disk_usage(folder).free


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For a process that must not touch devices, nor take more than a core."""
    return {**environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
