"""The part of a window that a what-if makes as fast as on a typical rank: a stage, a rank, a node, or
everything (accounting.md §15)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sfapp.errors import ParseError

_PLACE = re.compile(r"all|(?P<rank>[0-9]{1,9})|node:(?P<node>[0-9]{1,9})")
_EVERYWHERE = "@all"


@dataclass(frozen=True, slots=True)
class Fix:
    """A part of a window that is made typical; as text ``[STAGE][@RANK|@node:K|@all]``.

    Attributes:
        stage: a broad stage; every stage if None.
        rank: a global rank; node: all ranks of one node; at most one of them is given. Every rank if both are
            None.
    """

    stage: str | None = None
    rank: int | None = None
    node: int | None = None

    def __post_init__(self) -> None:
        if self.rank is not None and self.node is not None:
            raise ValueError("a fix is of one rank or of one node, not of both")

    @property
    def is_of_every_rank(self) -> bool:
        """Whether all ranks are made typical."""
        return self.rank is None and self.node is None

    @property
    def place(self) -> str:
        """Return the ranks as in the text: ``3``, ``node:1`` or ``all``."""
        if self.rank is not None:
            return str(self.rank)
        return "all" if self.node is None else f"node:{self.node}"

    def __str__(self) -> str:
        # After a stage name with an @, the ranks are written out, so that the text is parsed correctly.
        if self.stage and self.is_of_every_rank and "@" not in self.stage:
            return self.stage
        return f"{self.stage or ''}@{self.place}"

    @classmethod
    def parse(cls, text: str) -> Fix:
        """Parse ``STAGE``, ``STAGE@RANK``, ``STAGE@node:K``, ``@RANK``, ``@node:K`` or ``@all``.

        Raises:
            ParseError: the text names nothing.
        """
        stage, at, place = text.rpartition("@")
        found = _PLACE.fullmatch(place) if at else None
        if found is None:
            stage, rank, node = text, None, None
        else:
            rank, node = found["rank"], found["node"]
        if not stage and found is None:
            raise ParseError(f"must be STAGE, STAGE@RANK, STAGE@node:K, @RANK, @node:K or {_EVERYWHERE}")
        return cls(stage or None, None if rank is None else int(rank), None if node is None else int(node))
