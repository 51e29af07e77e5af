"""Build the tables, choosers and cards of the stragglers tab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nicegui import ui

from sfapp.app.notices import notices
from sfapp.app.panels.choosers import show_options
from sfapp.app.panels.plot_card import Reactions
from sfapp.app.panels.tables import choice_table, data_table, refill, show_choice, titled
from sfapp.app.panels.view_model import Follow, TabViewModel
from sfapp.app.theme import box, label_text, link
from sfapp.importers.perfetto_export import is_within_limits
from sfapp.model.view import ViewState
from sfapp.operators import Findings, busiest
from sfapp.operators.cohorts import MIN_COHORT
from sfapp.views import format, text
from sfapp.views import straggler_tables as tables
from sfapp.views.address import window_page
from sfapp.views.selection import operator_shown, step_shown

CAUSES_LISTED = 50
"""Maximum number of causes in the table; the JSON has all, but most others have no path."""

RANKS_OFFERED = 256
"""Maximum number of ranks in a chooser, those with the highest abnormality score."""

TONES: Mapping[str, str] = {
    "agree": "alarm",
    "same_durations": "warn",
    "differ": "warn",
    "frontier_only": "warn",
    "kair_only": "warn",
    "quiet": "quiet",
}
"""The tone of each kind of agreement."""

TOO_FEW = "At least three ranks are needed to identify which one differs."

ALL = "all"
"""Value of a chooser for every rank."""

PERFETTO = "https://ui.perfetto.dev"


def headline_card(model: TabViewModel, _: Reactions) -> None:
    """Show the findings in operators and whether the verdict agrees."""
    findings, agreement = model.findings, model.agreement
    if agreement is None:
        return
    with box("card stragglers-head", "section") as card:
        card.props["aria-label"] = "Findings in operators"
        card.mark("stragglers-headline")
        with box(f"small-verdict tone-{TONES[agreement.kind]}"):
            label_text(_extent(findings), "div", "eyebrow")
            label_text(
                text.stragglers_headline(
                    findings, agreement, model.measures.window.ranks, model.diagnosis.pipeline
                ),
                "h2",
                "headline",
            )
            with box("lines", "ul"):
                for sentence in text.agreement_sentences(agreement, model.diagnosis):
                    label_text(sentence, "li")
        if model.examined is not None and model.examined.notes:
            notices(model.examined.notes)


def _extent(findings: Findings) -> str:
    """Return the extent of the analysis: ``Operators · 1,920 operator events of 8 ranks, 6 steps``."""
    operators = findings.operators
    count = format.count(len(operators))
    where = f"{format.counted(len(operators.ranks), 'rank')}, {format.counted(len(operators.steps), 'step')}"
    if findings.source == "operators":
        return f"Operators · {count} operator events of {where}"
    return f"Stages · {count} stage times of {where}; no operator trace for this window"


def files_card(model: TabViewModel, _: Reactions) -> None:
    """Link the visible slice for Perfetto, and the findings as data."""
    path = window_page(model.judged.source.key)
    whole = replace(model.view, step=None, ranks=())
    too_large = _too_large(model)
    with titled("Open in Perfetto", "every event in its lane, all ranks on one time axis; findings as data"):
        with box("links"):
            archives = [("perfetto-slice", _slice(model))]
            if not too_large:
                archives.append(("perfetto-window", whole))
            for name, view in archives:
                shown = link(_slice_words(view), view.href(f"{path}/perfetto.zip")).mark(name)
                shown.props["download"] = ""
            link("findings.json", model.view.href(f"{path}/findings.json"))
            for name in ("causes", "outliers", "collectives"):
                link(f"{name}.csv", model.view.href(f"{path}/{name}.csv"))
        with box("muted hint"):
            label_text("Download the archive, then open it at ", "span")
            there = link("ui.perfetto.dev", PERFETTO)
            there.props["target"], there.props["rel"] = "_blank", "noopener"
            label_text(
                " with Open trace file, or drop it there. It stays in your browser.",
                "span",
            )
        if too_large:
            label_text(too_large, "div", "muted hint")


def _too_large(model: TabViewModel) -> str:
    """Return why the whole window cannot be downloaded; empty if it can."""
    window = model.measures.window
    events = len(window.stages) * len(window.step_N) * len(window.ranks)
    if model.judged.source.operators:
        events = len(model.findings.operators)
    if is_within_limits(len(window.ranks), events):
        return ""
    of_ranks = format.counted(len(window.ranks), "rank")
    return (
        f"The whole window, {format.count(events)} events of {of_ranks}, is too large for one download. "
        "Choose other ranks and steps above, or write it with sfapp export perfetto."
    )


def _slice(model: TabViewModel) -> ViewState:
    """Return the view reduced to the step and the two ranks of the timeline."""
    step, _ = step_shown(model.findings, model.view)
    pair = text.suspect_and_peer(model.findings, model.diagnosis, model.view)
    return replace(model.view, step=step, ranks=tuple(sorted(rank for rank in pair if rank is not None)))


def _slice_words(view: ViewState) -> str:
    if view.step is None and not view.ranks:
        return "the whole window (.zip)"
    ranks = format.ranges(view.ranks)
    which = f"rank{'s' if len(view.ranks) > 1 else ''} {ranks}" if ranks else "all ranks"
    return f"{'all steps' if view.step is None else f'step {view.step}'} of {which} (.zip)"


def cause_table(model: TabViewModel, reactions: Reactions) -> Follow | None:
    """Show the ranked causes; a click selects one."""
    findings = model.findings
    causes = findings.blame.causes
    subtitle = (
        "those that delay other ranks first, then by cost; select one to see its path, timeline and frequency"
    )
    telling = tables.telling_causes(findings, model.diagnosis.step_time.mean_ns, model.view.cause)
    if len(telling) > CAUSES_LISTED:
        subtitle += f"; the first {CAUSES_LISTED} of {format.count(len(telling))}"
    if len(telling) < len(causes):
        small = format.count(len(causes) - len(telling))
        subtitle += f"; {small} more below {format.percent(tables.CAUSE_FLOOR, 1)} of a step"
    with titled("Causes", subtitle):
        if not causes:
            few = len(findings.similarity.ranks) < MIN_COHORT
            label_text(TOO_FEW if few else "No operator was late or slow enough to be a cause.", "p", "muted")
            return None
        looked_at = model.view

        def choose(place: int) -> None:
            step = looked_at.step
            seen = place < len(causes) and step in causes[place].steps
            reactions.look(cause=place or None, operator=None, ranks=(), step=step if seen else None)

        every = tables.cause_rows(findings)
        rows = [every[place] for place in telling[:CAUSES_LISTED]]
        table = choice_table(tables.CAUSE_COLUMNS, rows, "cause", choose, "name").mark("causes")

    def follow(model: TabViewModel) -> None:
        nonlocal looked_at
        looked_at = model.view
        show_choice(table, "cause", looked_at.cause or 0)

    follow(model)
    return follow


def timeline_choosers(model: TabViewModel, reactions: Reactions) -> Follow | None:
    """Show choosers for the two ranks of the timeline."""
    findings = model.findings
    similarity = findings.similarity
    offered = [similarity.ranks[place] for place in similarity.order_R[:RANKS_OFFERED].tolist()]
    pair = text.suspect_and_peer(findings, model.diagnosis, model.view)
    if pair[0] is None:
        return None

    def pick(place: int, rank: object) -> None:
        if isinstance(rank, int):
            reactions.look(ranks=tuple(sorted({rank, *_known(pair[1 - place])})))

    def chooser(place: int, label: str) -> ui.select:
        return ui.select(
            [], with_input=len(offered) > 16, on_change=lambda event: pick(place, event.value)
        ).props(f"dense outlined options-dense aria-label='{label}'")

    with box("card toolbar", "section"):
        label_text("Compare ranks", "h2")
        choosers = (
            chooser(0, "suspect rank").mark("suspect"),
            chooser(1, "rank to compare with").mark("peer"),
        )
        where = label_text("", "span", "muted")
        back = label_text("Back to the suspect", "button", "plain").mark("back-to-suspect")
        back.on("click", lambda: (reactions.look(ranks=()), choosers[0].run_method("focus")))

    def follow(model: TabViewModel) -> None:
        nonlocal pair
        pair = text.suspect_and_peer(findings, model.diagnosis, model.view)
        ranks = sorted({*offered, *_known(*pair)})
        for select, rank, other in zip(choosers, pair, reversed(pair), strict=True):
            show_options(select, {each: f"rank {each}" for each in ranks if each != other}, rank)
            select.set_visibility(rank is not None)
        step, why = step_shown(findings, model.view)
        where.text = "" if step is None else f"in step {step}, {why}; [ and ] select another step"
        back.set_visibility(bool(model.view.ranks))

    follow(model)
    return follow


def _known(*ranks: int | None) -> set[int]:
    return {rank for rank in ranks if rank is not None}


def operator_chooser(model: TabViewModel, reactions: Reactions) -> Follow | None:
    """Show a chooser for the operator whose occurrences are counted."""
    findings = model.findings
    if operator_shown(findings, model.view) is None:
        return None

    causes = [cause.name for cause in findings.blame.causes[:CAUSES_LISTED]]
    offered = (*causes, *busiest(findings.operators))
    with box("card toolbar", "section"):
        label_text("Operator", "h2")
        chooser = ui.select(
            [],
            with_input=True,
            on_change=lambda event: None if event.value is None else reactions.look(operator=event.value),
        ).props("dense outlined options-dense aria-label='operator'")
        chooser.classes("wide").mark("operator")
        label_text("causes first, then by time", "span", "muted")

    def follow(model: TabViewModel) -> None:
        shown = operator_shown(findings, model.view)
        names = dict.fromkeys((*offered, *(() if shown is None else (shown,))))
        show_options(chooser, {name: format.clip(name, 80) for name in names}, shown)

    follow(model)
    return follow


def outlier_table(model: TabViewModel, _: Reactions) -> None:
    """Show abnormal events of all ranks or of one."""
    findings = model.findings
    found = findings.outliers

    def rows(rank: int | None) -> list[dict[str, Any]]:
        return _numbered(tables.outlier_rows(findings, rank))

    with titled("Abnormal events", f"{format.counted(len(found), 'event')}, highest score first"):
        if not len(found):
            few = len(findings.similarity.ranks) < MIN_COHORT
            label_text(
                TOO_FEW
                if few
                else "No event starts late or takes long compared with the same event on other ranks.",
                "p",
                "muted",
            )
            return
        ranks = sorted(set(found.operators.rank_E[found.event_F].tolist()))[:RANKS_OFFERED]
        with box("toolbar"):
            options = {ALL: "all ranks", **{rank: f"rank {rank}" for rank in ranks}}
            chooser = ui.select(options, value=ALL).mark("outlier-rank")
            chooser.props("dense outlined options-dense aria-label='rank of the events'")
        table = data_table(tables.OUTLIER_COLUMNS, rows(None), "row").mark("outliers")

        def show(rank: object) -> None:
            refill(table, tables.OUTLIER_COLUMNS, rows(rank if isinstance(rank, int) else None), "row")

        chooser.on_value_change(lambda event: show(event.value))


def collective_table(model: TabViewModel, _: Reactions) -> None:
    """Show wait and transfer of each collective."""
    total = len(model.findings.blame.collectives)
    rows = _numbered(tables.collective_rows(model.findings))
    subtitle = "wait for the last rank to arrive, then computing or transfer"
    if len(rows) < total:
        subtitle += f"; the longest {len(rows)} of {format.count(total)}"
    with titled("Collectives", subtitle):
        if rows:
            data_table(tables.COLLECTIVE_COLUMNS, rows, "row").mark("collectives")
        else:
            label_text("No event is part of a collective with a known group and number.", "p", "muted")


def _numbered(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with a number each, because no other column is unique."""
    return [{**row, "row": place} for place, row in enumerate(rows)]


def notes_card(model: TabViewModel, _: Reactions) -> None:
    """Show limitations and method of the findings."""
    with titled("Limitations and method"), box("lines", "ul"):
        for note in text.findings_notes(model.findings):
            label_text(note, "li")
