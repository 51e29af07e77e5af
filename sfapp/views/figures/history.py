"""One run over its windows (accounting.md §12)."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.model.diagnosis import QUIET_SEVERITY
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, f4, figure, legend_above, note, plain
from sfapp.views.figures.window_timeline import Row, hover_of, stage_order
from sfapp.views.plot_registry import PlotSpec, RunInput

PLOT = PlotSpec(
    name="run_history",
    title="Run history",
    help=(
        "Triangles are windows that need attention. The dots at the bottom show the suspect rank of each of "
        "them, in the colour of the suspect stage."
    ),
    source=RunInput,
    build=lambda given, dark: run_history(
        given.rows, dark=dark, selected=given.selected and given.selected[1], reference=given.reference
    ),
    reads=(),
    tabs=(),
    report=None,
    notebook=None,
)


def run_history(
    rows: Sequence[Row], *, dark: bool = False, selected: int | None = None, reference: int | None = None
) -> Figure:
    """One run over its windows: mean step, shares, and the rank that the aim names.

    Args:
        rows: of one run, ascending.
        selected: window number to frame. reference: the run's healthy window.
    """
    if not rows:
        return empty_figure("this run has no windows", dark=dark, title=PLOT.title)
    unit = format.unit_for(max(float(row["step_time_ns"] or 0) for row in rows))
    numbers = [row["window"] for row in rows]
    colours = palette.theme(dark)
    healthy = next((row for row in rows if row["window"] == reference), None)
    shapes: list[dict[str, object]] = []
    annotations = []
    if healthy is not None and healthy["step_time_ns"]:
        level = float(healthy["step_time_ns"]) / unit.ns
        shapes.append(
            {
                "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level,
                "line": {"color": colours.good, "width": 1.5, "dash": "dash"},
            }
        )  # fmt: skip
        annotations.append(
            note(
                f"healthy window {reference}: {format.duration(healthy['step_time_ns'])}", 1, level, dark,
                xref="paper", xanchor="right", yanchor="top", font={"size": 11, "color": colours.good},
            )
        )  # fmt: skip
    if selected is not None and selected in numbers:
        shapes.append(
            {
                "type": "rect", "x0": selected - 0.5, "x1": selected + 0.5, "yref": "paper", "y0": 0, "y1": 1,
                "line": {"color": colours.ink, "width": 2}, "name": "selected",
            }
        )  # fmt: skip
    aimed = [row["aim_rank"] for row in rows if row["aim_rank"] is not None]
    few = bool(aimed) and max(aimed) - min(aimed) < 5  # else whole numbers repeat on the axis
    slowest = max(rows, key=lambda row: row["step_time_ns"] or 0)
    return figure(
        [_step_times(rows, unit, dark), *_share_areas(rows, dark), _aims(rows, dark)],
        dark=dark,
        title=PLOT.title,
        subtitle="mean exposed step; shares of the exposed time; the rank that the aim names",
        alt=(
            f"{format.counted(len(rows), 'window')} of run {rows[0]['run_id']}; the slowest is window "
            f"{slowest['window']} with {format.duration(slowest['step_time_ns'])} a step."
        ),
        height=520,
        barmode="stack",
        bargap=0.08 if len(rows) <= 120 else 0,
        xaxis=axis(dark, showgrid=False, anchor="y3", tickformat="d", title="window", nticks=16),
        yaxis=axis(dark, domain=[0.68, 1], ticksuffix=f" {unit.name}", nticks=5, rangemode="tozero"),
        yaxis2=axis(dark, domain=[0.3, 0.62], tickformat=".0%", range=[0, 1], nticks=5),
        yaxis3=axis(
            dark, domain=[0, 0.22], tickprefix="r", tickformat="d", **({"dtick": 1} if few else {"nticks": 5})
        ),
        shapes=shapes,
        annotations=annotations,
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        clickmode="event",
        uirevision=f"run/{rows[0]['run_id']}",
    )


def _step_times(rows: Sequence[Row], unit: format.Unit, dark: bool) -> Trace:
    colours = palette.theme(dark)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row["window"] for row in rows],
        "y": [None if row["step_time_ns"] is None else row["step_time_ns"] / unit.ns for row in rows],
        "line": {"color": colours.ink, "width": 1.5},
        "marker": {
            "size": 9 if len(rows) <= 120 else 5,
            "color": [palette.severity_colour(row["severity"], colours) for row in rows],
            "symbol": [
                "circle" if (row["severity"] or 0.0) < QUIET_SEVERITY else "triangle-up" for row in rows
            ],
            "line": {"color": colours.ink, "width": 1},
        },
        "customdata": [[row["run_id"], row["window"]] for row in rows],
        "hovertext": [hover_of(row) for row in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
        "name": "mean step",
    }


def _share_areas(rows: Sequence[Row], dark: bool) -> list[Trace]:
    stages = stage_order(rows)
    by_stage = palette.stage_colours(stages, dark)
    short = format.short_stages(stages)
    return [
        {
            "type": "bar",
            "x": [row["window"] for row in rows],
            "y": f4([(row["shares"] or {}).get(stage, 0.0) for row in rows]),
            "yaxis": "y2",
            "name": plain(short[stage], 28),
            "marker": {
                "color": by_stage[stage],
                "line": {"color": palette.theme(dark).surface, "width": 0.5},
            },
            "customdata": [[row["run_id"], row["window"]] for row in rows],
            "hovertemplate": f"window %{{x}}<br>{plain(short[stage])} %{{y:.1%}}<extra></extra>",
        }
        for stage in stages
    ]


def _aims(rows: Sequence[Row], dark: bool) -> Trace:
    """The aim's rank, by stage colour; quiet windows are left out."""
    loud = [row for row in rows if (row["severity"] or 0.0) >= QUIET_SEVERITY and row["aim_rank"] is not None]
    by_stage = palette.stage_colours(stage_order(rows), dark)
    colours = palette.theme(dark)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [row["window"] for row in loud],
        "y": [row["aim_rank"] for row in loud],
        "yaxis": "y3",
        "marker": {
            "size": 10,
            "color": [by_stage.get(row["aim_stage"], colours.muted) for row in loud],
            "line": {"color": colours.ink, "width": 1},
        },
        "customdata": [[row["run_id"], row["window"]] for row in loud],
        "hovertext": [hover_of(row) for row in loud],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
        "name": "aim",
    }
