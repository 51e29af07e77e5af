"""Inputs for the fuzzer that choose places in a valid document, and what stands there instead.

Damaged bytes of a file with a checksum are refused by it, but any program may write a whole file with any
values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cached_property, reduce
from operator import getitem
from typing import Any

_REMOVED = object()
_ANY: tuple[Any, ...] = (None, True, [], {}, [0], [None], {"x": 1}, _REMOVED, math.inf, math.nan, "x", -1)
_INTEGERS = (0, -1, 1, 2, 2**31, 2**53 + 1, 2**62, 2**70, -(2**62))
_FLOATS = (0.0, -1.0, 0.5, 1.0, 1e17, 1e40, 1e308, -1e308, 1e-308, math.inf)
_TEXTS = ("", "x", "\0", "../x", "a" * 100, "0", "=1+1")
_BY_KIND: dict[type, tuple[Any, ...]] = {int: _INTEGERS, float: _FLOATS, str: _TEXTS}

_EDIT_BYTES, _MOST_EDITS = 4, 3

_Place = tuple[str | int, ...]


class EditedDocument:
    """A valid document as JSON has it, and its copies with other values in places that an input chooses."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def valid(self) -> Any:
        """The document without edits."""
        return self._make()

    @cached_property
    def _places(self) -> list[_Place]:
        return list(_places_in(self.valid))

    @cached_property
    def _values(self) -> dict[type, list[Any]]:
        found: dict[type, list[Any]] = {}
        for place in self._places:
            value = reduce(getitem, place, self.valid)
            found.setdefault(type(value), []).append(value)
        return found

    def seeds(self) -> list[bytes]:
        """Return inputs with no edit and with up to three."""
        randoms = random.Random(0)
        return [b"", *(randoms.randbytes(_EDIT_BYTES * (1 + number % _MOST_EDITS)) for number in range(12))]

    def edited(self, data: bytes) -> Any:
        """Return a copy of the document with the edits that an input chooses."""
        document = deepcopy(self.valid)
        for begin in range(0, min(len(data), _EDIT_BYTES * _MOST_EDITS), _EDIT_BYTES):
            place, choice = (int.from_bytes(data[begin + part : begin + part + 2]) for part in (0, 2))
            *above, last = self._places[place % len(self._places)]
            with suppress(LookupError, TypeError):  # An earlier edit has removed the place.
                holder = reduce(getitem, above, document)
                new = self._instead(holder[last], choice)
                if new is _REMOVED:
                    del holder[last]
                else:
                    holder[last] = deepcopy(new)
        return document

    def _instead(self, old: Any, choice: int) -> Any:
        """Return something of the same kind, the value of another place, or anything."""
        how, which = choice % 4, choice // 4
        values: Any = _BY_KIND.get(type(old), _ANY)
        if how == 0:
            values = _ANY
        elif how == 1:
            values = self._values[type(old)]
        return values[which % len(values)]


def _places_in(value: Any, above: _Place = ()) -> Iterator[_Place]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*above, key)
        yield from _places_in(each, (*above, key))
