"""Stable pseudonyms for the names of a job: runs and hosts.

Windows, notes and incidents are renamed before anything is computed, so that no later text can hold a real
name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import quote, quote_plus

from sfapp.incidents import IncidentState, renamed, runs_named, state_from_events
from sfapp.model import Window
from sfapp.model.explanation import SharedAttribute
from sfapp.model.host_evidence import MODEL_ATTRIBUTES
from sfapp.model.manifest import DIMENSIONS
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState, WindowKey
from sfapp.views import format
from sfapp.views.address import path_segment

_NAMELESS = ("node", "role", "local_rank", *DIMENSIONS, *MODEL_ATTRIBUTES)
"""What late ranks may share that holds no name."""


@dataclass(frozen=True)
class Pseudonyms:
    """Mapping of real names to pseudonyms; the same for the same packets and notes."""

    runs: dict[str, str]
    hosts: dict[str, str]

    @classmethod
    def of(cls, windows: Sequence[Window], incident_state: IncidentState | None = None) -> Pseudonyms:
        """Number the runs and hosts of windows in the order of their names: ``run-1``, ``host-1`` and so on.

        Args:
            incident_state: notes and incidents, which may refer to runs without packets.
        """
        hosts = {host for window in windows for host in window.hostnames}
        return cls.of_names({window.run_id for window in windows}, hosts, incident_state)

    @classmethod
    def of_names(
        cls, runs: Iterable[str], hosts: Iterable[str], incident_state: IncidentState | None = None
    ) -> Pseudonyms:
        """Number these runs and hosts in the order of their names."""
        named = {*runs, *runs_named(incident_state.events if incident_state else ())}
        return cls(_numbered("run", named), _numbered("host", hosts))

    def window(self, window: Window) -> Window:
        """Return the window under its pseudonyms, without attributes that may hold names."""
        hosts = tuple(self.hosts[host] for host in window.ranks.hostname)
        manifest = replace(window.manifest, run_id=self.runs[window.run_id])
        if manifest.reduced is not None:
            named = (replace(each, hostname=self.hosts[each.hostname]) for each in manifest.reduced.named)
            manifest = replace(manifest, reduced=replace(manifest.reduced, named=tuple(named)))
        known = {name: values for name, values in window.attributes.items() if name in MODEL_ATTRIBUTES}
        return replace(
            window,
            manifest=manifest,
            ranks=replace(window.ranks, hostname=hosts, attributes=known),
        )

    def problem(self, problem: Problem) -> Problem:
        """Return the problem under its pseudonyms, with another id: the real one would confirm a guessed name
        of its run."""
        run_id = self.runs[problem.run_id]
        episodes = (
            replace(one, run_id=run_id, hostname=self._host(one.hostname)) for one in problem.episodes
        )
        return replace(
            problem,
            id=self.id_of(problem.id),
            other_ids=(),
            run_id=run_id,
            hostname=self._host(problem.hostname),
            episodes=tuple(episodes),
            shared=None if problem.shared is None else tuple(self._shared(problem.shared)),
        )

    def _shared(self, shared: Iterable[SharedAttribute]) -> Iterator[SharedAttribute]:
        """Yield what late ranks share, without attributes that may hold names; as for ``window``."""
        for one in shared:
            if one.name == "host":
                yield replace(one, value=self.hosts.get(one.value, ""))
            elif one.name in _NAMELESS:
                yield one

    def _host(self, hostname: str | None) -> str | None:
        return None if hostname is None else self.hosts.get(hostname)

    def key(self, key: WindowKey) -> WindowKey:
        """Return the key under the pseudonym of its run; the key may have either name."""
        return replace(key, run_id=self.runs.get(key.run_id, key.run_id))

    def real(self, key: WindowKey) -> WindowKey:
        """Return the key under the real name of its run."""
        runs = {new: old for old, new in self.runs.items()}
        return replace(key, run_id=runs.get(key.run_id, key.run_id))

    def view(self, view: ViewState) -> ViewState:
        """Return the view with its reference under the pseudonym."""
        return view if view.reference is None else replace(view, reference=self.key(view.reference))

    def incident_state(self, incident_state: IncidentState) -> IncidentState:
        """Return notes and incidents under pseudonyms, with new ids, so that the copy cannot be mistaken for
        the original."""
        return state_from_events(renamed(incident_state.events, self.runs.__getitem__, self.text, self.id_of))

    def text(self, text: str) -> str:
        """Replace every name in a text, including short forms of hosts and names in addresses, regardless of
        case."""
        if not self._written:
            return text
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, found: re.Match[str]) -> str:
        name = found.group()
        return self._written.get(name) or self._written.get(name.casefold(), "name")

    @cached_property
    def _written(self) -> dict[str, str]:
        """Pseudonyms by what a text may hold, and by that without case: a folded "ß" is another text."""
        short = {host.partition(".")[0]: new for host, new in self.hosts.items()}
        names = ((name, new) for name, new in (short | self.hosts | self.runs).items() if name)
        forms = ((form, new) for name, new in names for form in _forms(name))
        return {key: new for form, new in forms for key in (form, form.casefold())}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(re.escape(form) for form in sorted(self._written, key=len, reverse=True))
        # Few words begin as any name does, and each other one would be compared with thousands of them.
        beginnings = "|".join(sorted({re.escape(form[:2]) for form in self._written}))
        # Only whole words: a run called "a" must not change every a. In an address, %2F may be before one.
        before = rf"(?:(?<![^\W_])|(?<=%[0-9a-f]{{2}}))(?={beginnings})"
        return re.compile(rf"{before}(?:{names})(?![^\W_])", re.IGNORECASE)

    @staticmethod
    def id_of(event_id: str) -> str:
        """Return the id of an edit in the copy."""
        return hashlib.sha256(f"redacted {event_id}".encode()).hexdigest()[:32]


def _forms(name: str) -> set[str]:
    """Return a name as it is, as titles that the app offers have it, which may be cut off, and as addresses
    hold it: those of the app, of browsers and of forms."""
    addressed = (path_segment(name), quote(name, safe=""), quote(name), quote_plus(name))
    return {name, format.clip(name), *addressed}


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind}-{place}" for place, name in enumerate(sorted(names), 1)}
