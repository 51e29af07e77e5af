"""SIGTERM: the rows are saved first, then the process dies of it as it would have.

When one rank dies, torchrun sends the others SIGTERM within a tenth of a second, and schedulers preempt with
it. Its default action would lose the window under way on every rank, just when it matters most. Only that
default action is replaced: a handler that the trainer has set, before or after, is left alone.

A Python handler alone runs only once the main thread leaves native code, which a rank that waits in a
collective for a dead peer may never do. So the interpreter's C-level handler wakes a thread through a pipe
(``signal.set_wakeup_fd``), and that thread saves the rows and lets the process die.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

Farewell = Callable[[], None]


_ENDING_SECONDS = 1.0
"""How long the watching thread may take to end; it does at once."""


class _Watch:
    """The handler, its pipe and its thread: one per process while anything is registered."""

    def __init__(self) -> None:
        self._farewells: list[Farewell] = []
        self._reader = self._writer = -1
        self._thread: threading.Thread | None = None
        self._guarded_fork = False
        self._forking = threading.local()

    def add(self, farewell: Farewell) -> None:
        """Call ``farewell`` when SIGTERM comes. Does nothing outside the main thread, or where the trainer
        handles SIGTERM or has a wake-up pipe of its own."""
        if not self._farewells and not self._start():
            return
        self._farewells.append(farewell)

    def remove(self, farewell: Farewell) -> None:
        """Forget ``farewell``; with the last one, SIGTERM is as it was before."""
        if farewell in self._farewells:
            self._farewells.remove(farewell)
            if not self._farewells:
                self._stop()

    def _start(self) -> bool:
        if signal.getsignal(signal.SIGTERM) == self._on_signal:  # still in place: stopped on another thread
            return True
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        ):
            return False
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if previous != -1:
            signal.set_wakeup_fd(previous)
            os.close(reader)
            os.close(writer)
            return False
        self._reader, self._writer = reader, writer
        signal.signal(signal.SIGTERM, self._on_signal)
        if not self._guarded_fork:
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child
            )
            self._guarded_fork = True
        self._thread = threading.Thread(target=self._wait, args=(reader,), name="sfapp-farewell", daemon=True)
        self._thread.start()
        return True

    def _stop(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # signals are set up on the main thread alone; the handler lets the process die as before
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer):
            signal.set_wakeup_fd(current)  # somebody else's by now
        os.close(self._writer)  # the thread reads the end of the pipe, closes its side and ends
        if self._thread is not None:
            self._thread.join(_ENDING_SECONDS)
            self._thread = None
        self._reader = self._writer = -1

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The Python half, on the main thread: also reached where the wake-up pipe was taken over."""
        with contextlib.suppress(OSError):
            os.write(self._writer, bytes([number]))

    def _wait(self, reader: int) -> None:
        while numbers := os.read(reader, 64):  # every signal that Python handles arrives here
            if signal.SIGTERM in numbers and signal.getsignal(signal.SIGTERM) == self._on_signal:
                self._leave()
        os.close(reader)

    def _leave(self) -> None:
        try:
            for farewell in list(self._farewells):
                farewell()
        finally:
            # signal.signal() works on the main thread alone, and that one may never come back.
            set_action = ctypes.pythonapi.PyOS_setsig
            set_action.argtypes, set_action.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
            set_action(signal.SIGTERM, None)  # SIG_DFL
            os.kill(os.getpid(), signal.SIGTERM)

    # A forked child (a DataLoader worker) has our handler and both ends of our pipe. Its SIGTERM is its own,
    # and must not reach the parent through the pipe, not even one that comes right after the fork: so SIGTERM
    # waits until the child is rid of them.

    def _before_fork(self) -> None:
        if self._writer != -1:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _after_fork(self) -> None:
        mask = self._forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _in_child(self) -> None:
        self._farewells.clear()
        if self._writer != -1:
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1
        self._after_fork()


SIGTERM_WATCH = _Watch()
