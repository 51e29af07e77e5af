"""Write docs/evidence/waits.md: the bars of accounting.md §15 and §16 on real jobs, then the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, median

from benchmarks.experiments.acceptance import AcceptanceBar, bar_table, share_bar
from benchmarks.experiments.plan import BACKWARD, FORWARD
from benchmarks.experiments.waits_plan import (
    BETWEEN,
    PAUSE_EVERY,
    PAUSE_SECONDS,
    PLACES,
    SHARDED,
    SLOWNESS,
    WRAPPERS,
)
from benchmarks.experiments.waits_score import WaitSeen, planted

NAMES = {"ddp": "DDP", "zero1": "ZeRO-1", "fsdp1": "FSDP1", "fsdp2": "FSDP2"}
INSIDE = {BACKWARD: "backward", FORWARD: "forward"}
NAMED = 29 / 30
PREDICTED, WITHIN = 0.9, 0.05

ABOUT = """\
Under DDP ranks wait for each other inside backward, under FSDP inside forward too. A rank that is slow inside
such a stage makes it equally long on all ranks; only its own time shows the delay
([accounting.md](../accounting.md#15-own-time-and-waiting-inside-a-stage)). Waits are recorded with
`perf.watch_waits(model)`.

- Model, wrappers, exchanges between ranks, loader and optimizer are real. A wait in each layer, with a
  standard deviation of 2 %, represents an accelerator's time.
- The slow rank computes {slowness:.0%} of a healthy step longer, in every step of its window: in the layers
  that compute first (*early*), in the middle ones, or in all of them (*spread*); in backward before the
  layer's gradient is ready. The duration of a healthy step is measured in the job's first windows. Every
  window has a different slow rank.
- DDP sends its gradients in two buckets, the first while backward continues. FSDP has two units of two
  layers.
- 32 ranks are four nodes of eight: DDP exchanges gradients within nodes and then between them, FSDP shards
  within nodes and replicates over them (HYBRID_SHARD), and ZeRO-1 divides its state within nodes. A ring over
  32 processes on a few cores would take longer than the rest of a step."""

Lines = list[str]
Group = tuple[str, list[WaitSeen]]


def waits_document(rows: Sequence[WaitSeen], command: str, machine: str) -> str:
    """Return the whole page."""
    has_inside = any(planted(rows, stage) for stage in INSIDE)
    tables = (*((_named, _places, _predicted) if has_inside else ()), _between, _healthy)
    parts = ["\n".join(table(rows)) for table in tables]
    return "\n\n".join([_head(rows, command, machine), *filter(None, parts)]) + "\n"


def waits_bars(rows: Sequence[WaitSeen]) -> list[AcceptanceBar]:
    """Return every bar for which there are rows."""
    return [bar for bar in _bars(rows) if bar is not None]


def _bars(rows: Sequence[WaitSeen]) -> Iterable[AcceptanceBar | None]:
    for stage, wrappers in ((BACKWARD, WRAPPERS), (FORWARD, SHARDED)):
        for wrapper in wrappers:
            chosen = [row for row in planted(rows, stage) if row.job.wrapper == wrapper]
            target = f"{NAMES[wrapper]}, slow inside {INSIDE[stage]}: stage and rank named in 29 of 30"
            yield share_bar(target, chosen, lambda row: row.names_both, NAMED)
    inside = [row for stage in INSIDE for row in planted(rows, stage)]
    target = f"what-if vs the fault removed: within {WITHIN:.0%} of the step in 9 of 10"
    yield share_bar(target, inside, _is_predicted, PREDICTED)
    target = f"{PAUSE_SECONDS} s between steps, every {PAUSE_EVERY}: stage, rank and period named in all"
    yield share_bar(target, planted(rows, BETWEEN), lambda row: row.names_period)


def _is_predicted(row: WaitSeen) -> bool:
    return row.miss is not None and abs(row.miss) <= WITHIN


def _head(rows: Sequence[WaitSeen], command: str, machine: str) -> str:
    return "\n".join(
        [
            "# A rank that is slow inside a stage in which others wait",
            "",
            f"Written by `{command}` on {machine}: {len(rows)} windows of real torchrun jobs.",
            "",
            *bar_table(waits_bars(rows)),
            "",
            ABOUT.format(slowness=SLOWNESS),
        ]
    )


def _groups(rows: Sequence[WaitSeen]) -> Iterator[Group]:
    """Yield the first cells of a row and its windows, for each job and stage."""
    for stage, inside in INSIDE.items():
        for name in dict.fromkeys(row.job.name for row in rows):
            chosen = [row for row in planted(rows, stage) if row.job.name == name]
            if chosen:
                job = chosen[0].job
                yield f"{NAMES[job.wrapper]} | {job.ranks} | {inside}", chosen


def _named(rows: Sequence[WaitSeen]) -> Lines:
    lines = [
        "## Which stage and rank the verdict names",
        "",
        "Growth: the mean step of the window against that of the healthy windows before and after it.",
        "",
        "| wrapper | ranks | slow inside | healthy step | growth | stage right | rank right | both | named "
        "otherwise |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cells, chosen in _groups(rows):
        hits = (
            sum(row.names_stage for row in chosen),
            sum(row.names_rank for row in chosen),
            sum(row.names_both for row in chosen),
        )
        lines.append(
            f"| {cells} | {_ms(mean(row.healthy_ns for row in chosen))} | "
            f"{mean(row.growth for row in chosen):+.0%} | "
            f"{' | '.join(f'{hit}/{len(chosen)}' for hit in hits)} | {_otherwise(chosen)} |"
        )
    return lines


def _otherwise(rows: Iterable[WaitSeen]) -> str:
    """Return what wrong verdicts name, each once, with its count."""
    counts = Counter(_against(row) for row in rows if not row.names_both)
    return "; ".join(f"{suspect} ({times}×)" for suspect, times in counts.most_common()) or "–"


def _against(row: WaitSeen) -> str:
    """Return what a verdict names, with the rank relative to the planted one."""
    aim = row.diagnosis.aim
    if aim is None or aim.rank is None:
        return row.suspect
    return f"{aim.stage}, {'that rank' if row.names_rank else 'another rank'}"


def _places(rows: Sequence[WaitSeen]) -> Lines:
    lines = [
        "## Where in the stage the rank is slow",
        "",
        "| slow inside | early | middle | spread |",
        "| --- | --- | --- | --- |",
    ]
    for stage, inside in INSIDE.items():
        cells = []
        for place in PLACES:
            chosen = [row for row in planted(rows, stage) if row.fault.place == place]
            cells.append(f"{sum(row.names_both for row in chosen)}/{len(chosen)}")
        lines.append(f"| {inside} | {' | '.join(cells)} |")
    return lines


def _predicted(rows: Sequence[WaitSeen]) -> Lines:
    lines = [
        "## What-if: the step without the fault, predicted and measured",
        "",
        "Predicted: from the window with the fault only, by its replay with the planted stage clipped on the "
        "planted rank. Found: the healthy windows before and after it (A/B/A). Error: predicted vs found. "
        "Drift: the healthy window after it vs the one before, which no prediction can include. Replay "
        "error: the replay without clipping vs the same window. Medians, with the largest in parentheses. "
        "Transfer: wait of the last rank to arrive, with and without the fault. The replay does not change "
        "it; on shared cores it grows if all ranks arrive at once.",
        "",
        "| wrapper | ranks | slow inside | with the fault | predicted | found | error | drift | "
        "replay error | transfer | within 5 % | not predicted |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cells, chosen in _groups(rows):
        misses = [abs(row.miss) for row in chosen if row.miss is not None]
        steps = [row.fix.predicted_ns for row in chosen if row.fix and row.fix.predicted_ns is not None]
        errors = [row.fix.error for row in chosen if row.fix is not None and row.fix.error is not None]
        drifts = [row.drift for row in chosen]
        absent = Counter(row.fix.reason for row in chosen if row.fix is not None and row.fix.reason)
        lines.append(
            f"| {cells} | {_ms(median(row.step_ns for row in chosen))} | "
            f"{_ms(median(steps)) if steps else '–'} | {_ms(median(row.healthy_ns for row in chosen))} | "
            f"{_percent(misses)} | {_percent(drifts)} | {_percent(errors)} | "
            f"{_transfers(chosen)} | "
            f"{sum(map(_is_predicted, chosen))}/{len(chosen)} | "
            f"{', '.join(f'{reason} ({times}×)' for reason, times in absent.items()) or '–'} |"
        )
    return lines


def _transfers(rows: Sequence[WaitSeen]) -> str:
    with_fault = median(row.transfer_ns for row in rows)
    return f"{_ms(with_fault)}, {_ms(median(row.healthy_transfer_ns for row in rows))}"


def _between(rows: Sequence[WaitSeen]) -> Lines:
    chosen = planted(rows, BETWEEN)
    if not chosen:
        return []
    lines = [
        "## A pause between steps",
        "",
        f"One rank sleeps {PAUSE_SECONDS} s after every {PAUSE_EVERY}th step, outside `step()`. The target "
        f"stage is `{BETWEEN}`{_unless_recorded(chosen)}.",
        "",
        "| ranks | planted on | steps | healthy step | with the pauses | verdict | steps named |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in chosen:
        aim = row.diagnosis.aim
        lines.append(
            f"| {row.job.ranks} | rank {row.fault.rank} | {row.job.steps} | {_ms(row.healthy_ns)} | "
            f"{_ms(row.step_ns)} | {row.suspect} | {_steps(aim.steps) if aim else '–'} |"
        )
    return lines


def _unless_recorded(rows: Iterable[WaitSeen]) -> str:
    """Return a remark if packets lack the stage."""
    is_recorded = any(BETWEEN in row.diagnosis.recorded_stages for row in rows)
    return "" if is_recorded else "; these packets have none: their recorder does not measure it yet"


def _steps(steps: str | tuple[int, ...]) -> str:
    return steps if isinstance(steps, str) else ", ".join(map(str, steps))


def _healthy(rows: Sequence[WaitSeen]) -> Lines:
    lines = [
        "## Windows without a fault",
        "",
        "| job | windows | mean step | need attention | their suspects |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row.job.name for row in rows):
        chosen = [row for row in planted(rows, None) if row.job.name == name]
        loud = [row for row in chosen if not row.diagnosis.is_healthy]
        counts = Counter(row.suspect for row in loud)
        named = "; ".join(f"{suspect} ({times}×)" for suspect, times in counts.most_common())
        step = _ms(mean(row.step_ns for row in chosen))
        lines.append(f"| {name} | {len(chosen)} | {step} | {len(loud)} | {named or '–'} |")
    return lines


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.1f} ms"


def _percent(values: Sequence[float]) -> str:
    return f"{median(values):.1%} ({max(values):.1%})" if values else "–"
