"""Parameters of addresses: how the text of each is parsed, and the JSON schema of its values.

The schemas are those of the OpenAPI document, so that it declares what the parsers accept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfapp.model.parse import whole_number

Schema = Mapping[str, Any]

_MAX_WHOLE_DIGITS = 19  # The floor may be 10^18 ns.


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    Attributes:
        parse: returns the value of a text; raises ValueError with a message that begins with "must".
        schema: JSON schema of its values.
        form: how OpenAPI writes a list of values into an address; empty for single values.
    """

    parse: Callable[[str], Any]
    schema: Schema
    form: Mapping[str, Any] = field(default_factory=dict)

    def document(
        self, name: str, meaning: str, default: Any = None, required: bool = False
    ) -> dict[str, Any]:
        """Return the parameter as the OpenAPI document describes it."""
        schema = {**self.schema} if default is None else {**self.schema, "default": default}
        optional = {"required": True} if required else {}
        return {
            "name": name,
            "in": "query",
            "description": meaning,
            "schema": schema,
            **self.form,
            **optional,
        }


def number_between(low: float, high: float) -> Parameter:
    """Return a parameter that is a finite number of this range, which the parser does not check."""
    return Parameter(parsed_number, {"type": "number", "minimum": low, "maximum": high})


def whole_between(low: int, high: int) -> Parameter:
    """Return a parameter that is a whole number of this range, which the parser does not check."""
    return Parameter(_whole, {"type": "integer", "minimum": low, "maximum": high})


def position() -> Parameter:
    """Return a parameter that is a position in a list."""
    return Parameter(_position, {"type": "integer", "minimum": 0, "maximum": 10**18 - 1})


def one_of(choices: Sequence[str]) -> Parameter:
    """Return a parameter that is one of these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return Parameter(parse, {"type": "string", "enum": list(choices)})


def nonempty() -> Parameter:
    """Return a parameter that is the name of something."""
    return Parameter(_name, {"type": "string", "minLength": 1})


def schema_of(pattern: re.Pattern[str]) -> Schema:
    """Return the JSON schema of the texts that a pattern matches as a whole.

    Of Python's own syntax the pattern may name groups only.
    """
    return {"type": "string", "pattern": f"^(?:{re.sub(r'[(][?]P<[a-z]+>', '(', pattern.pattern)})$"}


def parsed_number(text: str) -> float:
    """Parse a number.

    Raises:
        ValueError: the text is none.
    """
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _whole(text: str) -> int:
    found = whole_number(text.removeprefix("-"), digits=_MAX_WHOLE_DIGITS)
    if found is None:
        raise ValueError("must be a whole number")
    return -found if text.startswith("-") else found


def _position(text: str) -> int:
    found = whole_number(text)
    if found is None:
        raise ValueError("must be a position in a list, 0 the first")
    return found


def _name(text: str) -> str:
    if not text:
        raise ValueError("must name something")
    return text
