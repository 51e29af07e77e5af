"""Stable pseudonyms for the names that say whose job it was: runs and hosts.

Windows are renamed before anything is computed, so no text further on can hold a real name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sfapp.model import Window


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """Real name -> pseudonym. The same packets always give the same ones."""

    runs: dict[str, str]
    hosts: dict[str, str]

    @classmethod
    def of(cls, windows: Sequence[Window]) -> Pseudonyms:
        """``run-1``, ``host-1`` and so on, in the order of the names."""
        runs = sorted({window.run_id for window in windows})
        hosts = sorted({host for window in windows for host in window.ranks.hostname})
        return cls(_numbered("run", runs), _numbered("host", hosts))

    def window(self, window: Window) -> Window:
        """The window under its pseudonyms."""
        run_id = self.runs[window.run_id]
        hosts = tuple(self.hosts[host] for host in window.ranks.hostname)
        return replace(
            window,
            manifest=replace(window.manifest, run_id=run_id),
            ranks=replace(window.ranks, hostname=hosts),
        )

    def text(self, text: str) -> str:
        """Somebody's words, the longest names replaced first."""
        every = self.runs | self.hosts
        for name in sorted(filter(None, every), key=len, reverse=True):
            text = text.replace(name, every[name])
        return text


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind}-{place}" for place, name in enumerate(names, 1)}
