"""Write docs/evidence/why.md: the bars of accounting.md §21 on real jobs, then the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.experiments.acceptance import AcceptanceBar, bar_table, share_bar
from benchmarks.experiments.why_plan import FAMILIES
from benchmarks.experiments.why_score import WhySeen
from sfapp.views.text.host_evidence import explanation_sentences

FAMILIES_RIGHT = 7

HOW: Mapping[str, str] = {
    "cpu hog": "the rank is bound to one core, on which a process of higher priority computes",
    "cgroup throttling": "the rank's control group has a quota of 7.5 % of a core",
    "garbage collector": "the rank calls `gc.collect()` several times a step, on 120,000 live lists",
    "slow storage": "a file system in user space (FUSE, of our own) delays each of several reads by 5–15 ms",
    "page faults": "memory is touched page by page, given back and touched again",
    "lock": "the training thread waits for a lock that another thread of the process holds",
    "loader worker": "the `DataLoader`'s worker process takes longer for a batch than a step takes",
    "remote service": "the rank asks a service in another process that answers late",
}

ABOUT = """\
A rank that is late for a known cause, in real jobs of 8 ranks over Gloo on one machine: which class of causes
the verdict names first ([why.md](../why.md), [§21](../accounting.md#21-why-that-rank-beyond-the-paper)).

- Model, gradients, loader, optimizer and causes are real. A wait of slightly varying length represents an
  accelerator's time; each rank computes about 2 ms in forward.
- A cause lasts for one window of 30 steps, on one rank. Its delay is about 45 ms a step on an idle machine
  and varies by half of it; throttling and the hog delay as long as they do. A healthy window follows each.
- A file system in user space delays a reader like any other service, so both *waiting for a block device* and
  *blocked* count as right for slow storage. Families that only block cannot be distinguished by their host:
  `blocked` is the right class for lock, worker and service."""


def why_document(rows: Sequence[WhySeen], command: str, machine: str, skipped: Mapping[str, str]) -> str:
    """Return the whole page.

    Args:
        skipped: reasons by family that could not be caused on this machine.
    """
    lines = [
        "# Why that rank",
        "",
        f"Written by `{command}` on {machine}: {len(rows)} windows.",
        "",
        *bar_table(why_bars(rows)),
        "",
        ABOUT,
        "",
        *_families(rows, skipped),
        "",
        *_sentences(rows),
        "",
        *_healthy(rows),
    ]
    return "\n".join(lines) + "\n"


def why_bars(rows: Sequence[WhySeen]) -> list[AcceptanceBar]:
    """Return every bar for which there are rows."""
    found: list[AcceptanceBar | None] = []
    by_family = {family: [row for row in rows if row.fault.family == family] for family in FAMILIES}
    tried = {family: chosen for family, chosen in by_family.items() if chosen}
    if tried:
        right = sum(all(row.is_right for row in chosen) for chosen in tried.values())
        seeds = max(map(len, tried.values()))
        found.append(
            AcceptanceBar(
                f"right class first in {FAMILIES_RIGHT} of {len(FAMILIES)} families, at every seed",
                f"{right} of {len(tried)} families × {seeds} seeds",
                right >= min(FAMILIES_RIGHT, len(tried)),
            )
        )
    healthy = [row for row in rows if row.fault.family is None]
    found.append(share_bar("healthy windows: no cause claimed in any", healthy, lambda row: not row.claims))
    return [bar for bar in found if bar is not None]


def _families(rows: Sequence[WhySeen], skipped: Mapping[str, str]) -> Iterable[str]:
    yield from (
        "## Families",
        "",
        "| cause | how | right classes | right | named first | accounts for |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for family, right in FAMILIES.items():
        chosen = [row for row in rows if row.fault.family == family]
        if not chosen:
            reason = skipped.get(family, "not in this plan")
            yield f"| {family} | {HOW[family]} | {', '.join(right)} | – | skipped: {reason} | – |"
            continue
        counts = Counter(row.first for row in chosen)
        named = ", ".join(f"{first} ({times}×)" for first, times in counts.most_common())
        parts = [
            row.found.causes[0].accounts_ns / row.found.delay_ns
            for row in chosen
            if row.found is not None and row.found.causes
        ]
        accounts = f"{min(parts):.0%}–{max(parts):.0%}" if parts else "–"
        hits = sum(row.is_right for row in chosen)
        classes = ", ".join(right)
        yield f"| {family} | {HOW[family]} | {classes} | {hits}/{len(chosen)} | {named} | {accounts} |"


def _sentences(rows: Sequence[WhySeen]) -> Iterable[str]:
    """Yield what the verdict says, once for each family."""
    yield from ("## What the verdict says", "", "| cause | sentence |", "| --- | --- |")
    for family in FAMILIES:
        found = next((row.found for row in rows if row.fault.family == family and row.found), None)
        if found is not None:
            yield f"| {family} | {' '.join(explanation_sentences(found))} |"


def _healthy(rows: Sequence[WhySeen]) -> Iterable[str]:
    yield from (
        "## Healthy windows",
        "",
        "| job | windows | need attention | causes claimed |",
        "| --- | --- | --- | --- |",
    )
    for name in dict.fromkeys(row.job.name for row in rows):
        chosen = [row for row in rows if row.job.name == name and row.fault.family is None]
        slow = sum(not row.diagnosis.is_healthy for row in chosen)
        claims = Counter(claim for row in chosen for claim in row.claims)
        named = ", ".join(f"{claim} ({times}×)" for claim, times in claims.most_common()) or "none"
        yield f"| {name} | {len(chosen)} | {slow} | {named} |"
