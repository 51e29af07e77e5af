"""Start Python programs as forks of a process that has imported their libraries.

``python -c`` imports PyTorch for two seconds of the processor's time. A program that is forked has it, and is
otherwise what ``subprocess.Popen`` starts: a child of this process with an environment, a folder, arguments
and files of its own. No module of sfapp has been imported in it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

TORCH = ("numpy", "torch")
"""What the recorder imports."""

PR_SET_CHILD_SUBREAPER = 36
"""Linux: become the parent of processes below this one whose own parent ends."""

_OF_POPEN = vars(subprocess.Popen)
_LARGEST_REQUEST = 1 << 17
_PIPE_ENDS = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Of the imports: that of no test, so that it does not matter which one comes first."""


class ForkedProgram(subprocess.Popen[str]):
    """A program that runs in a fork.

    Args:
        modules: are imported before the fork. They must start no thread.
        code: the program, as after ``python -c``.
        options: files, folder and environment, as for ``subprocess.Popen``.
    """

    def __init__(self, modules: Sequence[str], code: str, *arguments: object, **options: Any) -> None:
        self._modules = tuple(modules)
        super().__init__([code, *map(str, arguments)], **{"text": True} | options)

    def _execute_child(self, *given: Any) -> None:
        """Do what ``Popen`` does here: start the process, and close its ends of the pipes."""
        named = inspect.signature(_OF_POPEN["_execute_child"]).bind(self, *given).arguments
        environment = dict(os.environ if named["env"] is None else named["env"])
        folder = os.fspath(named["cwd"] or os.getcwd())
        files = [
            named[end] if named[end] >= 0 else own
            for own, end in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        preloaded, prctl = _preloaded(self._modules), ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(preloaded, [json.dumps([named["args"], environment, folder]).encode()], files)
            self.pid = int(preloaded.recv(100))
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0)
        vars(self)["_child_created"] = True
        _OF_POPEN["_close_pipe_fds"](self, *(named[end] for end in _PIPE_ENDS))


def run_forked(
    modules: Sequence[str], code: str, *arguments: object, timeout: float = 90, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program in a fork to its end; return its exit code and what it printed.

    Raises:
        TimeoutExpired: it was killed after so many seconds.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ForkedProgram(modules, code, *arguments, **pipes | options) as process:
        try:
            printed, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, printed, errors)


@cache
def _preloaded(modules: tuple[str, ...]) -> socket.socket:
    """Start a process that imports modules, then forks whenever asked; return what it is asked with."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=_ENVIRONMENT,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # this first
    return ours


def _fork_whenever_asked(asked: socket.socket) -> tuple[list[str], dict[str, str], str, list[int]]:
    """Return in each fork, with what is to run there."""
    while True:
        request, files, _, _ = socket.recv_fds(asked, _LARGEST_REQUEST, 3)
        if not request:
            os._exit(0)
        number_read, number_written = os.pipe()
        # The process that runs the tests becomes the parent of the program when the one in between ends.
        if (between := os.fork()) == 0:
            between = os.getpid()
            if (program := os.fork()) != 0:
                os.write(number_written, str(program).encode())
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.001)
            for end in (number_read, number_written):
                os.close(end)
            asked.close()
            arguments, environment, folder = json.loads(request)
            return arguments, environment, folder, files
        os.waitpid(between, 0)
        asked.send(os.read(number_read, 100))
        for end in (number_read, number_written, *files):
            os.close(end)


def _main() -> None:
    for name in sys.argv[2:]:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork does not have the threads that a module has started"
    gc.freeze()  # A collection would copy every page.
    asked = socket.socket(fileno=int(sys.argv[1]))
    (code, *arguments), environment, folder, files = _fork_whenever_asked(asked)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    sys.path[:1] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.modules["__main__"] = program = ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), vars(program))


if __name__ == "__main__":
    _main()
