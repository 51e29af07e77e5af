"""Import PyTorch Profiler (Kineto) JSON: stages by the rules of docs/traces.md, operator events as
recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sfapp.errors import TraceError
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    guarded,
)
from sfapp.importers.kineto.event_columns import read_columns
from sfapp.importers.kineto.job_groups import Member, TraceJob, jobs_of, member_of
from sfapp.importers.kineto.processes import processes_of
from sfapp.importers.kineto.window_merge import window_of


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read Kineto files as windows; the files of one job make one window."""
    members: list[Member] = []
    refused: list[TraceError] = []
    notes: list[ImportNote] = []
    for path in options.each(paths):
        with guarded(refused, path):
            columns = read_columns(path)
            processes = processes_of(columns, options.mapping)
            if len(processes) > 1:
                notes.append(
                    ImportNote("derived", f"{len(processes)} processes of the file take steps", path.name)
                )
            skipped = sorted(kind for kind in columns.skipped if kind != "trace")
            for process in processes:
                if skipped:
                    process.note("skipped", f"events of kind {', '.join(skipped)}")
            members += [member_of(process, len(processes) == 1) for process in processes]
    windows: list[ImportedWindow] = []
    jobs = jobs_of(members)
    members.clear()
    sources = _sources(jobs)
    for job in jobs:
        with guarded(refused, job.members[0].path):
            windows.append(window_of(job, options.mapping))
    return ImportResult(tuple(windows), tuple(refused), tuple(notes), sources)


def _sources(jobs: Iterable[TraceJob]) -> dict[str, Path]:
    """Return the folder of each run, or its only file."""
    files: dict[str, set[Path]] = {}
    for job in jobs:
        files.setdefault(job.run_id, set()).update(each.path for each in job.members)
    return {run: min(paths) if len(paths) == 1 else min(paths).parent for run, paths in files.items()}
