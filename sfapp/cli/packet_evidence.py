"""Windows from packet files, judged under any view: what a command shows without a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sfapp.accounting import RunWaits, diagnose_runs, run_waits
from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.model import Diagnosis, Window
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.packets import LoadedWindow, packet_path, read_operators_beside
from sfapp.packets.paths import with_operators
from sfapp.report import Evidence, Packet, Pseudonyms
from sfapp.views.findings import Examined, examined


class PacketEvidence:
    """Some windows with their files, under their pseudonyms where there are some. Runs are judged when asked
    for, once for every view."""

    def __init__(self, windows: Sequence[LoadedWindow], names: Pseudonyms | None = None) -> None:
        self._names = names
        self._windows: dict[WindowKey, LoadedWindow] = {}
        self._files: dict[WindowKey, list[Path]] = {}
        self._runs: dict[str, list[LoadedWindow]] = defaultdict(list)
        for real in windows:
            found = real if names is None else _renamed(real, names)
            key = WindowKey(found.window.run_id, found.window.number)
            self._windows[key] = found
            self._files[key] = [packet.path for packet in real.packets]
            self._runs[found.window.run_id].append(found)
        self._judged: dict[tuple[str, ViewState], dict[int, Diagnosis]] = {}
        self._examined: dict[tuple[WindowKey, str, tuple[str, ...]], Examined] = {}

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
        diagnosis = self._of_run(key.run_id, view)[key.window]
        return Evidence(
            found.window,
            diagnosis,
            packets,
            run_waits=self._run_waits(found.window),
            findings=lambda: self._findings(key, diagnosis),
            has_operators=bool(with_operators(self._files[key])),
        )

    def _findings(self, key: WindowKey, diagnosis: Diagnosis) -> Findings:
        """What KAIR finds in the ranks that were judged, once for every plot of it."""
        name = (key, diagnosis.group, diagnosis.wait_stages)
        if name not in self._examined:
            self._examined[name] = examined(
                name,
                lambda: read_operators_beside(self._files[key]),
                self._windows[key].window.of_group(diagnosis.group),
                diagnosis.wait_stages,
                lambda said: None,
            )
        try:
            return self._examined[name].or_raise()
        except WindowError as error:
            raise WindowError(self._names.text(str(error)) if self._names else str(error)) from error

    def _run_waits(self, window: Window) -> RunWaits | None:
        """What the windows of a run say of where ranks wait: all their ranks, under the default gates."""
        everyone = self._of_run(window.run_id, ViewState())
        return run_waits(everyone.values()).get((window.run_id, window.stages))

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
                windows += self._runs[view.reference.run_id]  # its run says where its ranks wait
            found = _judge(windows, view)
            self._judged[name] = {one.window: one for one in found if one.run_id == run_id}
        return self._judged[name]


def _renamed(found: LoadedWindow, names: Pseudonyms) -> LoadedWindow:
    """A window under its pseudonyms, its files under the names that the recorder would give them."""
    window = names.window(found.window)
    packets = tuple(
        replace(packet, path=packet_path(Path(), window.run_id, window.number, packet.part_rank))
        for packet in found.packets
    )
    return replace(found, window=window, packets=packets)


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
