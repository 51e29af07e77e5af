"""Search windows for words that the table of windows shows: names, labels and numbers, as SQL.

``sfapp/views/window_list_rows.py`` writes the same texts; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sfapp.model import BETWEEN, CULPRITS, DEFAULT_STAGES, LABELS, stage_category
from sfapp.model.diagnosis import HEALTHY_SEVERITY
from sfapp.model.labels import UNIVERSAL_LABEL
from sfapp.model.reasons import UNNAMED_RANKS
from sfapp.model.search_words import search_words
from sfapp.store.schema import literal

_STAGES = "list_concat([aim_stage, top_stage], routing_set)"

_SHORT: Mapping[str, str] = {
    stage: "between steps" if stage == BETWEEN else stage_category(stage)
    for stage in (BETWEEN, *DEFAULT_STAGES)
}
"""Default stages, and how they are called on screen; names of others are searched as they are."""

_LETTERS = re.compile(r"[^\W\d_]+")

_SUSPECT = "needs_attention AND aim_stage IS NOT NULL"


def searched(text: str) -> tuple[list[str], dict[str, object]]:
    """Return the conditions of a search, all of which must hold, and the values they bind."""
    conditions: list[str] = []
    values: dict[str, object] = {}
    for place, word in enumerate(search_words(text)):
        found = [f"contains({_NAMES}, $word{place})"]
        values[f"word{place}"] = word.text
        if _may_be_in_texts(word.text):
            found.append(f"regexp_matches({_TEXTS}, $pattern{place})")
            values[f"pattern{place}"] = word.pattern
        if labels := _labels_on_screen(word.text):
            found.append(f"list_has_any(labels, $labels{place})")
            values[f"labels{place}"] = labels
        if stages := [stage for stage, shown in _SHORT.items() if word.text in shown]:
            found.append(f"list_has_any({_STAGES}, $stages{place})")
            values[f"stages{place}"] = stages
        conditions.append(f"({' OR '.join(found)})")
    return conditions, values


def _may_be_in_texts(word: str) -> bool:
    """Return whether the texts with numbers may contain a word.

    To write them takes seconds for a million windows, and most words are parts of names.
    """
    return all(any(letters in fixed for fixed in _FIXED) for letters in _LETTERS.findall(word))


def _labels_on_screen(word: str) -> list[str]:
    """Return labels whose words on screen contain a word; the label of every window is left out."""
    return [name for name, label in LABELS.items() if name != UNIVERSAL_LABEL and word in label.words]


def _cases(column: str, words: Mapping[str, str]) -> str:
    found = " ".join(f"WHEN {literal(name)} THEN {literal(text)}" for name, text in words.items())
    return f"CASE {column} {found} END"


def _duration(ns: str) -> str:
    """Return a duration as ``views.format.duration`` writes it; empty below a microsecond."""
    return (
        f"CASE WHEN {ns} >= 99.95e9 THEN format('{{:,}} s', CAST(round({ns} / 1e9) AS BIGINT))"
        f" WHEN {ns} >= 9.995e9 THEN format('{{:.1f}} s', {ns} / 1e9)"
        f" WHEN {ns} >= 0.99995e9 THEN format('{{:.2f}} s', {ns} / 1e9)"
        f" WHEN {ns} >= 9.995e6 THEN format('{{:.1f}} ms', {ns} / 1e6)"
        f" WHEN {ns} >= 0.99995e6 THEN format('{{:.2f}} ms', {ns} / 1e6)"
        f" WHEN {ns} >= 0.99995e3 THEN format('{{:.0f}} µs', {ns} / 1e3) END"
    )


def _percent(fraction: str) -> str:
    """Return a share as ``views.format.percent`` writes it."""
    return (
        f"CASE WHEN {fraction} > 0 AND {fraction} < 0.005 THEN '<1 %'"
        f" WHEN {fraction} >= 0 THEN format('{{:.0f}} %', 100 * {fraction}) END"
    )


def _severity(fraction: str) -> str:
    return (
        f"CASE WHEN {fraction} < {HEALTHY_SEVERITY} AND format('{{:.0f}}', 100 * {fraction}) = "
        f"'{100 * HEALTHY_SEVERITY:.0f}' THEN '<{100 * HEALTHY_SEVERITY:.0f} %' ELSE {_percent(fraction)} END"
    )


_RECURRENCE = {name: spec.words for name, spec in CULPRITS.items()}

_CHANGE = """CASE WHEN is_reference THEN 'healthy' WHEN "change" IS NOT NULL THEN format('{}{} %',
    CASE WHEN round(100 * "change") < 0 THEN '−' WHEN round(100 * "change") > 0 THEN '+' ELSE '±' END,
    CAST(abs(round(100 * "change")) AS BIGINT)) END"""

_NAMES = f"""lower(concat_ws(chr(10), run_id, aim_stage, aim_hostname, top_stage, leader_hostname,
    array_to_string(routing_set, chr(10)),
    replace(array_to_string(labels, chr(10)), '{UNIVERSAL_LABEL}', '')))"""
"""Names of which any part may be typed."""

_TEXTS = f"""lower(concat_ws(chr(10),
    'window ' || "window",
    CASE WHEN lacks_data AND len(missing_ranks) = 0 THEN 'a gather failed' END,
    CASE WHEN len(missing_ranks) > 0 THEN 'rank ' || array_to_string(missing_ranks, ' missing rank ')
        || ' is are missing' END,
    CASE WHEN {_SUSPECT} THEN coalesce('on rank ' || aim_rank, {_cases("aim_rank_reason", UNNAMED_RANKS)})
        WHEN NOT lacks_data THEN 'healthy' END,
    CASE WHEN {_SUSPECT} THEN {_cases("culprit_kind", _RECURRENCE)} END,
    'rank ' || leader_rank, 'r' || leader_rank, {_percent("leader_share")},
    {_severity("severity")}, {_severity("exposed_imbalance")}, {_percent("top_share")}, {_CHANGE},
    {_duration("step_mean_ns")}, {_duration("step_p50_ns")}, {_duration("step_p95_ns")},
    first_step || '–' || last_step,
    format('{{:,}}', ranks) || ' ranks', format('{{:,}}', nodes) || ' nodes'))"""
"""Texts in which a number is whole."""

_FIXED = (
    "healthy window a gather failed on rank missing is are ranks nodes r s ms µs",
    *(text.lower() for text in (*UNNAMED_RANKS.values(), *_RECURRENCE.values())),
)
"""All letters of these texts."""
