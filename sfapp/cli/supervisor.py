"""What ``sfapp run`` starts beside training: processes that are started again where they fail, and that end
with it, however it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO

import click

from sfapp.errors import RunError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_STEADY_SECONDS = 60.0
_KILL_SECONDS = 5.0

READY = "listening on "
"""What a service says once it does its work."""


class Service:
    """``sfapp NAME …`` as a process of its own, kept running by a thread until ``stop``.

    It ends when its stdin does, so it outlives us in no case; in a session of its own, as Ctrl-C reaches all
    processes of a terminal and it must outlive the ranks. What it says goes to stderr with its name.

    Args:
        name: the command; said with what goes wrong.
        arguments: of the command.
        environ: its whole environment.
        again: whether it is started again where it ends.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], environ: Mapping[str, str], *, again: bool = True
    ) -> None:
        self._name = name
        self._command = [sys.executable, "-c", "from sfapp.cli import main; main()", name, *arguments]
        self._environ = dict(environ)
        self._again = again
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._last_line = ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._keep, name=f"sfapp-{name}", daemon=True)
        self._thread.start()

    def wait_ready(self, seconds: float) -> None:
        """Until it does its work.

        Raises:
            RunError: it has ended instead, or takes longer.
        """
        deadline = time.monotonic() + seconds
        while not self._ready.wait(0.05):
            with self._lock:
                process = self._process
            if (process is not None and process.poll() is not None) or time.monotonic() > deadline:
                self._ready.wait(0.2)  # its last words may still be on their way
                raise RunError(f"sfapp {self._name} does not start: {self._last_line or 'it says nothing'}")

    def stop(self, seconds: float) -> None:
        """Ask it to end, and wait for that, so long at most."""
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

    def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            begin = time.monotonic()
            code = self._run()
            if self._stopping.is_set():
                return
            self._say(f"has ended ({code})" + (": it is started again" if self._again else ""))
            if not self._again:
                return
            pause = _FIRST_PAUSE if time.monotonic() - begin > _STEADY_SECONDS else pause
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run(self) -> int:
        """Start it, pass on what it says, wait for its end."""
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
            self._listen(process.stdout)
        code = process.wait()
        with self._lock:
            if process.stdin is not None:
                process.stdin.close()
        return code

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            self._last_line = line.strip()
            if self._last_line.startswith(READY):
                self._ready.set()
            elif self._last_line:
                self._say(self._last_line)

    def _say(self, what: str) -> None:
        click.echo(f"sfapp {self._name}: {what.removeprefix('sfapp: ')}", err=True)
