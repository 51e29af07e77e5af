"""Load pickles of plain data: numbers, text, lists, tuples and dicts. No code in a pickle runs.

A pickle with opcodes that import or call, or with a memo larger than the pickle, is refused before the first
opcode runs.
"""

from __future__ import annotations

import io
import pickle
import pickletools

from sfapp.errors import TraceError
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
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that finds no class, as a second line of defence."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("a persistent id is not plain data")


def plain_data(data: bytes) -> object:
    """Return the content of a pickle of plain data.

    Raises:
        TraceError: the pickle is incomplete, or would import or call something; with the byte.
    """
    place = 0
    try:
        for opcode, argument, position in pickletools.genops(data):
            place = position or 0
            if opcode.name not in _DATA:
                raise TraceError(
                    f"opcode {opcode.name} would run code: only plain data is read, nothing was run",
                    place=f"byte {place}",
                )
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
