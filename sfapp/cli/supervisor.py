"""Supervise the services of ``sfapp run``: restart them when they fail, and end them with this process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO

from sfapp.cli.console_messages import print_if_possible
from sfapp.errors import RunError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_STEADY_SECONDS = 60.0
_KILL_SECONDS = 5.0

READY = "listening on "
"""Beginning of the line that a service prints once it is ready."""


class Service:
    """Process of ``sfapp NAME …`` that a thread keeps running until ``stop``.

    The process ends when its stdin is closed, so it never outlives this one. It runs in its own session,
    because Ctrl-C reaches all processes of a terminal and the service must outlive the ranks. Its output goes
    to stderr, prefixed with its name.

    Args:
        name: the command, also used in messages.
        arguments: arguments of the command.
        environ: complete environment of the process.
        restart: whether to start the process again when it ends.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], environ: Mapping[str, str], *, restart: bool = True
    ) -> None:
        self._name = name
        # -P keeps modules in the working directory from being imported.
        self._command = [sys.executable, "-P", "-c", "from sfapp.cli import main; main()", name, *arguments]
        self._environ = dict(environ)
        self._restart = restart
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._last_line = ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._supervise, name=f"sfapp-{name}", daemon=True)
        self._thread.start()

    def wait_ready(self, seconds: float) -> None:
        """Wait until the service is ready.

        Raises:
            RunError: the process has ended, or was not ready in time.
        """
        deadline = time.monotonic() + seconds
        while not self._ready.wait(0.05):
            with self._lock:
                process = self._process
            if (process is not None and process.poll() is not None) or time.monotonic() > deadline:
                self._ready.wait(0.2)  # Its last line may not have been read yet.
                raise RunError(f"sfapp {self._name} does not start: {self._last_line or 'no output'}")

    def stop(self, seconds: float) -> None:
        """Request the process to end and wait at most ``seconds``, then kill it."""
        self._stopping.set()
        with self._lock:
            process = self._process
            if process is not None and process.stdin is not None:
                process.stdin.close()
        self._thread.join(seconds)
        if process is not None and self._thread.is_alive():
            process.kill()
            self._thread.join(_KILL_SECONDS)

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(_KILL_SECONDS)

    # ---- the thread -----------------------------------------------------------------------------

    def _supervise(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            begin = time.monotonic()
            code = self._run_once()
            if self._stopping.is_set():
                return
            self._log(f"ended ({code})" + (", restarting" if self._restart else ""))
            if not self._restart:
                return
            pause = _FIRST_PAUSE if time.monotonic() - begin > _STEADY_SECONDS else pause
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run_once(self) -> int:
        """Start the process, forward its output, and return its exit code."""
        with self._lock:
            if self._stopping.is_set():
                return 0
            process = self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        assert process.stdout is not None
        with process.stdout:
            self._forward_output(process.stdout)
        code = process.wait()
        with self._lock:
            if process.stdin is not None:
                process.stdin.close()
        return code

    def _forward_output(self, lines: IO[str]) -> None:
        for line in lines:
            self._last_line = line.strip()
            if self._last_line.startswith(READY):
                self._ready.set()
            elif self._last_line:
                self._log(self._last_line)

    def _log(self, message: str) -> None:
        print_if_possible(f"sfapp {self._name}: {message.removeprefix('sfapp: ')}", err=True)
