"""Evidence for a report from a workspace's stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sfapp.errors import PacketsMissingError, WindowError, WindowNotFoundError
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.packets import packet_path
from sfapp.service.judging import JudgedWindow
from sfapp.service.missing_rows import missing_rows_note, verdict_on_all_rows
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.stacks import stacks_next_to
from sfapp.service.verdicts import judge_measures, measure_window
from sfapp.service.window_evidence import EvidenceFile, WindowEvidence
from sfapp.service.workspace import Workspace


@dataclass(frozen=True, slots=True)
class StoreEvidence:
    """Evidence from a store, optionally under pseudonyms.

    Attributes:
        report: called with each activity, in words; may raise to cancel.
    """

    workspace: Workspace
    pseudonyms: Pseudonyms | None
    report: Callable[[str], None]

    def __call__(self, key: WindowKey, view: ViewState) -> WindowEvidence:
        """Return one window judged under a view.

        Raises:
            WindowNotFoundError: it, its group or its reference is not in the store, or its packets are gone.
            WindowError: the baseline is ``reference`` and its run has no healthy window.
        """
        self.report(f"judging and drawing window {key.window}")
        if self.pseudonyms is None:
            try:
                found = self._evidence(self.workspace.judge(self.workspace.source(key), view))
            except PacketsMissingError as error:
                raise WindowNotFoundError(str(error)) from error
            stored = verdict_on_all_rows(self.workspace, key) if view == ViewState() else None
            return replace(found, on_all_rows=stored)
        try:
            return self._redacted(key, view, self.pseudonyms)
        except PacketsMissingError as error:
            # Its message may hold a path.
            raise WindowNotFoundError("only its verdict is here, not its packets") from error
        except (WindowError, WindowNotFoundError) as error:
            # The report prints the message, so it must not contain names.
            raise type(error)(self.pseudonyms.text(str(error))) from error

    def windows(self, run_id: str) -> Sequence[int]:
        """Return the window numbers of a run in order."""
        original = self.pseudonyms.real(WindowKey(run_id, 0)).run_id if self.pseudonyms else run_id
        return self.workspace.store_of(original).window_numbers([original]).get(original, [])

    def problems(self, key: WindowKey) -> Sequence[Problem]:
        """Return the problems that a window belongs to."""
        real = key if self.pseudonyms is None else self.pseudonyms.real(key)
        found = self.workspace.problems_of_window(real)
        return found if self.pseudonyms is None else [self.pseudonyms.problem(one) for one in found]

    def _evidence(self, judged: JudgedWindow) -> WindowEvidence:
        store = self.workspace.store_of(judged.window.run_id)
        return WindowEvidence(
            judged.window,
            judged.diagnosis,
            tuple(EvidenceFile(packet.path.name, packet.sha256) for packet in judged.source.packets),
            measures=lambda: judged.measures,
            findings=lambda: self._findings(judged),
            has_operators=bool(judged.source.operators),
            stacks=lambda: stacks_next_to(
                [packet.path for packet in judged.source.packets], judged.source.key.run_id
            ),
            missing_rows=missing_rows_note(store, judged.window),
        )

    def _redacted(self, key: WindowKey, view: ViewState, pseudonyms: Pseudonyms) -> WindowEvidence:
        """Judge the window again under its pseudonyms, so that the verdict cannot contain a real name."""
        reference = view.reference and pseudonyms.real(view.reference)
        original = self.workspace.judge(
            self.workspace.source(pseudonyms.real(key)), replace(view, reference=reference)
        )
        window = pseudonyms.window(original.window)
        against = original.reference
        if against is not None:
            against = replace(against, run_id=pseudonyms.runs[against.run_id])
        measures = measure_window(window, view, against, original.measures.run_waits)
        packets = tuple(
            EvidenceFile(packet_path(Path(), window.run_id, window.number, one.part_rank).name, one.sha256)
            for one in original.source.packets
        )
        found = self._evidence(original)
        return replace(
            found,
            window=window,
            diagnosis=judge_measures(measures, view, against),
            measures=lambda: measures,
            packets=packets,
            stacks=None,
            missing_rows=pseudonyms.text(found.missing_rows),
        )

    def _findings(self, judged: JudgedWindow) -> Findings:
        """Return the findings, which name no runs or hosts; an error message may name both."""
        try:
            return self.workspace.examine(judged).result().or_raise()
        except WindowError as error:
            if self.pseudonyms is None:
                raise
            raise WindowError(self.pseudonyms.text(str(error))) from error
