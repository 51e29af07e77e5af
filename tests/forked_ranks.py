"""Start a training job whose ranks are forked from a process that has imported PyTorch: ``forked_ranks.py``.

``torchrun`` starts each rank as a new interpreter, which imports PyTorch for seconds. Jobs that need neither
torchrun's restarts nor its handling of failed ranks are started here, with the same environment. Those
that need them run torchrun's agent, which watches, restarts and ends its ranks as ever, but has them forked.

forked_ranks.py RANKS MODULES SCRIPT [ARGUMENT]...
forked_ranks.py torchrun MODULES [OPTION]... SCRIPT [ARGUMENT]...
"""

from __future__ import annotations

import ctypes
import importlib
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

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


def forked_torchrun(*arguments: str | Path, modules: Sequence[str] = HEAVY) -> list[str]:
    """Return the command that runs torchrun with these options, script and arguments of it.

    Args:
        modules: are imported before the fork.
    """
    return [sys.executable, __file__, "torchrun", ",".join(modules), *map(str, arguments)]


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


class ForkedRank:
    """A rank of torchrun's agent, forked by the agent's parent; stands for a ``subprocess.Popen``."""

    def __init__(self, parent: Connection, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self._parent = parent
        self._code: int | None = None
        parent.send((arguments, environment))
        self.pid: int = parent.recv()

    def poll(self) -> int | None:
        """Return the exit code, or None while the rank runs."""
        if self._code is None:
            self._parent.send(self.pid)
            self._code = self._parent.recv()
        return self._code

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code.

        Raises:
            TimeoutExpired: the rank still runs.
        """
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("rank", timeout)
            time.sleep(0.01)
        return code


def run_agent(parent: Connection, arguments: Sequence[str]) -> None:
    """Run torchrun's agent, whose ranks are forked by its parent."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
    from torch.distributed.run import main

    def popen(_: Any, arguments: tuple[str, ...], environment: dict[str, str]) -> ForkedRank:
        return ForkedRank(parent, arguments, environment)

    vars(subprocess_handler)["SubprocessHandler"]._popen = popen
    main(list(arguments))


def run_script(*arguments: str) -> None:
    """Run a script, or a module after ``-m``, as the interpreter does."""
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = list(arguments)
    sys.path[0] = str(Path(arguments[0]).parent)
    runpy.run_path(arguments[0], run_name="__main__")


def serve_agent(*arguments: str) -> None:
    """Fork the agent and, whenever it asks for one, a rank. In each, return at its end."""
    ours, theirs = Pipe()
    if (agent := os.fork()) == 0:
        ours.close()
        run_agent(theirs, arguments)
        return
    theirs.close()
    while True:
        try:
            asked = ours.recv()
        except EOFError:  # the agent has ended
            sys.exit(abs(os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1])))
        if isinstance(asked, int):
            ended, status = os.waitpid(asked, os.WNOHANG)
            ours.send(os.waitstatus_to_exitcode(status) if ended else None)
        elif (rank := os.fork()) == 0:
            ours.close()
            os.setsid()
            command, given = asked  # the command begins with python -u
            os.environ.clear()
            os.environ.update(given)
            run_script(*command[2:])
            return
        else:
            ours.send(rank)


def main() -> None:
    kind, script = sys.argv[1], sys.argv[3]
    for name in sys.argv[2].split(","):
        importlib.import_module(name)
    if kind == "torchrun":
        serve_agent(*sys.argv[3:])
        return
    port, processes = free_port(), set()
    ranks = int(kind)
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.environ.update(environment(rank, ranks, port))
            run_script(script, *sys.argv[4:])
            return  # the interpreter ends as after any script
        processes.add(process)
    sys.exit(wait_for(processes))


if __name__ == "__main__":
    main()
