"""The words around a plot where nothing can be clicked or dragged."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sfapp.report.document import Plot

_INVITES = re.compile(r"\b(drag|click|zoom|hover|brush|move)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caption:
    """What stands above and below a plot, and what it says to those who cannot see it."""

    title: str
    subtitle: str
    below: str
    alt: str


def caption(plot: Plot) -> Caption:
    """The plot's words, without those that invite to do something with it."""
    meta = plot.light["layout"]["meta"]
    subtitle = "; ".join(part for part in meta["subtitle"].split("; ") if not _INVITES.search(part))
    sentences = re.split(r"(?<=[.?!]) ", plot.hint)
    hint = " ".join(sentence for sentence in sentences if not _INVITES.search(sentence))
    return Caption(meta["title"], subtitle, " ".join(filter(None, [hint, *meta["notes"]])), meta["alt"])
