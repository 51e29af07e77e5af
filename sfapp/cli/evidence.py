"""Windows from packet files, judged under any view: what a command shows without a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sfapp.accounting import diagnose_runs
from sfapp.errors import WindowNotFoundError
from sfapp.model import Diagnosis
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import LoadedWindow
from sfapp.report import Evidence, Packet


class PacketEvidence:
    """Some windows with their files. Runs are judged when asked for, once for every view."""

    def __init__(self, windows: Sequence[LoadedWindow]) -> None:
        self._windows = {WindowKey(found.window.run_id, found.window.number): found for found in windows}
        self._runs: dict[str, list[LoadedWindow]] = defaultdict(list)
        for found in windows:
            self._runs[found.window.run_id].append(found)
        self._judged: dict[tuple[str, ViewState], dict[int, Diagnosis]] = {}

    def __call__(self, key: WindowKey, view: ViewState) -> Evidence:
        """One window under a view.

        Raises:
            WindowNotFoundError: it, its group or its reference is not among the packets.
            WindowError: baseline ``reference`` and its run has no healthy window.
        """
        if key not in self._windows:
            raise WindowNotFoundError(f"there is no window {key} among the packets given")
        found = self._windows[key]
        if view.group not in found.window.groups:
            raise WindowNotFoundError(f"window {key} has no group {view.group!r}")
        packets = tuple(Packet(packet.path.name, packet.sha256) for packet in found.packets)
        return Evidence(found.window, self._of_run(key.run_id, view)[key.window], packets)

    def windows(self, run_id: str) -> Sequence[int]:
        """The windows of a run in order."""
        return sorted(found.window.number for found in self._runs.get(run_id, ()))

    def diagnoses(self, view: ViewState) -> list[Diagnosis]:
        """Every window that has the view's group, by run and window.

        Raises:
            WindowNotFoundError: none has it, or the reference is not among the packets.
            WindowError: baseline ``reference`` for a run without a healthy window.
        """
        found = _judge([window for run in self._runs.values() for window in run], view)
        for run_id in self._runs:
            of_run = {one.window: one for one in found if one.run_id == run_id}
            self._judged[run_id, view.judging] = of_run
        return found

    def _of_run(self, run_id: str, view: ViewState) -> dict[int, Diagnosis]:
        name = (run_id, view.judging)
        if name not in self._judged:
            windows = list(self._runs[run_id])
            if view.reference in self._windows and view.reference.run_id != run_id:
                windows.append(self._windows[view.reference])
            found = _judge(windows, view)
            self._judged[name] = {one.window: one for one in found if one.run_id == run_id}
        return self._judged[name]


def _judge(windows: Sequence[LoadedWindow], view: ViewState) -> list[Diagnosis]:
    reference = None if view.reference is None else (view.reference.run_id, view.reference.window)
    return diagnose_runs(
        (found.window for found in windows),
        view.gates,
        view.baseline,
        frontier=view.frontier,
        group=view.group,
        reference=reference,
    )
