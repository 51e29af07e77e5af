"""On SIGTERM, save the rows before the process ends.

When one rank dies, torchrun sends the others SIGTERM within a tenth of a second; schedulers use it for
preemption. Its default action would lose the current window on every rank. Only this default action is
replaced; a handler set by training, before or after, is kept.

A Python handler runs only once the main thread leaves native code, which a rank that waits in a collective
for a dead peer may never do. The interpreter's C-level handler therefore wakes a thread through a pipe
(``signal.set_wakeup_fd``). That thread saves the rows and ends the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType

from sfapp.errors import describe_error
from sfapp.files import OwnDescriptor
from sfapp.packets.threads import start_or_note

Callback = Callable[[], None]


_ENDING_SECONDS = 1.0
"""Limit for joining the watching thread, which ends at once."""


class SigtermWatch:
    """The handler, its pipe and its thread: they exist while a callback is registered."""

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []
        self._reader: OwnDescriptor | None = None
        self._writer: OwnDescriptor | None = None
        self._thread: threading.Thread | None = None
        self._guarded_fork = False
        self._forking = threading.local()

    def add(self, callback: Callback, failures: deque[str]) -> None:
        """Call ``callback`` on SIGTERM.

        Does nothing outside the main thread, or if training handles SIGTERM or has a wake-up pipe; nor
        where the system refuses a pipe or a thread, which is added to ``failures``.
        """
        if not self._callbacks and not self._start(failures):
            return
        self._callbacks.append(callback)

    def remove(self, callback: Callback) -> None:
        """Remove ``callback``; without callbacks, SIGTERM has its default action again."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)
            if not self._callbacks:
                self._stop()

    def take_pipe_back(self) -> None:
        """Have signals wake the thread again if nothing else does.

        An event loop that handled signals on the main thread leaves no wake-up pipe; SIGTERM would then not
        end a rank that waits in native code. Does nothing on other threads.
        """
        writer = self._writer
        is_main = threading.current_thread() is threading.main_thread()
        if writer is None or not is_main or not writer.is_open():
            return
        with contextlib.suppress(OSError, ValueError):  # One of the two was closed, or made to block.
            current = signal.set_wakeup_fd(writer.number, warn_on_full_buffer=False)
            if current not in (-1, writer.number):
                signal.set_wakeup_fd(current)

    def _start(self, failures: deque[str]) -> bool:
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            # It is still set if the watch was stopped on another thread.
            return True
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        ):
            return False
        try:
            reader, writer = map(OwnDescriptor, os.pipe())
        except OSError as error:  # The process has no file descriptors left.
            failures.append(f"SIGTERM does not save rows: {describe_error(error)}")
            return False
        os.set_blocking(writer.number, False)
        previous = signal.set_wakeup_fd(writer.number, warn_on_full_buffer=False)
        if previous != -1:
            signal.set_wakeup_fd(previous)
            reader.close()
            writer.close()
            return False
        self._reader, self._writer = reader, writer
        signal.signal(signal.SIGTERM, self._on_signal)
        if not self._guarded_fork:
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child
            )
            self._guarded_fork = True
        thread = threading.Thread(target=self._wait, args=(reader,), name="sfapp-sigterm", daemon=True)
        if not start_or_note(thread, failures):
            reader.close()
            self._stop()
            return False
        self._thread = thread
        return True

    def _stop(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Only the main thread may change handlers; ours then ends the process as before.
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        current = signal.set_wakeup_fd(-1)
        if self._writer is not None:
            if current not in (-1, self._writer.number):
                signal.set_wakeup_fd(current)  # Another one was set meanwhile.
            self._writer.close()  # The thread reads the end of the pipe, closes its side and ends.
        if self._thread is not None:
            self._thread.join(_ENDING_SECONDS)
            self._thread = None
        self._reader = self._writer = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM on the main thread, which happens even if the wake-up pipe was replaced."""
        if self._writer is None or not self._writer.is_open():  # Training has closed it; the thread ends.
            if signal.getsignal(number) == self._on_signal:  # Else training's handler calls the one before.
                self._end_on_another_thread()
            return
        with contextlib.suppress(OSError):  # If the pipe is full, the thread is about to read it.
            os.write(self._writer.number, bytes([number]))

    def _end_on_another_thread(self) -> None:
        """End the process, but not on this thread: it may have been interrupted while it held a lock."""
        ending = threading.Thread(target=self._end_process, name="sfapp-sigterm", daemon=True)
        if not start_or_note(ending, deque()):
            _die()

    def _wait(self, reader: OwnDescriptor) -> None:
        while numbers := _read(reader):  # Every signal that Python handles arrives here.
            if signal.SIGTERM in numbers and signal.getsignal(signal.SIGTERM) == self._on_signal:
                self._end_process()
        reader.close()

    def _end_process(self) -> None:
        try:
            for callback in list(self._callbacks):
                callback()
        finally:
            _die()

    # A forked child (a DataLoader worker) inherits the handler and both ends of the pipe. Its SIGTERM must
    # not reach the parent through the pipe, not even right after the fork: it is blocked until the child has
    # closed both ends.

    def _before_fork(self) -> None:
        if self._writer is not None:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _after_fork(self) -> None:
        mask = self._forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _in_child(self) -> None:
        self._callbacks.clear()
        if self._reader is not None and self._writer is not None:
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._reader.close()
            self._writer.close()
            self._reader = self._writer = None
        self._after_fork()


def _die() -> None:
    """End this process by SIGTERM's default action."""
    # signal.signal() works only on the main thread, which may never leave native code.
    set_action = ctypes.pythonapi.PyOS_setsig
    set_action.argtypes, set_action.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    set_action(signal.SIGTERM, None)  # SIG_DFL
    os.kill(os.getpid(), signal.SIGTERM)


def _read(pipe: OwnDescriptor) -> bytes:
    """Return what the pipe holds; nothing if training has closed it."""
    try:
        return os.read(pipe.number, 64) if pipe.is_open() else b""
    except OSError:
        return b""


SIGTERM_WATCH = SigtermWatch()
