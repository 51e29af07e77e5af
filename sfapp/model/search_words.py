"""Words of a search as patterns, which Python and the store's SQL match in the same way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import digits

from sfapp.model.parse import whole_number

MOST_WORDS = 8
"""Words of a search that count; more do not narrow a list down any further."""

MAX_SEARCH = 200
"""Characters of a search that count."""

_NUMBERED = re.compile(r"(rank|window|step|node)s?\s+(?=\d+(\s|$))")
"""A noun before a number belongs to it: ``rank 3`` is no window 3."""


@dataclass(frozen=True, slots=True)
class SearchWord:
    """One word of a search, or a number with the noun before it; in lower case.

    Attributes:
        text: as it may be part of a name.
        pattern: a regular expression for texts with numbers, in which 3 is not a part of 37 or of 0.3.
    """

    text: str
    pattern: str


def search_words(text: str) -> tuple[SearchWord, ...]:
    """Return the words of a search. A text is found by it where it contains all of them, in any order."""
    bound = _NUMBERED.sub(r"\1~", text[:MAX_SEARCH].lower())
    return tuple(_word(part) for part in bound.split()[:MOST_WORDS])


def is_found(words: tuple[SearchWord, ...], text: str, names: str = "") -> bool:
    """Return whether a text contains all words, or names any part of which may be typed contain the rest."""
    text, names = text.lower(), names.lower()
    return all(word.text in names or re.search(word.pattern, text) is not None for word in words)


def _word(part: str) -> SearchWord:
    noun, separator, number = part.partition("~")
    if separator and whole_number(number) is not None:
        return SearchWord(f"{noun} {number}", rf"{noun}s? {number}($|[^0-9])")
    before = r"(^|[^0-9.,])" if part[0] in digits else ""
    after = r"($|[^0-9])" if part[-1] in digits else ""
    return SearchWord(part, f"{before}{re.escape(part)}{after}")
