"""Describe which ranks block a stalled job (docs/hangs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from sfapp.model.calls import CallGroup
from sfapp.model.standstill import Certainty
from sfapp.operators.hang import Hang, HangEvidence, HangSuspect
from sfapp.operators.hang_waits import Lag, Wait
from sfapp.views import format

MOST_SUSPECTS = 8
MOST_EVIDENCE = 4

CERTAINTY_WORDS: dict[Certainty, tuple[str, str]] = {
    "shown": ("holds the job", "hold the job"),
    "likely": ("likely holds the job", "likely hold the job"),
    "possible": ("may hold the job", "may hold the job"),
}


def ranks_words(ranks: Iterable[int], limit: int = 8) -> str:
    """Return ``rank 3``, ``ranks 0–2 and 7``."""
    ranks = sorted(set(ranks))
    return f"rank{'' if len(ranks) == 1 else 's'} {format.ranges(ranks, limit)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _verb(ranks: Sequence[int], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many


def group_words(group: CallGroup) -> str:
    """Return ``TENSOR_MODEL_PARALLEL_GROUP (group 41)``."""
    unnamed = group.description in ("", "undefined")
    return f"group {group.name}" if unnamed else f"{group.description} (group {group.name})"


def hang_headline(hang: Hang) -> str:
    """Return the answer in one sentence."""
    if not hang.suspects:
        if hang.waits:
            return "No rank is identified: no wait leads to a rank that can be named."
        return "No rank waits: no call of any group is pending in these dumps."
    best = hang.suspects[0].certainty
    ranks = [suspect.rank for suspect in hang.suspects if suspect.certainty == best]
    one, many = CERTAINTY_WORDS[best]
    if best == "possible" and len(ranks) > 1:
        return f"The dumps do not identify one rank: {ranks_words(ranks)} may hold the job."
    return f"{_capital(ranks_words(ranks))} {_verb(ranks, one, many)}."


def extent_words(hang: Hang) -> str:
    """Return the number of ranks with dumps, and the ranks with none or an empty one."""
    dumps = len(hang.ranks_with_dump)
    world = dumps + len(hang.ranks_without_dump)
    text = f"Dumps of {dumps:,} of {format.counted(world, 'rank')}"
    if hang.ranks_without_entries:
        text += f"; without entries: {ranks_words(hang.ranks_without_entries)}"
    if hang.ranks_without_dump:
        text += f"; no dump of {ranks_words(hang.ranks_without_dump)}"
    return f"{text}."


def wait_words(wait: Wait) -> str:
    """Return the call in which ranks wait, and the ranks for which they wait."""
    waiting = f"{ranks_words(wait.waiting)} {_verb(wait.waiting, 'waits', 'wait')}"
    place = group_words(wait.group)
    if wait.transfer:
        peer = f"{'to' if wait.call == 'send' else 'from'} {ranks_words(wait.held_by)}"
        why = {
            "not_called": f"which has not called {'recv' if wait.call == 'send' else 'send'}",
            "unfinished": "which both sides called",
            "no_dump": "which has no dump",
        }.get(wait.reason, "")
        return f"{place}: {waiting} in {wait.call} {peer}, {why}"
    call = f"{wait.call} {wait.sequence:,}"
    held = ranks_words(wait.held_by)
    if wait.reason == "not_called":
        return f"{place}: {waiting} in {call}; {held} {_verb(wait.held_by, 'has', 'have')} not called it"
    if wait.reason == "mismatch":
        if wait.waiting == wait.held_by:
            both = f"{wait.call} and {wait.other_call}"
            return f"{place}: {held} made different calls as number {wait.sequence:,}: {both}"
        return f"{place}: {waiting} in {call}; {held} called {wait.other_call} instead"
    if wait.reason == "no_dump":
        return f"{place}: {waiting} in {call}, which all ranks with a dump called; no dump of {held}"
    idle = (
        ""
        if wait.waiting == wait.held_by
        else f"; {held} {_verb(wait.held_by, 'has', 'have')} not started it"
    )
    return f"{place}: all ranks called {call}, and it has completed on none{idle}"


def evidence_words(evidence: HangEvidence) -> str:
    """Return one reason to suspect a rank."""
    if evidence.kind == "no_entries":
        return "its dump has no entries: nothing is pending on it"
    if evidence.kind == "no_dump" and evidence.wait is None:
        return "it has no dump, and no rank is seen to wait for it"
    if evidence.lag is not None:
        return f"its device or its watchdog stopped: {_lag_words(evidence.lag)}"
    if evidence.wait is None:
        return ""
    if evidence.kind == "waits_itself":
        return f"but it also waits: {wait_words(evidence.wait)}"
    if evidence.kind == "out_of_step":
        call = f"{evidence.wait.call} {evidence.wait.sequence:,} of {group_words(evidence.wait.group)}"
        return (
            f"it called {call} after another number of calls in other groups than the other ranks did: it "
            "skipped a call, or made one too many"
        )
    newest = "" if evidence.last_called is None else f" (its newest: {evidence.last_called:,})"
    return f"{wait_words(evidence.wait)}{newest}"


def _lag_words(lag: Lag) -> str:
    call = f"{lag.call} {lag.sequence:,} of {group_words(lag.group)}"
    return f"{call} is pending on rank {lag.rank} and completed on {ranks_words(lag.completed_on)}"


def suspect_words(suspect: HangSuspect) -> str:
    """Return one suspect's line: its certainty, and the number of ranks that wait for it."""
    text = f"Rank {suspect.rank} ({suspect.certainty})"
    if suspect.waiting:
        waiting = format.counted(suspect.waiting, "rank")
        text += f": {waiting} {'waits' if suspect.waiting == 1 else 'wait'} for it"
    if suspect.certainty == "shown":
        text += ", and it waits for no other rank"
    return text


def hang_text(hang: Hang) -> list[tuple[int, str]]:
    """Return the whole answer as lines with their indentation: headline, suspects with evidence, remarks."""
    lines = [(0, hang_headline(hang)), (0, extent_words(hang))]
    absent = [suspect for suspect in hang.suspects if {each.kind for each in suspect.evidence} == {"no_dump"}]
    apart = {suspect.rank for suspect in absent} if len(absent) > 1 else set()
    shown = [suspect for suspect in hang.suspects if suspect.rank not in apart]
    for suspect in shown[:MOST_SUSPECTS]:
        lines += _suspect_lines(suspect)
    for certainty, suspects in groupby(shown[MOST_SUSPECTS:], key=lambda suspect: suspect.certainty):
        ranks = [suspect.rank for suspect in suspects]
        lines += [(0, ""), (0, f"{_capital(ranks_words(ranks))} ({certainty}), too: see --json")]
    if len(absent) > 1:
        lines += _absent_lines(absent)
    suspected = {suspect.rank for suspect in hang.suspects}
    others = [lag for lag in hang.lags if lag.rank not in suspected]
    if others:
        ranks = [lag.rank for lag in others]
        remark = f"Check {ranks_words(ranks)}, too: the device or the watchdog stopped there"
        lines += [(0, ""), (0, remark)]
        lines += [(2, _lag_words(lag)) for lag in others[:MOST_SUSPECTS]]
    return lines


def _suspect_lines(suspect: HangSuspect) -> list[tuple[int, str]]:
    words = list(dict.fromkeys(filter(None, map(evidence_words, suspect.evidence))))
    lines = [(0, ""), (0, suspect_words(suspect)), *((2, each) for each in words[:MOST_EVIDENCE])]
    if len(words) > MOST_EVIDENCE:
        lines.append((2, f"and {format.counted(len(words) - MOST_EVIDENCE, 'more reason')}: see --json"))
    return lines


def _absent_lines(suspects: Sequence[HangSuspect]) -> list[tuple[int, str]]:
    """Return all ranks without a dump as one entry, with the calls in which other ranks wait for some of
    them."""
    ranks = [suspect.rank for suspect in suspects]
    lines = [(0, ""), (0, f"{_capital(ranks_words(ranks))} ({suspects[0].certainty}): no dump")]
    # By identity: the hash of a wait looks at all its ranks.
    waits = {id(each.wait): each.wait for suspect in suspects for each in suspect.evidence if each.wait}
    lines += [(2, wait_words(wait)) for wait in list(waits.values())[:MOST_EVIDENCE]]
    if len(waits) > MOST_EVIDENCE:
        lines.append((2, f"and {format.counted(len(waits) - MOST_EVIDENCE, 'more call')}: see --json"))
    return lines
