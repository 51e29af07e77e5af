"""What a collective's time went into: waiting for the last rank, or the transfer (kair.md, Collectives)."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.model import Diagnosis
from sfapp.operators import Collective, Findings
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, axis, empty_figure, f4, figure, legend_above, plain, revision
from sfapp.views.plot_registry import FindingsInput, Placement, PlotSpec
from sfapp.views.text.stragglers import COLLECTIVE_VERDICTS

PLOT = PlotSpec(
    name="collective_split",
    title="Wait vs transfer",
    help=(
        "One bar per collective. Hatched: how long the first rank to arrive waits for the last one, which is "
        "late. Solid: the transfer itself, on the network. Grey: the two cannot be separated."
    ),
    source=FindingsInput,
    build=lambda given, dark: collective_split(given.findings, given.diagnosis, given.view.step, dark=dark),
    reads=("findings", "step"),
    tabs=(Placement("stragglers", 120),),
    report=None,
    notebook=None,
)

COLLECTIVES_SHOWN = 200
"""Bars drawn at most, the longest ones: more are too thin to be told apart."""

_TICKS = 12


def collective_split(
    findings: Findings, diagnosis: Diagnosis, step: int | None = None, *, dark: bool = False
) -> Figure:
    """One bar a collective, in order of time: arrival skew and transfer; grey where nothing tells which.

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
    told = [met.verdict != "inconclusive" for met in shown]
    skew = [met.skew_ns / unit.ns if known else 0.0 for met, known in zip(shown, told, strict=True)]
    transfer = [met.transfer_ns / unit.ns if known else 0.0 for met, known in zip(shown, told, strict=True)]
    unknown = [0.0 if known else _whole(met) / unit.ns for met, known in zip(shown, told, strict=True)]
    hover = [_hover(met) for met in shown]

    def bars(values: list[float], name: str, colour: str, hatched: bool) -> dict[str, object]:
        return {
            "type": "bar",
            "x": list(range(len(shown))),
            "y": f4(values),
            "name": name,
            "marker": {
                "color": colour,
                "line": {"color": colour, "width": 0.5},
                "pattern": {
                    "shape": "/" if hatched else "",
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

    traces = [
        bars(skew, "waiting for the last rank", "#D55E00", True),
        bars(transfer, "transfer", "#56B4E9" if dark else "#0072B2", False),
    ]
    if not all(told):
        traces.append(bars(unknown, "cannot be told apart", colours.quiet, False))
    return figure(
        traces,
        dark=dark,
        title=PLOT.title,
        subtitle="per collective: how long the first rank waited for the last, and what came after",
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


def _whole(met: Collective) -> int:
    return met.skew_ns + met.transfer_ns


def _why_none(findings: Findings) -> str:
    if findings.source == "stages":
        return "made from stages, none of which is known to make ranks wait for each other"
    return "no collective with a group and a number is among these events"


def _hover(met: Collective) -> str:
    lines = [
        f"<b>{plain(met.name, 60)}</b>",
        f"group {plain(met.group, 40)}, number {met.sequence}, "
        f"{f'step {met.step}' if met.step >= 0 else 'outside any step'}",
        f"{format.counted(met.ranks, 'rank')}, the last to arrive: rank {met.last_rank}",
        f"waiting {format.duration(met.skew_ns)}, transfer {format.duration(met.transfer_ns)}",
        f"{met.verdict}{f': {plain(met.why, 120)}' if met.why else ''}",
    ]
    if met.slow_ns:
        lines.append(f"transfer {format.duration(met.slow_ns)} slower than elsewhere")
    return "<br>".join(lines)


def _step_ticks(shown: Sequence[Collective], dark: bool) -> dict[str, object]:
    """Collectives stand side by side; where a step begins, its number stands below."""
    begins = [
        (place, met.step)
        for place, met in enumerate(shown)
        if met.step >= 0 and (place == 0 or met.step != shown[place - 1].step)
    ]
    some = begins[:: -(-len(begins) // _TICKS) or 1]
    return axis(
        dark, showgrid=False, title="collectives in order of time, by step", tickangle=0,
        tickvals=[place for place, _ in some], ticktext=[str(step) for _, step in some],
        range=[-0.6, len(shown) - 0.4],
    )  # fmt: skip


def _frame(shown: Sequence[Collective], step: int | None, colours: palette.Theme) -> list[dict[str, object]]:
    places = [place for place, met in enumerate(shown) if met.step == step]
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
    unsure = [met for met in found if met.verdict == "inconclusive"]
    if unsure:
        why = max({met.why for met in unsure}, key=lambda why: sum(met.why == why for met in unsure))
        notes.append(
            f"{format.count(len(unsure))} of {format.count(len(found))} are inconclusive, most often: {why}."
        )
    return tuple(notes)


def _in_words(found: Sequence[Collective]) -> str:
    counts = {verdict: sum(met.verdict == verdict for met in found) for verdict in COLLECTIVE_VERDICTS}
    parts = [f"{format.count(count)} {verdict}" for verdict, count in counts.items() if count]
    worst = max(found, key=lambda met: met.skew_ns if met.verdict != "inconclusive" else -1)
    text = f"{format.counted(len(found), 'collective')}: {format.listed(parts)}."
    if worst.verdict == "inconclusive":
        return text
    return (
        f"{text} The longest wait, {format.duration(worst.skew_ns)}, was for rank {worst.last_rank} in "
        f"{format.clip(worst.name)}."
    )
