"""Evidence for a report from packet files, without a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path

from sfapp.accounting import RunWaits, run_waits
from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.model import Diagnosis, Window
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.packets import LoadedWindow, packet_path, read_packet_operators
from sfapp.packets.paths import operator_files_of
from sfapp.service.problems import problems_of_windows
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.stacks import stacks_next_to
from sfapp.service.verdicts import diagnose_windows, measures_behind
from sfapp.service.window_evidence import EvidenceFile, WindowEvidence
from sfapp.storage import StoragePath, as_text
from sfapp.views.operator_findings import Examined, examined


class PacketEvidence:
    """Some windows with their files, optionally under pseudonyms.

    A run is judged as a whole at the first request for one of its windows, once for every view.
    """

    def __init__(
        self,
        windows: Sequence[LoadedWindow],
        pseudonyms: Pseudonyms | None = None,
        chosen: Mapping[str, int] | None = None,
    ) -> None:
        """Hold some windows.

        Args:
            chosen: by run, the window that a user chose as its reference, without pseudonyms.
        """
        self._pseudonyms = pseudonyms
        keys = starmap(WindowKey, (chosen or {}).items())
        renamed = keys if pseudonyms is None else map(pseudonyms.key, keys)
        self._chosen = {key.run_id: key.window for key in renamed}
        self._windows: dict[WindowKey, LoadedWindow] = {}
        self._files: dict[WindowKey, list[StoragePath]] = {}
        self._runs: dict[str, list[LoadedWindow]] = defaultdict(list)
        self._problems: dict[str, list[Problem]] = {}
        for original in windows:
            found = original if pseudonyms is None else _renamed(original, pseudonyms)
            key = WindowKey(found.window.run_id, found.window.number)
            self._windows[key] = found
            self._files[key] = [packet.path for packet in original.packets]
            self._runs[found.window.run_id].append(found)
        self._diagnoses: dict[tuple[str, ViewState], dict[int, Diagnosis]] = {}
        self._examined: dict[tuple[WindowKey, str, tuple[str, ...]], Examined] = {}

    def __call__(self, key: WindowKey, view: ViewState) -> WindowEvidence:
        """Return one window judged under a view.

        Raises:
            WindowNotFoundError: it, its group or its reference is not among the packets.
            WindowError: the baseline is ``reference`` and its run has no healthy window.
        """
        if key not in self._windows:
            raise WindowNotFoundError(f"there is no window {key} among the packets given")
        found = self._windows[key]
        if view.group not in found.window.groups:
            raise WindowNotFoundError(f"window {key} has no group {view.group!r}")
        diagnosis = self._run_diagnoses(key.run_id, view)[key.window]
        return WindowEvidence(
            found.window,
            diagnosis,
            tuple(
                EvidenceFile(as_text(packet.path).rpartition("/")[2], packet.sha256)
                for packet in found.packets
            ),
            measures=lambda: measures_behind(found.window, diagnosis, self._run_waits(found.window)),
            findings=lambda: self._findings(key, diagnosis),
            has_operators=bool(operator_files_of(self._files[key])),
            stacks=None if self._pseudonyms else lambda: stacks_next_to(self._files[key], key.run_id),
        )

    def windows(self, run_id: str) -> Sequence[int]:
        """Return the window numbers of a run in order."""
        return sorted(found.window.number for found in self._runs.get(run_id, ()))

    def problems(self, key: WindowKey) -> Sequence[Problem]:
        """Return the problems that a window belongs to."""
        if key not in self._windows:
            return ()
        found = self._problems.get(key.run_id)
        if found is None:
            diagnoses = self._run_diagnoses(key.run_id, ViewState())
            windows = [one.window for one in self._runs[key.run_id]]
            found = problems_of_windows(windows, [diagnoses[number] for number in sorted(diagnoses)])
            self._problems[key.run_id] = found
        return [problem for problem in found if key.window in problem.windows]

    def diagnoses(self, view: ViewState) -> list[Diagnosis]:
        """Judge every window that has the view's group; return the results by run and window.

        Raises:
            WindowNotFoundError: none has it, or the reference is not among the packets.
            WindowError: the baseline is ``reference`` and a run has no healthy window.
        """
        every = [found.window for run in self._runs.values() for found in run]
        diagnoses = diagnose_windows(every, view, self._chosen)
        for run_id in self._runs:
            self._diagnoses[run_id, view.judging] = _by_window(diagnoses, run_id)
        return diagnoses

    def _findings(self, key: WindowKey, diagnosis: Diagnosis) -> Findings:
        """Return the operator findings on the judged ranks; computed once for all plots of a window."""
        name = (key, diagnosis.group, diagnosis.wait_stages)
        if name not in self._examined:
            self._examined[name] = examined(
                name,
                lambda: read_packet_operators(self._files[key]),
                self._windows[key].window.of_group(diagnosis.group),
                diagnosis.wait_stages,
                lambda _: None,
            )
        try:
            return self._examined[name].or_raise()
        except WindowError as error:
            message = str(error)
            raise WindowError(self._pseudonyms.text(message) if self._pseudonyms else message) from error

    def _run_waits(self, window: Window) -> RunWaits | None:
        """Return where ranks wait according to the windows of a run, with all ranks, under default gates."""
        diagnoses = self._run_diagnoses(window.run_id, ViewState())
        return run_waits(diagnoses.values()).get((window.run_id, window.stages))

    def _run_diagnoses(self, run_id: str, view: ViewState) -> dict[int, Diagnosis]:
        key = (run_id, view.judging)
        if key not in self._diagnoses:
            windows = list(self._runs[run_id])
            if view.reference in self._windows and view.reference.run_id != run_id:
                # The reference is judged among the windows of its own run, which show where its ranks wait.
                windows += self._runs[view.reference.run_id]
            diagnoses = diagnose_windows((found.window for found in windows), view, self._chosen)
            self._diagnoses[key] = _by_window(diagnoses, run_id)
        return self._diagnoses[key]


def _by_window(diagnoses: Sequence[Diagnosis], run_id: str) -> dict[int, Diagnosis]:
    return {diagnosis.window: diagnosis for diagnosis in diagnoses if diagnosis.run_id == run_id}


def _renamed(found: LoadedWindow, pseudonyms: Pseudonyms) -> LoadedWindow:
    """Return a window under its pseudonyms, with the file names of a recorder."""
    window = pseudonyms.window(found.window)
    packets = tuple(
        replace(packet, path=packet_path(Path(), window.run_id, window.number, packet.part_rank))
        for packet in found.packets
    )
    return replace(found, window=window, packets=packets)
