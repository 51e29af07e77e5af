"""Draw one run over its windows (accounting.md §12)."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.model.onsets import Episode, StepEstimate
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, f4, figure, legend_above, note, plain
from sfapp.views.figures.window_traces import hover_of, stage_order
from sfapp.views.plot_registry import PlotSpec, RunInput
from sfapp.views.text.onsets import episode_line
from sfapp.views.window_level import Row, window_colour

PLOT = PlotSpec(
    name="run_history",
    title="Run history",
    help=(
        "Triangles are windows that need attention, crosses windows that lack data. The dots at the bottom "
        "show the suspect rank of each triangle, in the colour of the suspect stage. Marks at the top show "
        "the steps at which effects began (pointing right) and ended (pointing left), in the colour of the "
        "stage."
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
    rows: Sequence[Row],
    *,
    dark: bool = False,
    selected: int | None = None,
    reference: int | None = None,
    episodes: Sequence[Episode] = (),
) -> Figure:
    """Return one run over its windows: mean step, shares, and the suspect rank.

    Args:
        rows: of one run, ascending.
        selected: window number to frame. reference: the run's healthy window.
        episodes: of the run; their first and last steps are marked.
    """
    if not rows:
        return empty_figure("this run has no windows", dark=dark, title=PLOT.title)
    unit = format.unit_for(max(float(row["step_time_ns"] or 0) for row in rows))
    healthy = next((row for row in rows if row["window"] == reference and row["step_time_ns"]), None)
    suspects = [row["aim_rank"] for row in rows if row["aim_rank"] is not None]
    is_narrow = bool(suspects) and max(suspects) - min(suspects) < 5  # else whole numbers repeat
    slowest = max(rows, key=lambda row: row["step_time_ns"] or 0)
    return figure(
        [_step_times(rows, unit, dark), *_share_areas(rows, dark), _suspect_ranks(rows, dark),
         *_onsets(rows, episodes, unit, dark)],
        dark=dark,
        title=PLOT.title,
        subtitle="mean exposed step; shares of the exposed time; suspect rank",
        alt=(
            f"{format.counted(len(rows), 'window')} of run {rows[0]['run_id']}; the slowest is window "
            f"{slowest['window']} with {format.duration(slowest['step_time_ns'])} per step."
        ),
        height=520,
        barmode="stack",
        bargap=0.08 if len(rows) <= 120 else 0,
        xaxis=axis(dark, showgrid=False, anchor="y3", tickformat="d", title="window", nticks=16),
        yaxis=axis(dark, domain=[0.68, 1], ticksuffix=f" {unit.name}", nticks=5, rangemode="tozero"),
        yaxis2=axis(dark, domain=[0.3, 0.62], tickformat=".0%", range=[0, 1], nticks=5),
        yaxis3=axis(
            dark, domain=[0, 0.22], tickprefix="r", tickformat="d",
            **({"dtick": 1} if is_narrow else {"nticks": 5}),
        ),
        shapes=[
            *([] if healthy is None else [_healthy_line(healthy, unit, dark)]),
            *(_frame(row["window"], dark) for row in rows if row["window"] == selected),
        ],
        annotations=[] if healthy is None else [_healthy_note(healthy, unit, dark)],
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        clickmode="event",
        uirevision=f"run/{rows[0]['run_id']}",
    )  # fmt: skip


def _healthy_line(healthy: Row, unit: format.Unit, dark: bool) -> dict[str, object]:
    level = float(healthy["step_time_ns"]) / unit.ns
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level,
        "line": {"color": palette.theme(dark).good, "width": 1.5, "dash": "dash"},
    }  # fmt: skip


def _healthy_note(healthy: Row, unit: format.Unit, dark: bool) -> dict[str, object]:
    text = f"healthy window {healthy['window']}: {format.duration(healthy['step_time_ns'])}"
    return note(
        text, 1, float(healthy["step_time_ns"]) / unit.ns, dark, xref="paper", xanchor="right", yanchor="top",
        font={"size": 12, "color": palette.theme(dark).good},
    )  # fmt: skip


def _frame(window: int, dark: bool) -> dict[str, object]:
    return {
        "type": "rect", "x0": window - 0.5, "x1": window + 0.5, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": palette.theme(dark).ink, "width": 2}, "name": "selected",
    }  # fmt: skip


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
            "color": [window_colour(row, colours) for row in rows],
            "symbol": [
                "x" if row["lacks_data"] else "triangle-up" if row["needs_attention"] else "circle"
                for row in rows
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


def _onsets(rows: Sequence[Row], episodes: Sequence[Episode], unit: format.Unit, dark: bool) -> list[Trace]:
    """Return marks where effects began and ended, above the step times."""
    top = max(float(row["step_time_ns"] or 0) for row in rows) / unit.ns
    marks: list[tuple[float, str, Episode]] = []
    for episode in episodes:
        for found, window, symbol in (
            (episode.began, episode.first_window, "triangle-right"),
            (episode.ended, episode.last_window, "triangle-left"),
        ):
            place = None if found is None else _place(rows, found, window)
            if place is not None:
                marks.append((place, symbol, episode))
    if not marks:
        return []
    by_stage = palette.stage_colours(stage_order(rows), dark)
    colours = palette.theme(dark)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [round(place, 3) for place, _, _ in marks],
            "y": f4([1.08 * top] * len(marks)),
            "marker": {
                "symbol": [symbol for _, symbol, _ in marks],
                "size": 10,
                "color": [by_stage.get(episode.stage, colours.muted) for _, _, episode in marks],
                "line": {"color": colours.ink, "width": 1},
            },
            "hovertext": [plain(episode_line(episode), 160) for _, _, episode in marks],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "showlegend": False,
            "name": "began and ended",
        }
    ]


def _place(rows: Sequence[Row], found: StepEstimate, window: int) -> float | None:
    """Return where on the axis of windows a step lies; None if no window has it.

    Args:
        window: near which it is. A job that returned to a checkpoint ran the same steps in other windows too.
    """
    step = (found.low + found.high) // 2 if found.step is None else found.step
    having = [
        row
        for row in rows
        if row.get("first_step") is not None and row["first_step"] <= step <= row["last_step"]
    ]
    if not having:
        return None
    row = min(having, key=lambda row: abs(int(row["window"]) - window))
    steps = int(row["last_step"]) - int(row["first_step"]) + 1
    return int(row["window"]) - 0.5 + (step - int(row["first_step"]) + 0.5) / steps


def _suspect_ranks(rows: Sequence[Row], dark: bool) -> Trace:
    """Return the suspect ranks in the colours of their stages; healthy windows are left out."""
    slow = [row for row in rows if row["needs_attention"] and row["aim_rank"] is not None]
    by_stage = palette.stage_colours(stage_order(rows), dark)
    colours = palette.theme(dark)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [row["window"] for row in slow],
        "y": [row["aim_rank"] for row in slow],
        "yaxis": "y3",
        "marker": {
            "size": 10,
            "color": [by_stage.get(row["aim_stage"], colours.muted) for row in slow],
            "line": {"color": colours.ink, "width": 1},
        },
        "customdata": [[row["run_id"], row["window"]] for row in slow],
        "hovertext": [hover_of(row) for row in slow],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
        "name": "suspect",
    }
