"""``sfapp serve`` as its users run it: a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = (sys.executable, "-c", "from sfapp.cli import main; main()")
COMMAND = (*PROGRAM, "serve", "--no-browser")


@dataclass(frozen=True)
class Served:
    """A server that answers."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        port = re.search(r":(\d+)/", self.url)
        assert port is not None
        return int(port[1])

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Tell it to stop; its exit code and what it wrote to standard error."""
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=20)
        return self.process.returncode, error


@contextmanager
def served(*arguments: str | Path, cwd: Path, command: Sequence[str] = COMMAND) -> Iterator[Served]:
    """Start a server on a free port; stop it at the end if it still runs."""
    process = subprocess.Popen(
        [*command, "--port", "0", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        if found is None:
            process.kill()
            raise AssertionError(f"no address in {line!r}: {process.communicate()[1]}")
        yield Served(process, found[0])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()  # also where it ended by itself: its pipes are closed with this


def refused(*arguments: str | Path, cwd: Path) -> tuple[int, str]:
    """The exit code and the complaint of a server that does not start."""
    result = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=60
    )
    return result.returncode, result.stderr
