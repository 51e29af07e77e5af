"""Packets written by a process of their own, for one that has better things to do.

Writing a packet is a millisecond or more of Python and pyarrow, longer with many ranks, and whoever wants the
interpreter meanwhile waits for it: in a recorder's process that is training. The other process has nothing to
wait for, and the lowest priority. It reads windows from one socket and says what came of each; it ends with
whoever holds the other end.
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
"""How often the process looks whether who started it is still there: a forked child of that one, such as a
DataLoader's worker, may hold the socket open."""

_LEAVE_SECONDS = 1.0


class WriterProcessEnded(Exception):
    """The process is not ready, busy, or no more: it is not known whether anything was written.

    Attributes:
        for_good: whether it will never write again.
    """

    def __init__(self, why: str, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(why)


class WriterProcess:
    """A process that writes packets. Never asked twice at a time; from any thread."""

    def __init__(self) -> None:
        """Start it; it takes a second before it is ready.

        Raises:
            OSError, ValueError: no process can be started.
        """
        self._ours, theirs = Pipe()
        self._one_at_a_time = threading.Lock()
        self._is_ready = False
        try:
            self._process = subprocess.Popen(
                (
                    sys.executable,
                    "-m",
                    "sfapp.packets.writer_process",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"},
            )
        except (OSError, ValueError):
            self._ours.close()
            raise
        finally:
            theirs.close()
        lowest_priority(self._process.pid)

    def write(self, packets: Sequence[tuple[WindowDraft, Path]], seconds: float) -> list[PacketError | None]:
        """As ``write_packet``, over there, if that takes no longer than ``seconds``: a process of the lowest
        priority may have to wait long where all cores are taken. Returns of each why it was not written.

        Raises:
            WriterProcessEnded: they have to be written here.
        """
        if not self._one_at_a_time.acquire(blocking=False):
            raise WriterProcessEnded("busy")
        try:
            if not self._is_ready:
                if not self._ours.poll():
                    raise WriterProcessEnded("not ready")
                self._ours.recv()
                self._is_ready = True
            self._send_within(seconds)
            self._ours.send_bytes(pickle.dumps(list(packets), pickle.HIGHEST_PROTOCOL))
            if not self._ours.poll(seconds):
                raise WriterProcessEnded(f"took longer than {seconds:.3g} s", for_good=True)
            refusals = self._ours.recv()
        except BlockingIOError as error:
            raise WriterProcessEnded(f"took longer than {seconds:.3g} s", for_good=True) from error
        except (EOFError, OSError) as error:
            raise WriterProcessEnded(f"ended with {self._ended_with()}", for_good=True) from error
        finally:
            self._one_at_a_time.release()
        return [
            None if said is None else PacketError(said[0], path=said[1], row=said[2], column=said[3])
            for said in refusals
        ]

    def close(self) -> None:
        """Let the process end, once it has written what it was given; wait a little for that."""
        self._ours.close()
        if not self._is_ready:  # it was given nothing yet
            self._process.kill()
        if self._ended_with() is None:  # a file system that does not answer, or no core
            self._process.kill()
            self._ended_with()

    def _send_within(self, seconds: float) -> None:
        """A window larger than the socket's buffer needs somebody who takes it: wait no longer for that."""
        whole, part = divmod(int(seconds * 1e6), 1_000_000)
        with socket.socket(fileno=os.dup(self._ours.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, part))

    def _ended_with(self) -> int | None:
        """The code that the process ended with, now or in a moment; None if it goes on."""
        try:
            return self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            return None


def _serve(theirs: Connection, starter: int) -> None:
    """Write what comes until nobody is there any more."""
    theirs.send(None)  # ready
    while os.getppid() == starter:
        if not theirs.poll(_LOOK_SECONDS):
            continue
        packets = pickle.loads(theirs.recv_bytes())  # from the process that started this one
        theirs.send([_written(draft, path) for draft, path in packets])


def _written(draft: WindowDraft, path: Path) -> tuple[str, str | None, int | None, str | None] | None:
    """What was wrong with it, or nothing if it is on disk."""
    try:
        write_packet(draft, path)
    except PacketError as error:
        return error.reason, error.path, error.row, error.column
    return None


def main() -> None:
    """``python -m sfapp.packets.writer_process FD PID``: the socket, and who started this."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the job: what was taken is written first
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody is there any more
        _serve(Connection(int(sys.argv[1])), int(sys.argv[2]))


if __name__ == "__main__":
    main()
