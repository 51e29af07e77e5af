"""Write docs/evidence/peers.md: the finding of each tool on each fault, right, wrong or silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.experiments.waits_plan import PAUSE_EVERY, PAUSE_SECONDS
from benchmarks.kineto_job import Shape
from benchmarks.peers_job import DELAY_SECONDS, FAULTS, PACE_OF_JOB, SLOW_RANK

ABOUT = """\
# The same faults under other tools

Written by `python -m benchmarks.peers --out docs/evidence` on {machine}.

A data-parallel job of {ranks} ranks, {steps} steps of {step:.0f} ms and more. Rank {slow} takes {delay:.0f}
ms longer in every step: in its loader, inside backward (spread over the layers), in a callback without a
barrier, or in its optimizer; or it pauses {pause} s after every {every}th step, outside the step. The fault
is present from the first step on, so that no tool needs to compare parts of a run. Each tool watches its own
launch and is used according to its documentation: sfapp with `perf.step()`, `perf.stage(…)` and
`perf.watch_waits(model)`; TraceML by `traceml run`, with `init()` and `trace_step` (its primary diagnosis);
HolisticTraceAnalysis on torch.profiler's traces, by `get_potential_stragglers(num_candidates=1)`.

*right*: stage and rank, or no finding in the healthy job. *in part*: the rank without a stage, or the stage
without a rank. *silent*: no finding. *wrong*: another rank, another stage, or a finding in the healthy job.
*fails*: the analysis ends with an error."""

VERDICTS = ("right", "in part", "silent", "wrong", "fails")

GPU = """\
## A generated GPU trace

HolisticTraceAnalysis analyses GPU kernels, and a job over Gloo has none. To test its analysis, it also gets
the traces of a generated GPU job (`benchmarks/kineto_job.py`) of {ranks} ranks, in which rank {late}
waits {wait:.0f} ms longer for data in every step. Its straggler analysis searches for kernels whose names
begin with `ncclKernel`, as in earlier NCCL versions. It names a rank, never a stage.

| name of the kernels | finding |
| --- | --- |"""


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """The finding of a tool on a job.

    Attributes:
        text: its text.
        stage, rank: named by it; None if it names none.
        is_silent: whether it has no finding.
        has_failed: whether it ended with an error, which is in the text.
    """

    text: str
    stage: str | None = None
    rank: int | None = None
    is_silent: bool = False
    has_failed: bool = False


def verdict(finding: ToolFinding, fault: str, slow_rank: int = SLOW_RANK) -> str:
    """Return the comparison of a finding with the planted fault: one of ``VERDICTS``.

    Args:
        fault: a key of ``FAULTS``.
    """
    if finding.has_failed:
        return "fails"
    planted = FAULTS[fault]
    if finding.is_silent:
        return "right" if planted is None else "silent"
    if planted is None:
        return "wrong"
    is_stage, is_rank = finding.stage == planted, finding.rank == slow_rank
    if is_stage and is_rank:
        return "right"
    in_part = (is_rank and finding.stage is None) or (is_stage and finding.rank is None)
    return "in part" if in_part else "wrong"


def peers_document(
    rows: Mapping[str, Mapping[str, ToolFinding | None]],
    generated: Mapping[str, ToolFinding],
    machine: str,
    ranks: int,
    steps: int,
) -> str:
    """Return the whole page.

    Args:
        rows: by fault and tool; None if the tool is not installed.
        generated: findings of HolisticTraceAnalysis on a generated trace, by the name of its kernels.
    """
    tools = [*next(iter(rows.values()))]
    about = ABOUT.format(
        machine=machine,
        ranks=ranks,
        steps=steps,
        step=100 * PACE_OF_JOB,
        slow=SLOW_RANK,
        delay=1e3 * DELAY_SECONDS,
        pause=PAUSE_SECONDS,
        every=PAUSE_EVERY,
    )
    lines = [about, "", f"| planted | {' | '.join(tools)} |", "| --- |" + " --- |" * len(tools)]
    for fault, found in rows.items():
        lines.append(f"| {fault} | {' | '.join(_cell(found[tool], fault) for tool in tools)} |")
    lines += ["", f"| in {len(rows)} jobs | {' | '.join(tools)} |", "| --- |" + " --- |" * len(tools)]
    for kind in VERDICTS:
        counts = [_count(rows, tool, kind) for tool in tools]
        lines.append(f"| {kind} | {' | '.join(counts)} |")
    if generated:
        shape = Shape()
        lines += ["", GPU.format(ranks=shape.ranks, late=shape.late_rank, wait=shape.late_us / 1e3)]
        lines += [f"| `{name}` | {_escaped(finding.text)} |" for name, finding in generated.items()]
    return "\n".join(lines) + "\n"


def _cell(finding: ToolFinding | None, fault: str) -> str:
    if finding is None:
        return "not installed"
    return f"**{verdict(finding, fault)}**: {_escaped(finding.text)}"


def _count(rows: Mapping[str, Mapping[str, ToolFinding | None]], tool: str, kind: str) -> str:
    found = [(finding, fault) for fault, row in rows.items() if (finding := row[tool]) is not None]
    return str(sum(verdict(finding, fault) == kind for finding, fault in found)) if found else "–"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
