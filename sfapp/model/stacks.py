"""Python stacks of a rank's threads, and the stacks of many ranks merged (docs/stacks.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sfapp.errors import CaptureError

MAX_FRAMES = 100
"""Innermost frames that are kept of a thread. ``faulthandler`` keeps as many."""

MAX_THREADS = 64
"""Threads that are kept of a rank."""

MAX_TEXT = 500
"""Longest name of a file, function or thread, in characters."""

StackSource = Literal["interpreter", "signal"]
"""How a stack was read: by the rank itself, or through a signal because it did not answer: its interpreter
lock was held, or its recorder's thread got no core in time."""


def stack_text(name: str) -> str:
    """Return a name of a file, function or thread as stacks hold it: bounded, and valid Unicode.

    Names of files are bytes, which Python decodes to lone surrogates where they are not UTF-8.
    """
    return name[:MAX_TEXT].encode(errors="backslashreplace").decode()[:MAX_TEXT]


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One call of a stack: file, function and line, 0 if the line is not known."""

    file: str
    function: str
    line: int


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """Stack of one thread.

    Attributes:
        frames: the innermost call first; empty if the thread runs no Python.
        is_training: whether the recorder was created on this thread.
    """

    name: str
    frames: tuple[StackFrame, ...]
    is_training: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """Stacks of one rank's threads, the training thread first.

    Attributes:
        taken_at: with time zone, by the clock of the rank's machine.
        process: its process id.

    Raises:
        CaptureError: there are too many threads or frames, or a text is too long.
    """

    rank: int
    taken_at: datetime
    source: StackSource
    hostname: str = ""
    process: int = 0
    threads: tuple[ThreadStack, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.rank < 2**31 or not 0 <= self.process < 2**31 or self.taken_at.tzinfo is None:
            raise CaptureError("stacks: rank, process or time is out of bounds")
        if len(self.threads) > MAX_THREADS or any(len(each.frames) > MAX_FRAMES for each in self.threads):
            raise CaptureError(f"stacks: more than {MAX_THREADS} threads, or than {MAX_FRAMES} frames of one")
        names = [self.hostname, *(each.name for each in self.threads)]
        names += (name for each in self.threads for at in each.frames for name in (at.file, at.function))
        if any(len(name) > MAX_TEXT for name in names):
            raise CaptureError(f"stacks: a name is longer than {MAX_TEXT} characters")
        if any(not 0 <= at.line < 2**31 for each in self.threads for at in each.frames):
            raise CaptureError("stacks: a line is out of bounds")


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Threads of several ranks that have the same stack.

    Attributes:
        thread: name of the thread; empty for the training thread.
        frames: the innermost call first.
        ranks: ascending, each once.
        signalled_ranks: those of them whose stacks were read through a signal.
    """

    thread: str
    frames: tuple[StackFrame, ...]
    ranks: tuple[int, ...]
    signalled_ranks: tuple[int, ...] = ()

    @property
    def is_training(self) -> bool:
        """Return whether these are training threads."""
        return not self.thread


@dataclass(frozen=True, slots=True)
class MergedStacks:
    """Stacks of many ranks, equal ones merged.

    Attributes:
        groups: training threads first; of these, the stack of the fewest ranks first.
        shared_frames: number of outermost frames that all training threads have in common.
        left_out: number of further groups, of the most common stacks, beyond the limit.
    """

    groups: tuple[StackGroup, ...]
    shared_frames: int = 0
    left_out: int = 0
