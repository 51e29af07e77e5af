"""Stable pseudonyms for the names that say whose job it was: runs and hosts.

Windows, notes and incidents are renamed before anything is computed, so no text further on can hold a real
name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sfapp.incidents import IncidentState, renamed, runs_named, state_from_events
from sfapp.model import Window
from sfapp.model.view import ViewState, WindowKey


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """Real name -> pseudonym. The same packets and notes always give the same ones."""

    runs: dict[str, str]
    hosts: dict[str, str]

    @classmethod
    def of(cls, windows: Sequence[Window], book: IncidentState | None = None) -> Pseudonyms:
        """``run-1``, ``host-1`` and so on, in the order of the names.

        Args:
            book: notes and incidents, which may point at runs whose packets are not there.
        """
        hosts = {host for window in windows for host in window.hostnames}
        return cls.of_names({window.run_id for window in windows}, hosts, book)

    @classmethod
    def of_names(
        cls, runs: Iterable[str], hosts: Iterable[str], book: IncidentState | None = None
    ) -> Pseudonyms:
        """The same, of the names of all runs and hosts."""
        named = {*runs, *runs_named(book.events if book else ())}
        return cls(_numbered("run", named), _numbered("host", hosts))

    def window(self, window: Window) -> Window:
        """The window under its pseudonyms."""
        hosts = tuple(self.hosts[host] for host in window.ranks.hostname)
        manifest = replace(window.manifest, run_id=self.runs[window.run_id])
        if manifest.reduced is not None:
            named = (replace(each, hostname=self.hosts[each.hostname]) for each in manifest.reduced.named)
            manifest = replace(manifest, reduced=replace(manifest.reduced, named=tuple(named)))
        return replace(
            window,
            manifest=manifest,
            ranks=replace(window.ranks, hostname=hosts),
        )

    def key(self, key: WindowKey) -> WindowKey:
        """A window named by its real run or by its pseudonym, under the pseudonym."""
        return replace(key, run_id=self.runs.get(key.run_id, key.run_id))

    def real(self, key: WindowKey) -> WindowKey:
        """A window named by its pseudonym, under its real run."""
        runs = {new: old for old, new in self.runs.items()}
        return replace(key, run_id=runs.get(key.run_id, key.run_id))

    def view(self, view: ViewState) -> ViewState:
        """A view whose reference is under its pseudonym."""
        return view if view.reference is None else replace(view, reference=self.key(view.reference))

    def book(self, book: IncidentState) -> IncidentState:
        """Notes and incidents under pseudonyms, with other ids: a copy, never taken for the original."""
        return state_from_events(renamed(book.events, self.runs.__getitem__, self.text, self.id_of))

    def text(self, text: str) -> str:
        """Somebody's words: every name replaced, hosts by their short form too, in upper or lower case."""
        short = {host.partition(".")[0]: new for host, new in self.hosts.items()}
        every = {name.casefold(): new for name, new in (short | self.hosts | self.runs).items() if name}
        if not every:
            return text
        names = "|".join(re.escape(name) for name in sorted(every, key=len, reverse=True))
        # Not inside a longer word: a run called "a" must not take every a with it.
        return re.sub(
            rf"(?<![^\W_])(?:{names})(?![^\W_])",
            lambda found: every.get(found.group().casefold(), "name"),
            text,
            flags=re.IGNORECASE,
        )

    @staticmethod
    def id_of(event_id: str) -> str:
        """The id in the copy."""
        return hashlib.sha256(f"redacted {event_id}".encode()).hexdigest()[:32]


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind}-{place}" for place, name in enumerate(sorted(names), 1)}
