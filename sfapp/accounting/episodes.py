"""Episodes of a run: neighbouring windows with the same finding that needs attention (accounting.md §17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfapp.model import Diagnosis
from sfapp.model.findings import Finding
from sfapp.model.onsets import Episode, StepEstimate


@dataclass(frozen=True, slots=True)
class EpisodeWindows:
    """The windows of one episode and their neighbours, whose steps tell where it began and ended.

    Attributes:
        seen: verdicts on its windows, in order. findings: of these, one each.
        ranks: that all findings of late ranks name; empty where there are none.
        before, after: verdicts on the windows next to it; None where the run begins or ends.
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
        """The windows that say the most: those that name ranks, or all where none does."""
        every = tuple(zip(self.seen, self.findings, strict=True))
        return tuple(one for one in every if one[1].kind == "rank") or every

    @property
    def finding(self) -> Finding:
        """The first of these findings."""
        return self.telling[0][1]

    @property
    def edges(self) -> tuple[Diagnosis, ...]:
        """The windows, four at most, that show where it began and ended, in order."""
        begin = [found for found in (self.before, self.first) if found is not None]
        end = [] if self.after is None else [self.last, self.after]
        return tuple({found.window: found for found in (*begin, *end)}.values())

    def episode(self, began: StepEstimate | None = None, ended: StepEstimate | None = None) -> Episode:
        """Return the episode; where it began and ended to the nearest window if that is not given."""
        finding, after = self.finding, self.after
        earliest = (self.before or self.first).first_step
        if ended is None and after is not None:
            ended = StepEstimate(None, self.last.first_step, after.last_step)
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
            began=began or StepEstimate(None, earliest, self.first.last_step),
            ended=ended,
        )


@dataclass(slots=True)
class _Open:
    """An episode that the next window may go on with."""

    before: Diagnosis | None
    seen: list[Diagnosis]
    findings: list[Finding]
    ranks: frozenset[int]

    def takes(self, finding: Finding) -> bool:
        if self.findings[0].stage != finding.stage:
            return False
        return not (self.ranks and finding.ranks) or bool(self.ranks & set(finding.ranks))

    def add(self, diagnosis: Diagnosis, finding: Finding) -> None:
        self.seen.append(diagnosis)
        self.findings.append(finding)
        if finding.ranks:
            self.ranks = self.ranks & set(finding.ranks) if self.ranks else frozenset(finding.ranks)

    def closed(self, after: Diagnosis | None) -> EpisodeWindows:
        return EpisodeWindows(
            tuple(self.seen), tuple(self.findings), tuple(sorted(self.ranks)), self.before, after
        )


def episodes_of(diagnoses: Sequence[Diagnosis]) -> list[EpisodeWindows]:
    """Return the episodes of one run, the earliest first.

    A window goes on with an episode where it has a finding that needs attention in the same stage and, where
    it names ranks, one that all windows so far named. Every such finding counts, not the largest alone:
    another fault may be larger for a while. A rank that is late in a part of a window may show as growth.

    Args:
        diagnoses: of the windows of one run in order, under the same gates.
    """
    current: list[_Open] = []
    found: list[EpisodeWindows] = []
    before: Diagnosis | None = None
    for diagnosis in diagnoses:
        going_on: list[_Open] = []
        for finding in diagnosis.findings:
            if not finding.needs_attention:
                continue
            match = next((one for one in current if one not in going_on and one.takes(finding)), None)
            if match is None:
                going_on.append(_Open(before, [diagnosis], [finding], frozenset(finding.ranks)))
                continue
            match.add(diagnosis, finding)
            going_on.append(match)
        found += [one.closed(diagnosis) for one in current if one not in going_on]
        current, before = going_on, diagnosis
    found += [one.closed(None) for one in current]
    return sorted(found, key=lambda one: (one.first.window, -one.findings[0].effect))
