"""Draw what a node reports while a job runs: one sampled value over time per plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, axis, empty_figure, f4, figure, legend_above
from sfapp.views.plot_registry import LiveInput, Placement, PlotSpec

_HELP = (
    "Values that the machine reports, read once a second; older ones are shown at a lower resolution. "
    "Compare them with the step times, which do not include them."
)

_NODE_FIELDS: Mapping[str, str] = {
    "cpu_percent": "CPU",
    "load_1min": "Load, 1 min",
    "memory_used_bytes": "Memory in use",
    "disk_read_bytes_per_s": "Read from disks",
    "disk_written_bytes_per_s": "Written to disks",
    "network_received_bytes_per_s": "Received",
    "network_sent_bytes_per_s": "Sent",
}

_GPU_FIELDS: Mapping[str, str] = {
    "utilisation_percent": "GPU utilisation",
    "memory_used_bytes": "GPU memory",
    "temperature_celsius": "GPU temperature",
    "power_watts": "GPU power",
    "sm_clock_mhz": "GPU clock",
}


def _node_plot(position: int, field: str, title: str) -> PlotSpec[LiveInput]:
    return PlotSpec(
        name=f"live_node_{field}",
        title=title,
        help=_HELP,
        help_name="samples_over_time",
        source=LiveInput,
        build=lambda given, dark: samples_over_time(
            given.node_samples, field, title=title, why=given.no_samples_reason, run=given.run, dark=dark
        ),
        reads=("history", "node"),
        tabs=(Placement("live:node", position, 4),),
        report=None,
        notebook=None,
    )


def _gpu_plot(position: int, field: str, title: str) -> PlotSpec[LiveInput]:
    return PlotSpec(
        name=f"live_gpu_{field}",
        title=title,
        help=_HELP,
        help_name="samples_over_time",
        source=LiveInput,
        build=lambda given, dark: samples_over_time(
            given.gpu_samples,
            field,
            title=title,
            subject="gpu",
            why="the driver does not report it for these GPUs",
            run=given.run,
            dark=dark,
        ),
        reads=("history", "node"),
        tabs=(Placement("live:node", position, 4),),
        report=None,
        notebook=None,
        applies=lambda given: not given.no_gpus_reason,
    )


NODE_PLOTS = tuple(
    _node_plot(position, field, title) for position, (field, title) in enumerate(_NODE_FIELDS.items(), 30)
)

GPU_PLOTS = tuple(
    _gpu_plot(position, field, title) for position, (field, title) in enumerate(_GPU_FIELDS.items(), 40)
)

NO_GPUS = PlotSpec(
    name="live_no_gpus",
    title="GPUs",
    help=_HELP,
    help_name="samples_over_time",
    source=LiveInput,
    build=lambda given, dark: no_gpus(given.no_gpus_reason, dark=dark),
    reads=("newest", "node"),
    tabs=(Placement("live:node", 50, 4),),
    report=None,
    notebook=None,
    applies=lambda given: bool(given.no_gpus_reason),
)


def samples_over_time(
    rows: Sequence[Mapping[str, Any]],
    field: str,
    *,
    title: str,
    subject: str = "node_rank",
    why: str = "",
    run: str = "",
    dark: bool = False,
) -> Figure:
    """Return one sampled value over time, one line per subject.

    Args:
        rows: of the store, by subject and time, with ``sampled_at``; values that are None leave a gap.
        field: the value; its name contains the unit.
        subject: the field that distinguishes the lines: ``node_rank``, ``gpu`` or ``rank``.
        why: the reason if there are no values.
    """
    known = [row for row in rows if row[field] is not None]
    if not known:
        message = why or "no samples of this value"
        return empty_figure(message, dark=dark, title=title, height=180)
    by_subject: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_subject.setdefault(row[subject], []).append(row)
    kind = subject.removesuffix("_rank")
    colours = palette.stage_colours([f"{kind} {number}" for number in by_subject], dark)
    divisor, unit = _axis_unit(field, max(float(row[field]) for row in known))
    newest = {number: found[-1][field] for number, found in by_subject.items()}
    largest = max(newest, key=lambda number: newest[number] or 0.0)
    return figure(
        [
            {
                "type": "scatter",
                "mode": "lines",
                "x": [row["sampled_at"].isoformat() for row in found],
                "y": f4([np.nan if row[field] is None else row[field] / divisor for row in found]),
                "name": f"{kind} {number}",
                "line": {"color": colours[f"{kind} {number}"], "width": 1.5},
                "connectgaps": False,
                "text": [format.measured(field, row[field]) for row in found],
                "hovertemplate": f"{kind} {number}: %{{text}}<br>%{{x|%H:%M:%S}}<extra></extra>",
            }
            for number, found in by_subject.items()
        ],
        dark=dark,
        title=title,
        alt=f"{title}: {kind} {largest} is at {format.measured(field, newest[largest])}.",
        height=180,
        xaxis=axis(dark, type="date", showgrid=False, nticks=6),
        yaxis=axis(dark, ticksuffix=f" {unit}" if unit else "", nticks=4, rangemode="tozero"),
        showlegend=1 < len(by_subject) <= 8,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}",
    )


def _axis_unit(field: str, largest: float) -> tuple[float, str]:
    """Return the divisor of the values on an axis, and the resulting unit."""
    unit = format.unit_of(field)
    if unit == "ns":
        found = format.unit_for(largest)
        return found.ns, found.name
    if unit in ("B", "B/s"):
        for divisor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if largest >= divisor:
                return divisor, f"{prefix}{unit}"
    return 1.0, unit


def no_gpus(why: str, *, dark: bool = False) -> Figure:
    """Return an empty figure instead of a node's GPUs."""
    return empty_figure(why, dark=dark, title=NO_GPUS.title, height=180)
