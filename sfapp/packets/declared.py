"""Check what a job declares about itself, before packets are written that no reader accepts."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import msgspec

from sfapp.errors import RecorderError
from sfapp.terminal import quoted


def check_declared(what: str, value: object, kind: Any) -> None:
    """Check that a value can be read back from a manifest as this type.

    Raises:
        RecorderError: it cannot.
    """
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except Exception as error:  # The value may be anything, and raise anything.
        if get_origin(kind) is Literal:
            expected = f"one of {', '.join(get_args(kind))}"
        else:
            expected = f"a valid {kind.__name__}"
        given = value if isinstance(value, str) else repr(value)
        raise RecorderError(f"{what} must be {expected}, not {quoted(given)}") from error
