"""Convert a trace into operator events next to the packets, in a child process of the lowest priority.

Parsing a trace takes seconds of Python, which would slow training in this process. The child process is
bounded in time and memory; if it fails, the trace itself is kept.
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

from sfapp.files import atomic_writer, open_regular
from sfapp.model.capture import CaptureRequest
from sfapp.packets.job import JobRank
from sfapp.recorder.capture.profiler import Profiling

CONVERT_SECONDS = 120.0
"""Time limit for parsing a trace; the hundred megabytes of a large model take ten seconds."""

FREE_BYTES = 1 << 30
"""Bytes that must be free on the disk for temporary files before a capture begins."""

# -P keeps modules in the working directory from being imported.
_COMMAND = (sys.executable, "-P", "-m", "sfapp.importers.capture_converter")
_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.05


@dataclass(slots=True, eq=False)
class ProfiledSteps:
    """Profiled steps that have not been written yet.

    Attributes:
        rank: the rank when it was profiled.
        why: reason for fewer steps than requested; empty if all were profiled.
    """

    request: CaptureRequest
    profiling: Profiling
    rank: JobRank
    why: str = ""


@dataclass(frozen=True, slots=True)
class ConvertedTrace:
    """Result of converting a trace.

    Attributes:
        events: number of operator events written; 0 if the conversion failed.
        trace_bytes: size of the trace.
        why: reason of the failure; empty without one.
    """

    events: int = 0
    trace_bytes: int = 0
    why: str = ""


class CaptureQueue:
    """Bounded queue of profiled steps that wait to be written; a full queue rejects more."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[ProfiledSteps] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, profiled: ProfiledSteps) -> bool:
        """Append an item; return False if the queue is full."""
        if len(self._waiting) >= self._capacity:
            return False
        self._waiting.append(profiled)
        return True

    def take(self) -> ProfiledSteps | None:
        """Remove and return the oldest item; None if the queue is empty."""
        return self._waiting.popleft() if self._waiting else None


class TraceConverter:
    """Writer of profiled steps, one capture at a time. ``limit_time`` may be called from any thread."""

    def __init__(self) -> None:
        self._deadline = float("inf")
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def limit_time(self, seconds: float) -> None:
        """Limit the remaining time of the current conversion; 0 ends it at once."""
        with self._lock:
            self._deadline = min(self._deadline, time.monotonic() + seconds)
            if seconds <= 0 and self._child is not None:
                self._child.kill()

    def convert(self, profiled: ProfiledSteps, root: Path, folder: Path) -> ConvertedTrace:
        """Write the events of a capture next to the packets.

        Args:
            root: the folder for packets.
            folder: temporary folder for the trace, on this machine, because writing the trace blocks Python.
        """
        raw = folder / "trace.json"
        profiled.profiling.export(str(raw))
        size = raw.stat().st_size
        answer = self._convert_in_child(profiled, root, raw)
        if not answer.get("why"):
            return ConvertedTrace(int(answer["events"]), size)
        kept = self._keep(profiled, root, raw)
        return ConvertedTrace(0, size, f"{answer['why']}; {kept}"[:300])

    def _convert_in_child(self, profiled: ProfiledSteps, root: Path, raw: Path) -> dict[str, Any]:
        """Convert the trace in a child process and return its answer."""
        from sfapp.packets.process_priority import lowest_priority

        request = {
            "trace": str(raw),
            "root": str(root.absolute()),
            "run_id": profiled.rank.job.run_id,
            "rank": profiled.rank.identity.rank,
            "window_of": list(profiled.profiling.window_of.items()),
        }
        with self._lock:
            limit = min(time.monotonic() + CONVERT_SECONDS, self._deadline)
            if limit <= time.monotonic():
                return {"why": "the job ended before the trace was converted"}
            child = self._child = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(os.environ),
            )
        try:
            lowest_priority(child.pid)
            return self._communicate(child, json.dumps(request).encode())
        finally:
            with self._lock:
                self._child = None
            child.kill()
            child.wait()

    def _communicate(self, child: subprocess.Popen[bytes], request: bytes) -> dict[str, Any]:
        begin = time.monotonic()
        pending: bytes | None = request
        with child:
            while True:
                try:
                    output, errors = child.communicate(pending, timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    pending = None
                if time.monotonic() > min(begin + CONVERT_SECONDS, self._deadline):
                    child.kill()
                    return {"why": "the trace took too long to convert"}
        try:
            answer = json.loads(output)
        except ValueError:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2][:200]
            return {"why": f"the trace converter exited with code {child.returncode}: {last}"}
        return answer if isinstance(answer, dict) else {"why": "the trace converter returned no result"}

    def _keep(self, profiled: ProfiledSteps, root: Path, raw: Path) -> str:
        """Write the trace itself next to the packet of its first window, and return a message with its
        name."""
        from sfapp.packets.captures import trace_path

        window = next(iter(profiled.profiling.window_of.values()))
        path = trace_path(root, profiled.rank.job.run_id, window, profiled.rank.identity.rank)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                open_regular(raw) as source,
                atomic_writer(path, sync=False) as file,
                gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as target,
            ):
                while chunk := source.read(_CHUNK_BYTES):
                    if time.monotonic() >= self._deadline + 1.0:
                        raise TimeoutError("the trace was too large to keep")
                    target.write(chunk)
        except TimeoutError as error:
            return str(error)
        except OSError as error:
            return f"the trace could not be kept: {error.strerror or error}"
        return f"its trace is {path.name}"


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk that holds a folder."""
    return shutil.disk_usage(folder).free


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that uses no devices and at most one core."""
    return {**environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
