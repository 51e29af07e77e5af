"""Load pickles of plain data: numbers, text, lists, tuples and dicts. No code in a pickle runs.

A pickle with opcodes that import or call, or with a memo larger than the pickle, is refused before the first
opcode runs. One that refers to the same objects so often that a copy of each would take too much memory is
refused before anything is copied: two bytes can refer to a list of any length.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Collection

from sfapp.errors import TraceError
from sfapp.packets.value_checks import is_unicode
from sfapp.terminal import first_line

_DATA = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE"),
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *(
            "STRING",
            "BINSTRING",
            "SHORT_BINSTRING",
            "UNICODE",
            "BINUNICODE",
            "SHORT_BINUNICODE",
            "BINUNICODE8",
        ),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET"),
        *("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    )
)
_MAKES_CONTAINER = frozenset(
    (
        *("EMPTY_LIST", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_DICT", "DICT", "EMPTY_SET", "FROZENSET"),
    )
)
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))

MAX_EXPANDED = 2**29
"""Largest size of the content, each reference to an object counted as a copy, bytes."""

MAX_CONTAINERS, MAX_VALUES = 2**21, 2**24
"""Largest number of lists, tuples, dicts and sets, and of all values. Each takes one byte of a pickle, and up
to 200 bytes of memory. A dump of 20,000 calls with their stacks has less than half of these."""

_VALUE_BYTES = 16
_CONTAINERS = (list, tuple, dict, set, frozenset)


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that finds no class, as a second line of defence."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("a persistent id is not plain data")


def plain_data(data: bytes) -> object:
    """Return the content of a pickle of plain data.

    Raises:
        TraceError: the pickle is incomplete, would import or call something, or expands too much; with the
            byte.
    """
    value = _loaded(data)
    size = _expanded_bytes(value)
    if size > max(MAX_EXPANDED, len(data)):
        raise TraceError(f"expands to more than {MAX_EXPANDED:,} bytes by references to the same objects")
    return value


def _loaded(data: bytes) -> object:
    place = containers = 0
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            place = position or 0
            containers += opcode.name in _MAKES_CONTAINER
            if containers > MAX_CONTAINERS or count > 2 * MAX_VALUES:
                raise TraceError(too_many(), place=f"byte {place}")
            if opcode.name not in _DATA:
                raise TraceError(
                    f"opcode {opcode.name} would run code: only plain data is read, nothing was run",
                    place=f"byte {place}",
                )
            if isinstance(argument, str) and not is_unicode(argument):
                raise TraceError("a text in it is not valid Unicode", place=f"byte {place}")
            if opcode.name in _PUTS and isinstance(argument, int) and argument > len(data):
                raise TraceError(f"memo index {argument:,} is larger than the pickle", place=f"byte {place}")
        return _PlainUnpickler(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except (
        pickle.UnpicklingError,
        ValueError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise TraceError(
            f"is not a complete pickle: {first_line(str(error))}", place=f"byte {place}"
        ) from error
    except (RecursionError, MemoryError, OverflowError) as error:
        raise TraceError("a value in the pickle is too large", place=f"byte {place}") from error


def too_many() -> str:
    """Return the words on content with too many values."""
    return (
        f"holds more than {MAX_CONTAINERS:,} lists or {MAX_VALUES:,} values: no dump of one rank has so many"
    )


def _expanded_bytes(value: object) -> int:
    """Return the size of a value, each reference to an object counted as a copy.

    Raises:
        TraceError: an object contains itself.
    """
    size_of: dict[int, int] = {}  # by id: the value keeps all of them alive
    begun: set[int] = set()
    open_values = [value]
    while open_values:
        current = open_values[-1]
        if id(current) in size_of:
            open_values.pop()
            continue
        parts = _parts(current)
        waiting = [part for part in parts if isinstance(part, _CONTAINERS) and id(part) not in size_of]
        if not waiting:
            size_of[id(current)] = _VALUE_BYTES + sum(
                size_of[id(part)] if isinstance(part, _CONTAINERS) else _VALUE_BYTES + _length(part)
                for part in parts
            )
        elif id(current) in begun:
            raise TraceError("an object in the pickle contains itself")
        else:
            begun.add(id(current))
            open_values += waiting
    return size_of[id(value)]


def _parts(value: object) -> Collection[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, (list, tuple, set, frozenset)) else ()


def _length(value: object) -> int:
    return len(value) if isinstance(value, str | bytes) else 0
