"""Split each collective's time into the wait for the last rank and the transfer (kair.md, Collectives)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sfapp.model import Diagnosis
from sfapp.operators import Collective, Findings
from sfapp.views import format, palette
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    empty_figure,
    f4,
    figure,
    legend_above,
    plain,
    revision,
)
from sfapp.views.plot_registry import FindingsInput, Placement, PlotSpec
from sfapp.views.text.stragglers import COLLECTIVE_VERDICTS, COLLECTIVE_WORDS

PLOT = PlotSpec(
    name="collective_split",
    title="Wait for the last rank",
    help=(
        "One bar per collective. Hatched: how long the first rank to arrive waits for the last one, which is "
        "late. Solid: the time after it arrived, computing or transfer. Grey: the two cannot be separated."
    ),
    source=FindingsInput,
    build=lambda given, dark: collective_split(given.findings, given.diagnosis, given.view.step, dark=dark),
    reads=("findings", "step"),
    tabs=(Placement("stragglers", 120),),
    report=None,
    notebook=None,
)

COLLECTIVES_SHOWN = 200
"""Maximum number of drawn bars, the longest ones: more would be too thin to distinguish."""

_TICKS = 12


def collective_split(
    findings: Findings, diagnosis: Diagnosis, step: int | None = None, *, dark: bool = False
) -> Figure:
    """Return one bar per collective in order of time: wait and transfer, grey where they cannot be separated.

    Args:
        step: a logical step number to frame.
    """
    found = findings.blame.collectives
    if not found:
        return empty_figure(_why_none(findings), dark=dark, title=PLOT.title)
    longest = sorted(range(len(found)), key=lambda place: -_whole(found[place]))[:COLLECTIVES_SHOWN]
    shown = [found[place] for place in sorted(longest)]
    unit = format.unit_for(max(map(_whole, shown)))
    colours = palette.theme(dark)
    return figure(
        _traces(shown, unit, dark),
        dark=dark,
        title=PLOT.title,
        subtitle="per collective: wait of the first rank to arrive for the last one, then the rest",
        alt=_in_words(found),
        notes=_notes(found, len(shown)),
        height=340,
        barmode="stack",
        bargap=0.15 if len(shown) <= 60 else 0,
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        xaxis=_step_ticks(shown, dark),
        yaxis=axis(dark, ticksuffix=f" {unit.name}", nticks=6, rangemode="tozero"),
        shapes=_frame(shown, step, colours),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=revision(diagnosis, "collectives"),
    )


def _traces(shown: Sequence[Collective], unit: format.Unit, dark: bool) -> list[Trace]:
    """Return wait and transfer as stacked bars, in grey if they cannot be separated."""
    is_known = [each.verdict != "inconclusive" for each in shown]
    pairs = list(zip(shown, is_known, strict=True))
    wait = [each.skew_ns if known else 0 for each, known in pairs]
    transfer = [each.transfer_ns if known else 0 for each, known in pairs]
    unknown = [0 if known else _whole(each) for each, known in pairs]
    hover = [_hover(each) for each in shown]

    def bars(values: list[int], name: str, colour: str, is_hatched: bool = False) -> Trace:
        return _bars([value / unit.ns for value in values], hover, name, colour, is_hatched)

    traces = [
        bars(wait, "wait for the last rank", "#D55E00", is_hatched=True),
        bars(transfer, "after the last rank arrived", "#56B4E9" if dark else "#0072B2"),
    ]
    if not all(is_known):
        traces.append(bars(unknown, "cannot be separated", palette.theme(dark).quiet))
    return traces


def _bars(values: list[float], hover: list[str], name: str, colour: str, is_hatched: bool) -> Trace:
    return {
        "type": "bar",
        "x": list(range(len(values))),
        "y": f4(values),
        "name": name,
        "marker": {
            "color": colour,
            "line": {"color": colour, "width": 0.5},
            "pattern": {
                "shape": "/" if is_hatched else "",
                "fillmode": "replace",
                "fgcolor": colour,
                "bgcolor": palette.alpha(colour, 0.12),
                "size": 6,
                "solidity": 0.4,
            },
        },
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _whole(collective: Collective) -> int:
    return collective.skew_ns + collective.transfer_ns


def _why_none(findings: Findings) -> str:
    if findings.source == "stages":
        return "derived from stages, and no stage is known to synchronise ranks"
    return "no event is part of a collective with a known group and number"


def _hover(collective: Collective) -> str:
    lines = [
        f"<b>{plain(collective.name, 60)}</b>",
        f"group {plain(collective.group, 40)}, number {collective.sequence}, "
        f"{f'step {collective.step}' if collective.step >= 0 else 'outside any step'}",
        f"{format.counted(collective.ranks, 'rank')}, last to arrive: rank {collective.last_rank}",
        f"wait {format.duration(collective.skew_ns)}, then {format.duration(collective.transfer_ns)}",
        COLLECTIVE_WORDS[collective.verdict] + (f": {plain(collective.why, 120)}" if collective.why else ""),
    ]
    if collective.slow_ns:
        lines.append(f"{format.duration(collective.slow_ns)} longer after the last arrival than elsewhere")
    return "<br>".join(lines)


def _step_ticks(shown: Sequence[Collective], dark: bool) -> dict[str, object]:
    """Return the axis of collectives, side by side, with a step number below the first one of each step."""
    begins = [
        (place, collective.step)
        for place, collective in enumerate(shown)
        if collective.step >= 0 and (place == 0 or collective.step != shown[place - 1].step)
    ]
    some = begins[:: -(-len(begins) // _TICKS) or 1]
    return axis(
        dark, showgrid=False, title="collectives in order of time, by step", tickangle=0,
        tickvals=[place for place, _ in some], ticktext=[str(step) for _, step in some],
        range=[-0.6, len(shown) - 0.4],
    )  # fmt: skip


def _frame(shown: Sequence[Collective], step: int | None, colours: palette.Theme) -> list[dict[str, object]]:
    places = [place for place, collective in enumerate(shown) if collective.step == step]
    if not places:
        return []
    return [
        {
            "type": "rect", "x0": places[0] - 0.5, "x1": places[-1] + 0.5, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": colours.ink, "width": 1.5}, "name": "step",
        }
    ]  # fmt: skip


def _notes(found: Sequence[Collective], shown: int) -> tuple[str, ...]:
    notes = []
    if shown < len(found):
        notes.append(f"The {shown} longest of {format.count(len(found))} collectives are shown.")
    inconclusive = [collective for collective in found if collective.verdict == "inconclusive"]
    if inconclusive:
        why, _ = Counter(collective.why for collective in inconclusive).most_common(1)[0]
        notes.append(
            f"{format.count(len(inconclusive))} of {format.count(len(found))} are inconclusive, "
            f"most often: {why}."
        )
    return tuple(notes)


def _in_words(found: Sequence[Collective]) -> str:
    counts = {
        verdict: sum(collective.verdict == verdict for collective in found) for verdict in COLLECTIVE_VERDICTS
    }
    parts = [
        f"{format.count(count)} {COLLECTIVE_WORDS[verdict]}" for verdict, count in counts.items() if count
    ]
    worst = max(
        found, key=lambda collective: collective.skew_ns if collective.verdict != "inconclusive" else -1
    )
    text = f"{format.counted(len(found), 'collective')}: {format.listed(parts)}."
    if worst.verdict == "inconclusive":
        return text
    return (
        f"{text} The longest wait, {format.duration(worst.skew_ns)}, was for rank {worst.last_rank} in "
        f"{format.clip(worst.name)}."
    )
