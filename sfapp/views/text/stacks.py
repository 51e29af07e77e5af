"""Merged stacks in words. Names in them come from the ranks: every surface escapes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfapp.model.stacks import MergedStacks, StackFrame, StackGroup
from sfapp.views import format

MOST_FRAMES = 24
"""Frames of a stack that are shown; JSON has all."""

MAX_NOTE = 16_000
"""Longest text of merged stacks in a note or report, in characters; JSON has all."""

_LIBRARIES = "/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>"


def stacks_headline(merged: MergedStacks) -> str:
    """Return where the training threads are, the odd ones first."""
    groups = [group for group in merged.groups if group.is_training]
    if not groups:
        return "No stacks of training threads."
    parts = [f"{ranks_words(group)} in {place_words(group.frames)}" for group in groups[:3]]
    more = len(groups) - len(parts) + merged.left_out
    if more:
        parts.append(f"{format.counted(more, 'other stack')}")
    return f"{'; '.join(parts)}."


def ranks_words(group: StackGroup) -> str:
    """Return the ranks of a stack: ``Rank 3``, ``Ranks 0–2 and 4–7``."""
    return f"Rank{'s' if len(group.ranks) > 1 else ''} {format.ranges(group.ranks, limit=8)}"


def group_title(group: StackGroup) -> str:
    """Return ranks and thread of a stack."""
    thread = "" if group.is_training else f", thread {group.thread}"
    held = ""
    if group.signalled_ranks:
        of = (
            ""
            if group.signalled_ranks == group.ranks
            else f" on {format.ranges(group.signalled_ranks, limit=8)}"
        )
        held = f" (read by signal{of}: interpreter lock held, or too busy to answer)"
    return f"{ranks_words(group)}{thread}{held}"


def place_words(frames: Sequence[StackFrame]) -> str:
    """Return the innermost call and, where that is a library's, the innermost one of other code."""
    if not frames:
        return "no Python code"
    inner = frames[0]
    own = next((frame for frame in frames if not _is_library(frame)), None)
    words = f"{inner.function} ({_place(inner)})"
    if own is None or own is inner:
        return words
    return f"{words}, called by {own.function} ({_place(own)})"


def frame_lines(group: StackGroup, shared: int = 0) -> Iterator[str]:
    """Yield one line for each frame, the innermost first, without the outer frames that all stacks have.

    Args:
        shared: number of these frames.
    """
    if not group.frames:
        yield "no Python code"
        return
    shown = group.frames[: len(group.frames) - shared] if group.is_training else group.frames
    for frame in shown[:MOST_FRAMES]:
        yield f"{frame.function} ({frame.file}:{frame.line})"
    left = len(shown) - MOST_FRAMES
    if left > 0:
        yield f"… {format.counted(left, 'outer frame')}"
    if group.is_training and shared:
        yield f"… {format.counted(shared, 'outer frame')} as in all stacks"


def stack_lines(merged: MergedStacks, missing: Sequence[tuple[str, Sequence[int]]]) -> Iterator[str]:
    """Yield merged stacks as lines of text.

    Args:
        missing: reasons, and the ranks without stacks for each.
    """
    yield stacks_headline(merged)
    for group in merged.groups:
        yield ""
        yield group_title(group)
        for line in frame_lines(group, merged.shared_frames):
            yield f"  {line}"
    if merged.left_out:
        yield ""
        yield f"{format.counted(merged.left_out, 'more stack')} left out"
    if missing:
        yield ""
        yield from missing_words(missing)


def stacks_text(merged: MergedStacks, missing: Sequence[tuple[str, Sequence[int]]], title: str) -> str:
    """Return merged stacks as the text of a note, of bounded length."""
    text = "\n".join([title, *stack_lines(merged, missing)])
    return text if len(text) <= MAX_NOTE else f"{text[: MAX_NOTE - 1]}…"


def missing_words(missing: Sequence[tuple[str, Sequence[int]]]) -> Iterator[str]:
    """Yield one sentence for each reason for which ranks have no stacks."""
    for why, ranks in missing:
        yield f"Rank{'s' if len(ranks) > 1 else ''} {format.ranges(ranks, limit=8)}: no stacks: {why}"


def _is_library(frame: StackFrame) -> bool:
    return any(part in frame.file for part in _LIBRARIES)


def _place(frame: StackFrame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line}"
