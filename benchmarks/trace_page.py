"""docs/evidence/traces.md: every bar of the importers and of KAIR, and the verdict on every real trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from benchmarks import machine
from benchmarks.trace_verdicts import TraceVerdict
from sfapp.operators import AGREEMENT_REASONS

PAGE = """# Other tools' traces, down to the operator

Written by `{command}` on {machine};
other programs used {others:.0%} of the cores meanwhile.

```
{bars}
```

{beside}
- Wall and memory of the import: eight ranks, 113 MB of JSON made by `benchmarks/kineto_job.py`, three runs of
  each tool in turn, each in a process of its own, libraries loaded before the clock starts and counted as
  memory. Ours writes packets and operator events; Holistic Trace Analysis loads.
- StragglerAnalysis: the slowdowns of `result-*.json`, with which the samples were published, beside those of
  our replay; sends and receives, which they report together, are left out.
- Planted causes: generated graphs with one slow operator, one late edge, chains of victims and diamonds of
  paths, two to sixteen pairs of ranks (`benchmarks/kair_graphs.py`).

## Real traces
What `sfapp import` and `sfapp analyze` say of {count} windows of other people's jobs, looked for under
`SFAPP_TRACES`; they are not part of this repository. Where they come from: PyTorch's TorchRec and Kineto,
Holistic Trace Analysis, StragglerAnalysis, Primus, MLPerf Storage and public reports of Nsight Systems.
Operator: the first that held others up, for how long, and whether that fits the verdict. Most are single
windows, which cannot say whether a job is slower than usual; a rank alone says where its time goes, no more.

{rows}

Why a verdict and an operator may differ:

{reasons}
"""

_TITLES = {
    "trace": "trace",
    "format": "format",
    "ranks": "ranks",
    "steps": "steps",
    "verdict": "verdict",
    "operator": "operator",
    "agreement": "together",
    "unknown": "not known",
}


def page(
    command: str, bars: Sequence[str], beside: Sequence[str], rows: Sequence[TraceVerdict], others: float
) -> str:
    """The page; ``others`` is how much of the machine other programs had meanwhile."""
    return PAGE.format(
        command=command,
        machine=machine.describe_machine(),
        others=others,
        bars="\n".join(bars),
        beside="\n".join(f"- {sentence}" for sentence in beside),
        count=len(rows),
        rows=table(rows),
        reasons="\n".join(f"- {name}: {text}" for name, text in AGREEMENT_REASONS.items()),
    )


def table(rows: Sequence[TraceVerdict]) -> str:
    """A Markdown table with a line for each."""
    names = [field.name for field in fields(TraceVerdict)]
    lines = [" | ".join(_TITLES[name] for name in names), " | ".join("---" for _ in names)]
    lines += [" | ".join(_cell(getattr(row, name)) for name in names) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def _cell(text: str) -> str:
    """Text from a trace, harmless in a table of Markdown."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown.translate({ord(mark): f"\\{mark}" for mark in "\\|`*_<>[]"})
