"""Check the numbers and names of a packet one by one (packet.md, Rules).

Each check reports the first bad value with the row that ``row_of`` gives for its cell, and their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.packets.faults import Faults, and_more
from sfapp.packets.packet_layout import MAX_VALUE, SIDE_PREFIX, WAIT_PREFIX
from sfapp.terminal import quoted

Array = np.ndarray[Any, Any]
RowOf = Callable[[int], int]


def check_durations(name: str, values: Array, row_of: RowOf, faults: Faults) -> None:
    """Report values outside 0…2^62 ns."""
    if int(values.min()) < 0:
        _report(name, values, values < 0, "is negative", row_of, faults)
    if int(values.max()) > MAX_VALUE:
        _report(name, values, values > MAX_VALUE, "is above 2^62", row_of, faults)


def check_waits(stage: str, wait_NR: Array, duration_NR: Array, row_of: RowOf, faults: Faults) -> None:
    """Report waits that are longer than their stage."""
    longer = wait_NR > duration_NR
    if longer.any():
        _report(WAIT_PREFIX + stage, wait_NR, longer, "is longer than the stage itself", row_of, faults)


def check_range(name: str, values: Array, low: int, high: int, row_of: RowOf, faults: Faults) -> bool:
    """Return whether all values lie in [low, high], and report the first that does not."""
    if int(values.min()) >= low and int(values.max()) <= high:
        return True
    outside = (values < low) | (values > high)
    _report(name, values, outside, f"is outside {low}…{high}", row_of, faults)
    return False


def _report(name: str, values: Array, bad: Array, what: str, row_of: RowOf, faults: Faults) -> None:
    cell = int(bad.argmax())
    more = and_more(int(np.count_nonzero(bad)) - 1)
    faults.add(f"{values.flat[cell]} {what}{more}", row=row_of(cell), column=name)


def check_names(name: str, values: Sequence[str | None], row_of: RowOf, faults: Faults) -> None:
    """Report names above 256 characters and text that UTF-8 cannot encode; None is no name."""
    for index, value in enumerate(values):
        if value is None:
            continue
        if len(value) > MAX_NAME_LENGTH:
            reason = f"{quoted(value)} has {len(value)} characters, more than {MAX_NAME_LENGTH}"
            faults.add(reason, row=row_of(index), column=name)
        elif not is_unicode(value):
            faults.add(f"{quoted(value)} is not valid Unicode", row=row_of(index), column=name)


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode the text: it has no lone surrogate."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def check_side_channel(name: str, values: Array, row_of: RowOf, faults: Faults) -> None:
    """Report infinite side-channel values; NaN means that a value was not sampled or not ready."""
    infinite = np.isinf(values)
    if infinite.any():
        _report(SIDE_PREFIX + name, values, infinite, "is infinite", row_of, faults)
