"""Start a training job whose ranks are forked from a process that has imported PyTorch: ``forked_ranks.py``.

``torchrun`` starts each rank as a new interpreter, which imports PyTorch for seconds. Jobs that need neither
torchrun's restarts nor its handling of failed ranks are started here, with the same environment.

forked_ranks.py RANKS MODULES SCRIPT [ARGUMENT]...
"""

from __future__ import annotations

import ctypes
import importlib
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

HEAVY = ("torch._dynamo", "torch.profiler", "sfapp.recorder")
"""Modules of most jobs: ``DistributedDataParallel`` and optimizers import the first one."""


PR_SET_PDEATHSIG = 1
"""Linux: send a signal to this process when its parent ends."""


def forked(ranks: int, script: Path, *arguments: str | Path, modules: Sequence[str] = HEAVY) -> list[str]:
    """Return the command that runs a script on so many ranks.

    Args:
        modules: are imported before the fork.
    """
    return [sys.executable, __file__, str(ranks), ",".join(modules), str(script), *map(str, arguments)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank of a job on one node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "forked",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def wait_for(processes: set[int]) -> int:
    """Wait until all have ended; terminate the others once one has failed, and return its exit code."""
    first_failure = 0
    while processes:
        process, status = os.wait()
        processes.discard(process)
        if (code := os.waitstatus_to_exitcode(status)) != 0 and first_failure == 0:
            first_failure = code
            for other in processes:
                os.kill(other, signal.SIGTERM)
    return abs(first_failure)


def main() -> None:
    ranks, script = int(sys.argv[1]), sys.argv[3]
    for name in sys.argv[2].split(","):
        importlib.import_module(name)
    port, processes = free_port(), set()
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.environ.update(environment(rank, ranks, port))
            sys.argv = sys.argv[3:]
            sys.path[0] = str(Path(script).parent)
            runpy.run_path(script, run_name="__main__")
            return  # the interpreter ends as after any script
        processes.add(process)
    sys.exit(wait_for(processes))


if __name__ == "__main__":
    main()
