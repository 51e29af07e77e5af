"""What one side of a comparison is called in an address or on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WINDOW = re.compile(r"(?P<run>.+)/(?P<window>[0-9]{1,18})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SideKey:
    """A window or a whole run; as text ``RUN/WINDOW`` or ``RUN``.

    A run id that itself reads like ``RUN/WINDOW``, or ends in a slash, is written with a slash after it.
    """

    run_id: str
    window: int | None = None

    def __str__(self) -> str:
        if self.window is not None:
            return f"{self.run_id}/{self.window}"
        if self.run_id.endswith("/") or _WINDOW.fullmatch(self.run_id):
            return f"{self.run_id}/"
        return self.run_id

    @classmethod
    def parse(cls, text: str) -> SideKey:
        """``RUN/WINDOW`` or ``RUN``; the run may hold slashes. ValueError where it names nothing."""
        found = _WINDOW.fullmatch(text)
        if found:
            return cls(found["run"], int(found["window"]))
        run_id = text.removesuffix("/")
        if not run_id:
            raise ValueError("must be RUN or RUN/WINDOW")
        return cls(run_id)
