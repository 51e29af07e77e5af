"""Write packets in another process, so that training is not interrupted.

Writing a packet takes a millisecond or more of Python and pyarrow, longer with many ranks, and holds the
interpreter lock, for which the training thread would wait. The writer process has the lowest priority. It
reads windows from a socket and answers with the result of each; it ends when the other end is closed.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from sfapp.errors import PacketError
from sfapp.packets.process_priority import lowest_priority
from sfapp.packets.window_draft import WindowDraft
from sfapp.packets.write import write_packet

_LOOK_SECONDS = 2.0
"""Interval in seconds at which the process checks that its parent exists: a forked child of the parent, such
as a DataLoader's worker, may keep the socket open."""

_LEAVE_SECONDS = 1.0


class WriterProcessEnded(Exception):
    """The process is not ready, busy or has ended. Whether anything was written is unknown.

    Attributes:
        for_good: whether it will never write again.
    """

    def __init__(self, why: str, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(why)


class WriterProcess:
    """Client of a process that writes packets. Any thread may call it, one at a time."""

    def __init__(self) -> None:
        """Start the process, which takes about a second to be ready.

        Raises:
            OSError, ValueError: no process can be started.
        """
        self._connection, child_end = Pipe()
        self._one_at_a_time = threading.Lock()
        self._is_ready = False
        self._late_answers = 0  # requests whose time limit passed before they were answered
        try:
            self._process = subprocess.Popen(
                (
                    sys.executable,
                    "-P",  # modules in the working directory are not imported
                    "-m",
                    "sfapp.packets.writer_process",
                    str(child_end.fileno()),
                    str(os.getpid()),
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(child_end.fileno(),),
                env={**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"},
            )
        except (OSError, ValueError):
            self._connection.close()
            raise
        finally:
            child_end.close()
        lowest_priority(self._process.pid)

    def write(self, packets: Sequence[tuple[WindowDraft, Path]], seconds: float) -> list[PacketError | None]:
        """Write packets as ``write_packet`` does, and return the error of each, or None.

        Args:
            seconds: time limit; a process of the lowest priority may have to wait if all cores are busy.

        Raises:
            WriterProcessEnded: the caller has to write them itself. A process that only was too late writes
                them too, the same bytes, and is used again once it has done so.
        """
        if not self._one_at_a_time.acquire(blocking=False):
            raise WriterProcessEnded("busy")
        try:
            if not self._is_ready:
                if not self._connection.poll():
                    raise WriterProcessEnded("not ready")
                self._connection.recv()
                self._is_ready = True
            while self._late_answers:
                if not self._connection.poll():
                    raise WriterProcessEnded("busy")
                self._connection.recv()
                self._late_answers -= 1
            self._send_within(seconds)
            self._connection.send_bytes(pickle.dumps(list(packets), pickle.HIGHEST_PROTOCOL))
            if not self._connection.poll(seconds):
                self._late_answers += 1
                raise WriterProcessEnded(f"took longer than {seconds:.3g} s")
            refusals = self._connection.recv()
        except BlockingIOError as error:
            raise WriterProcessEnded(f"took longer than {seconds:.3g} s", for_good=True) from error
        except (EOFError, OSError) as error:
            raise WriterProcessEnded(f"ended with {self._ended_with()}", for_good=True) from error
        finally:
            self._one_at_a_time.release()
        return [
            None
            if refusal is None
            else PacketError(refusal[0], path=refusal[1], row=refusal[2], column=refusal[3])
            for refusal in refusals
        ]

    def close(self) -> None:
        """Let the process finish its work and end, and wait briefly for it."""
        self._connection.close()
        if not self._is_ready:  # It has no work yet.
            self._process.kill()
        if self._ended_with() is None:  # A file system does not respond, or no core is free.
            self._process.kill()
            self._ended_with()

    def _send_within(self, seconds: float) -> None:
        """Limit the time for sending: a window larger than the socket's buffer blocks until the process
        reads it.
        """
        whole, part = divmod(int(seconds * 1e6), 1_000_000)
        with socket.socket(fileno=os.dup(self._connection.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, part))

    def _ended_with(self) -> int | None:
        """Return the exit code of the process, waiting briefly for it; None if it still runs."""
        try:
            return self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            return None


def _serve(child_end: Connection, starter: int) -> None:
    """Write packets as they arrive, until the other end is closed."""
    child_end.send(None)  # Tells the parent that this process is ready.
    while os.getppid() == starter:
        if not child_end.poll(_LOOK_SECONDS):
            continue
        packets = pickle.loads(child_end.recv_bytes())  # From the parent process.
        child_end.send([_written(draft, path) for draft, path in packets])


def _written(draft: WindowDraft, path: Path) -> tuple[str, str | None, int | None, str | None] | None:
    """Write one packet and return its error, or None if it is on disk.

    Another job of the run may have written a window of this number meanwhile, also one that was started after
    the starter had been killed.
    """
    try:
        write_packet(draft, path, replaces=False)
    except PacketError as error:
        return error.reason, error.path, error.row, error.column
    return None


def main() -> None:
    """Run ``python -m sfapp.packets.writer_process FD PID``, with the socket and the parent's process id."""
    # The signals are meant for the job; what has been received is written first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # The other end is closed.
        _serve(Connection(int(sys.argv[1])), int(sys.argv[2]))


if __name__ == "__main__":
    main()
