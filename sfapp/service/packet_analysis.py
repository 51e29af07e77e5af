"""Analyse packets without a store, in this process or in tasks of a cluster, with the same result.

Everything that a verdict depends on lies within its run, so a task has whole runs: the packets of some
folders. If two tasks find a run in common, their folders are analysed again together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from sfapp.accounting import WhatIf
from sfapp.accounting.problems import by_cost
from sfapp.errors import WindowNotFoundError
from sfapp.model import Diagnosis, Fix
from sfapp.model.problems import Problem
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import Quarantined, read_files
from sfapp.packets.paths import find_files
from sfapp.service.causes import Causes, causes
from sfapp.service.packet_windows import judgeable, what_if_windows
from sfapp.service.problems import problems_of_windows
from sfapp.service.verdicts import diagnose_windows
from sfapp.storage import FoundFile, StoragePath
from sfapp.store.reference_choices import ReferenceChoices

_TASK_FILES = 256
_TASK_BYTES = 64 * 2**20
"""Folders are analysed in one task until they have so many files or bytes."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class TaskRunner(Protocol):
    """What calls a function with each of some arguments, here or on a cluster."""

    def __call__(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Return the results in the order of the arguments."""


def in_this_process(function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
    """Call a function with each of some arguments."""
    return [function(argument) for argument in arguments]


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """What to find out about the windows of some packets.

    Attributes:
        view: under which they are judged.
        predicts: whether a fix is predicted. fix: which one; that of each window's suspect if None.
        chosen: by run, the window that a user chose as its reference.
    """

    view: ViewState = field(default_factory=ViewState)
    predicts: bool = False
    fix: Fix | None = None
    chosen: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PacketAnalysis:
    """Result for some packets.

    Attributes:
        diagnoses: by run and window. problems: the costliest first.
        causes, predicted: of the windows that have them.
        quarantined: refused files: those that cannot be read, then those of windows that cannot be judged,
            then files of operator events.
    """

    diagnoses: list[Diagnosis]
    problems: list[Problem]
    causes: dict[tuple[str, int], Causes]
    predicted: dict[WindowKey, WhatIf]
    quarantined: tuple[Quarantined, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """Result for the packets of some folders. Refused files have the run that they are listed under."""

    runs: frozenset[str]
    groups: frozenset[str]
    analysis: PacketAnalysis
    unread: tuple[Quarantined, ...]
    unusable: tuple[tuple[str, Quarantined], ...]
    refused: tuple[tuple[str, Quarantined], ...]


@dataclass(frozen=True, slots=True)
class _Task:
    request: AnalysisRequest
    files: tuple[StoragePath, ...]


def analyse_packets(
    paths: Sequence[StoragePath], request: AnalysisRequest, run_tasks: TaskRunner | None = None
) -> PacketAnalysis:
    """Analyse all packets below some paths, with the references chosen next to the first of them.

    Args:
        run_tasks: runs tasks on a cluster; if None, everything is one task in this process.

    Raises:
        PacketError: a path does not exist. A bad file does not raise: it is quarantined.
        StoreError: the chosen references cannot be read.
        WindowNotFoundError: no window has the view's group, or the reference does not exist.
        WindowError: the baseline is ``reference`` and a run has no healthy window.
    """
    files = find_files(paths)[0]
    request = replace(request, chosen=ReferenceChoices.next_to(paths[0]).windows)
    # A reference of another run must be read with every run that is compared with it.
    is_one = run_tasks is None or request.view.reference is not None
    folders = [files] if is_one else _by_folder(files)
    parts = _analysed(folders, request, run_tasks or in_this_process)
    return _together(parts, request, [file.path for file in files])


def _by_folder(files: Sequence[FoundFile]) -> list[list[FoundFile]]:
    """Return the files in groups of whole folders."""
    folders: defaultdict[StoragePath, list[FoundFile]] = defaultdict(list)
    for file in files:
        folders[file.path.parent].append(file)
    groups: list[list[FoundFile]] = []
    size = 0
    for folder in sorted(folders):
        of_folder = folders[folder]
        of_size = sum(file.stamp.size for file in of_folder)
        if groups and len(groups[-1]) + len(of_folder) <= _TASK_FILES and size + of_size <= _TASK_BYTES:
            groups[-1] += of_folder
            size += of_size
        else:
            groups.append(list(of_folder))
            size = of_size
    return groups


def _analysed(
    groups: Sequence[Sequence[FoundFile]], request: AnalysisRequest, run_tasks: TaskRunner
) -> list[_Part]:
    """Return the results for all groups, in which no run is in two."""
    tasks = [_Task(request, tuple(file.path for file in group)) for group in groups]
    parts = run_tasks(_analyse, tasks)
    while clusters := _with_common_runs([part.runs for part in parts]):
        again = [
            _Task(request, tuple(sorted(path for index in cluster for path in tasks[index].files)))
            for cluster in clusters
        ]
        done = {index for cluster in clusters for index in cluster}
        found = run_tasks(_analyse, again)
        tasks = [task for index, task in enumerate(tasks) if index not in done] + again
        parts = [part for index, part in enumerate(parts) if index not in done] + found
    return parts


def _with_common_runs(found: Sequence[Collection[str]]) -> list[list[int]]:
    """Return the groups of indices, of two at least, that runs connect."""
    cluster_of: dict[str, set[int]] = {}
    for index, runs in enumerate(found):
        joined = {index}.union(*(cluster_of.get(run, set()) for run in runs))
        known = {run for run, cluster in cluster_of.items() if cluster & joined}
        cluster_of |= dict.fromkeys(known.union(runs), joined)
    distinct = {tuple(sorted(cluster)) for cluster in cluster_of.values() if len(cluster) > 1}
    return [list(cluster) for cluster in sorted(distinct)]


def _analyse(task: _Task) -> _Part:
    """Analyse some files; runs on a worker."""
    request = task.request
    loaded = read_files(task.files)
    usable, unusable = judgeable(loaded)
    windows = [found.window for found in usable.windows]
    groups = frozenset[str]().union(*(window.groups for window in windows))
    diagnoses: list[Diagnosis] = []
    if not windows or request.view.group in groups:
        diagnoses = diagnose_windows(windows, request.view, request.chosen)
    predicted: dict[WindowKey, WhatIf] = {}
    if request.predicts:
        predicted = what_if_windows(windows, diagnoses, request.fix)
    seen, refused = causes(usable, diagnoses)
    return _Part(
        runs=frozenset(found.window.run_id for found in loaded.windows),
        groups=groups,
        analysis=PacketAnalysis(diagnoses, problems_of_windows(windows, diagnoses), seen, predicted, ()),
        unread=loaded.quarantined,
        unusable=tuple(unusable),
        refused=tuple(refused),
    )


def _together(
    parts: Sequence[_Part], request: AnalysisRequest, files: Sequence[StoragePath]
) -> PacketAnalysis:
    """Return the results of all parts as one, in the order that one part would give."""
    analyses = [part.analysis for part in parts]
    diagnoses = [one for found in analyses for one in found.diagnoses]
    groups = frozenset[str]().union(*(part.groups for part in parts))
    if groups and request.view.group not in groups:
        raise WindowNotFoundError(
            f"no window has a group {request.view.group!r}; there are: {', '.join(sorted(groups))}"
        )
    place = {path: index for index, path in enumerate(files)}
    unread = sorted((each for part in parts for each in part.unread), key=lambda each: place[each.path])
    problems = [one for found in analyses for one in found.problems]
    return PacketAnalysis(
        diagnoses=sorted(diagnoses, key=lambda one: (one.run_id, one.window)),
        problems=by_cost(sorted(problems, key=lambda one: one.run_id)),
        causes={key: value for found in analyses for key, value in found.causes.items()},
        predicted={key: value for found in analyses for key, value in found.predicted.items()},
        quarantined=(
            *unread,
            *_by_run(each for part in parts for each in part.unusable),
            *_by_run(each for part in parts for each in part.refused),
        ),
    )


def _by_run(found: Iterable[tuple[str, Quarantined]]) -> list[Quarantined]:
    return [each for _, each in sorted(found, key=lambda one: one[0])]
