"""Episodes of a run: neighbouring windows with the same finding that needs attention (accounting.md §17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfapp.model import Diagnosis
from sfapp.model.findings import Finding, FindingKind
from sfapp.model.onsets import Episode, StepEstimate


@dataclass(frozen=True, slots=True)
class EpisodeWindows:
    """The windows of one episode and their neighbours; their steps show where it began and ended.

    Attributes:
        seen: verdicts on its windows, in order. findings: one of each of these windows.
        ranks: named by all findings of late ranks, or by any of them if ranks take turns; empty for growth.
        before, after: verdicts on the windows next to it; None if the run begins or ends. A job that returned
            to a checkpoint begins again: the window before that is not ``before``.
    """

    seen: tuple[Diagnosis, ...]
    findings: tuple[Finding, ...]
    ranks: tuple[int, ...]
    before: Diagnosis | None
    after: Diagnosis | None

    @property
    def first(self) -> Diagnosis:
        return self.seen[0]

    @property
    def last(self) -> Diagnosis:
        return self.seen[-1]

    @property
    def telling(self) -> tuple[tuple[Diagnosis, Finding], ...]:
        """The most informative windows: those that name ranks, or all if none does."""
        every = tuple(zip(self.seen, self.findings, strict=True))
        return tuple(one for one in every if one[1].kind == "rank") or every

    @property
    def finding(self) -> Finding:
        """The finding of the first of these windows."""
        return self.telling[0][1]

    @property
    def following(self) -> Diagnosis | None:
        """The window after it if its steps follow; None if the job returned to a checkpoint in between."""
        after = self.after
        return after if after is not None and after.first_step > self.last.last_step else None

    @property
    def since(self) -> int:
        """The first step that it may have begun at."""
        return (self.before or self.first).first_step

    @property
    def until(self) -> int | None:
        """The last step that it may have ended at; None if it has not ended."""
        return None if self.after is None else (self.following or self.last).last_step

    @property
    def edges(self) -> tuple[Diagnosis, ...]:
        """The windows (at most four) that show where it began and ended, in order."""
        begin = [found for found in (self.before, self.first) if found is not None]
        end = [] if self.after is None else [self.last]
        end += [] if self.following is None else [self.following]
        return tuple({found.window: found for found in (*begin, *end)}.values())

    def episode(self, began: StepEstimate | None = None, ended: StepEstimate | None = None) -> Episode:
        """Return the episode; its beginning and end are known to the nearest window unless given."""
        finding = self.finding
        if ended is None and self.until is not None:
            ended = StepEstimate(None, self.last.first_step, self.until)
        return Episode(
            run_id=self.first.run_id,
            kind=finding.kind,
            stage=finding.stage,
            ranks=self.ranks,
            hostname=finding.hostname,
            first_window=self.first.window,
            last_window=self.last.window,
            windows=len(self.seen),
            effect=max(found.effect for found in self.findings),
            began=began or StepEstimate(None, self.since, self.first.last_step),
            ended=ended,
        )


@dataclass(slots=True)
class _Open:
    """An episode that the next window may continue."""

    before: Diagnosis | None
    seen: list[Diagnosis]
    findings: list[Finding]
    ranks: frozenset[int]

    def takes(self, diagnosis: Diagnosis, finding: Finding) -> bool:
        """Return whether a finding of the next window shows the same effect."""
        last = self.findings[-1]
        if last.stage != finding.stage:
            return False
        if self.ranks and finding.ranks:
            both = self.ranks & set(finding.ranks)
            is_same_effect = len(both) >= _SHARED_RANKS * len(self.ranks | set(finding.ranks))
            return is_same_effect or (takes_turns(last) and takes_turns(finding))
        if finding.kind == "growth" and not self.ranks:
            return True
        return bool((self.ranks or _leading(self.seen[-1], last)) & _leading(diagnosis, finding))

    def add(self, diagnosis: Diagnosis, finding: Finding) -> None:
        if finding.ranks and not self.ranks:
            self.ranks = frozenset(finding.ranks)
        elif finding.ranks:
            take_turns = takes_turns(self.findings[-1]) and takes_turns(finding)
            named = frozenset(finding.ranks)
            self.ranks = self.ranks | named if take_turns else self.ranks & named
        self.seen.append(diagnosis)
        self.findings.append(finding)

    def closed(self, after: Diagnosis | None) -> EpisodeWindows:
        return EpisodeWindows(
            tuple(self.seen), tuple(self.findings), tuple(sorted(self.ranks)), self.before, after
        )


_SHARED_RANKS = 0.5
"""Part of the late ranks that two windows must share for their lateness to be the same effect."""

_ONE_RANK = ("chronic", "periodic", "one-off")
"""Kinds of culprit that name a rank."""


def effects_of(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Return the findings of a window that need attention. If the window has too few steps to estimate noise
    and is severe, this is one finding for the suspect, of unknown chance (§12)."""
    aim = diagnosis.aim
    if diagnosis.knows_noise or not diagnosis.needs_attention or aim is None:
        return tuple(finding for finding in diagnosis.findings if finding.needs_attention)
    kind: FindingKind = "growth" if aim.rank is None else "rank"
    ranks = () if aim.rank is None else (aim.rank,)
    # Growth is a part of the healthy step, an effect one of this window's step.
    grown = max(0.0, diagnosis.change or 0.0)
    effect = max(diagnosis.exposed_imbalance or 0.0, grown / (1.0 + grown))
    return (Finding(kind, aim.stage, ranks, aim.hostname, effect, 0.0, effect, None, (), True),)


def takes_turns(finding: Finding) -> bool:
    """Return whether several ranks are late in single steps, so that other windows may name other ranks."""
    return len(finding.ranks) > 1 and bool(finding.steps)


def _leading(diagnosis: Diagnosis, finding: Finding) -> frozenset[int]:
    """Return the late ranks of a finding; for growth, the rank that leads the stage, if there is one."""
    if finding.ranks:
        return frozenset(finding.ranks)
    return frozenset(
        one.rank
        for one in diagnosis.culprits
        if one.stage == finding.stage and one.rank is not None and one.kind in _ONE_RANK
    )


def episodes_of(diagnoses: Sequence[Diagnosis]) -> list[EpisodeWindows]:
    """Return the episodes of one run, the earliest first.

    A window continues an episode if it has a finding that needs attention in the same stage and, if it names
    ranks, half of them are ranks that all windows so far named (or several ranks take turns in both). Every
    such finding counts, not only the largest: another fault may be larger for a while. A rank that is late in
    a part of a window may appear as growth of a stage that it leads. A job that returns to a checkpoint ends
    the episode: its steps begin again.

    Args:
        diagnoses: of all windows of one run in order, under the same gates.
    """
    current: list[_Open] = []
    found: list[EpisodeWindows] = []
    before: Diagnosis | None = None
    for diagnosis in diagnoses:
        if before is not None and diagnosis.first_step <= before.last_step:
            # Steps of a job that returned to a checkpoint, which no interval of steps can order.
            found += [one.closed(diagnosis) for one in current]
            current, before = [], None
        going_on: list[_Open] = []
        for finding in effects_of(diagnosis):
            match = next(
                (one for one in current if one not in going_on and one.takes(diagnosis, finding)), None
            )
            if match is None:
                going_on.append(_Open(before, [diagnosis], [finding], frozenset(finding.ranks)))
                continue
            match.add(diagnosis, finding)
            going_on.append(match)
        found += [one.closed(diagnosis) for one in current if one not in going_on]
        current, before = going_on, diagnosis
    found += [one.closed(None) for one in current]
    return sorted(found, key=lambda one: (one.first.window, -one.findings[0].effect))
