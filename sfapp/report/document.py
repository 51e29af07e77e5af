"""What a report says, before it has a format: plain data, the same for every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sfapp.accounting import Measures, measure
from sfapp.model import Baseline, Diagnosis, Window
from sfapp.model.gates import GATE_BY_NAME, Gates
from sfapp.views import figures, words

Draw = Callable[[Measures, Diagnosis, bool], figures.Figure]

PLOTS: dict[str, Draw] = {
    "frontier_steps": lambda m, d, dark: figures.frontier_steps(m, d, None, dark=dark),
    "prefix_crossings": lambda m, d, dark: figures.prefix_crossings(m, d, None, dark=dark),
    "step_timeline": lambda m, d, dark: figures.step_timeline(m, d, None, dark=dark),
    "routing_pareto": lambda m, d, dark: figures.routing_pareto(d, dark=dark),
    "ambiguity_plane": lambda m, d, dark: figures.ambiguity_plane(d, dark=dark),
    "rank_step_heatmap": lambda m, d, dark: figures.rank_step_heatmap(m, d, dark=dark),
}
"""The plots of a window in a report, by the name of their reading aid, in order."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A file that the numbers come from."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot in both themes, and how to read it."""

    light: figures.Figure
    dark: figures.Figure
    hint: str


@dataclass(frozen=True, slots=True)
class Section:
    """One window.

    Attributes:
        size: ``40 steps 160–199 · 8 ranks on 2 nodes``.
        gates: how each gate differs from its default, in words; empty where none does.
    """

    run_id: str
    window: int
    size: str
    verdict: words.Verdict
    plots: tuple[Plot, ...]
    packets: tuple[Packet, ...]
    gates: tuple[str, ...]
    frontier: str
    baseline: str
    reference: str


@dataclass(frozen=True, slots=True)
class Report:
    """Windows in the order in which they are told.

    Attributes:
        command: reproduces the report from the packets.
        version: of sfapp.
    """

    title: str
    command: str
    version: str
    sections: tuple[Section, ...]


def document(
    title: str,
    command: str,
    version: str,
    windows: Sequence[tuple[Window, Diagnosis, Sequence[Packet]]],
) -> Report:
    """A report on some windows.

    Args:
        windows: each with all its ranks, the verdict on it (on the group it was made for), and its files.
    """
    return Report(title, command, version, tuple(_section(*one) for one in windows))


def _section(window: Window, diagnosis: Diagnosis, packets: Sequence[Packet]) -> Section:
    baseline: Baseline = diagnosis.baseline
    measures = measure(window.of_group(diagnosis.group), baseline, diagnosis.reference)
    steps, ranks = window.step_N, window.ranks
    size = f"{len(steps)} steps {steps[0]}–{steps[-1]} · {len(ranks)} ranks on {len(ranks.nodes)} nodes"
    if diagnosis.group != "all":
        size += f" · only {diagnosis.group}"
    reference = diagnosis.reference
    return Section(
        run_id=diagnosis.run_id,
        window=diagnosis.window,
        size=size,
        verdict=words.verdict(diagnosis, ranks),
        plots=tuple(
            Plot(draw(measures, diagnosis, False), draw(measures, diagnosis, True), words.HINTS[name])
            for name, draw in PLOTS.items()
        ),
        packets=tuple(packets),
        gates=gates_moved(diagnosis.gates),
        frontier=diagnosis.frontier.replace("_", "-"),
        baseline=baseline.replace("_", " "),
        reference="none: this run has no healthy window"
        if reference is None
        else f"{reference.run_id}/{reference.window}",
    )


def gates_moved(gates: Gates) -> tuple[str, ...]:
    """``τC 0.9 (default 0.8)`` for every gate that was moved."""
    default = Gates()
    return tuple(
        f"{GATE_BY_NAME[name].symbol if name in GATE_BY_NAME else name} {value} "
        f"(default {getattr(default, name)})"
        for name, value in gates.changed().items()
    )
