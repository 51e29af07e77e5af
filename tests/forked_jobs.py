"""Start jobs, with the commands of ``forked_ranks.py`` or without, as forks of a process that has PyTorch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forked_programs import ForkedProgram, run_forked

LOADED = ("torch._dynamo", "torch.profiler")
"""What most jobs import of PyTorch, and nothing that is tested."""

PROGRAM = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


class ForkedJob(ForkedProgram):
    """A job that runs.

    Args:
        command: the interpreter, a script and arguments.
        options: as for ``subprocess.Popen``.
    """

    def __init__(self, command: Sequence[object], **options: Any) -> None:
        super().__init__(LOADED, PROGRAM, *command[1:], **options)


def run_job(
    command: Sequence[object],
    timeout: float,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a job to its end, with one thread for each rank; return its exit code and what it printed.

    Args:
        command: the interpreter, a script and arguments.
        environment: is added to that of this process.

    Raises:
        TimeoutExpired: it was killed after so many seconds.
    """
    added = {"OMP_NUM_THREADS": "1", **(environment or {})}
    return run_forked(LOADED, PROGRAM, *command[1:], timeout=timeout, cwd=cwd, env={**os.environ, **added})
