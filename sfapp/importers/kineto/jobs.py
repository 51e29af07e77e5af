"""Which processes make up a job, which rank each is, and which windows are of one run.

Files carry no job's name: those of one folder whose steps overlap in time, with as many ranks expected, are
one job. A folder may hold several jobs with the same ranks, or one job profiled several times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sfapp.importers.import_result import ImportNote
from sfapp.importers.kineto.stage_rules import Process

_NAMED_RANK = re.compile(r"(?<![a-z])(?:rank|worker)[-_. ]?(\d{1,7})(?!\d)", re.IGNORECASE)
_HANDLER_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json(?:\.gz)?\Z")
MOST_RANKS = 2**20


@dataclass(slots=True)
class Member:
    """One process of a job.

    Attributes:
        process: its events and steps.
        rank: its rank; None until it is guessed.
        world_size: how many ranks it says there are.
        host: where it ran, by its file's name; empty where that does not say.
    """

    process: Process
    rank: int | None
    world_size: int | None
    host: str

    @property
    def begin(self) -> int:
        return int(self.process.start_N[0])

    @property
    def end(self) -> int:
        return int(self.process.end_N[-1])

    @property
    def steps(self) -> frozenset[int]:
        return frozenset(self.process.step_N.tolist())

    @property
    def path(self) -> Path:
        return self.process.columns.path


@dataclass(slots=True)
class Job:
    """The members of one window, and where it stands.

    Attributes:
        members: ascending by rank.
        run_id, window: the run it belongs to, and its place there.
        notes: what was guessed of it.
    """

    members: list[Member]
    run_id: str = ""
    window: int = 0
    notes: list[ImportNote] = field(default_factory=list)

    @property
    def world_size(self) -> int | None:
        return next((each.world_size for each in self.members if each.world_size is not None), None)

    @property
    def ranks(self) -> set[int]:
        return {each.rank for each in self.members if each.rank is not None}

    @property
    def steps(self) -> frozenset[int]:
        return frozenset.intersection(*(each.steps for each in self.members))

    @property
    def begin(self) -> int:
        return min(each.begin for each in self.members)

    @property
    def end(self) -> int:
        return max(each.end for each in self.members)


def member_of(process: Process, alone: bool) -> Member:
    """A process with what its file says of it; of several in one file, the file's rank is nobody's."""
    header = process.columns.header.distributed
    handler = _HANDLER_NAME.match(process.columns.path.name)
    rank = header.rank if header is not None and alone else None
    if rank is None and alone:
        named = _NAMED_RANK.search(process.columns.path.name)
        if named is not None:
            rank = int(named[1])
            process.note("derived", f"rank {rank} by the file's name")
    world = header.world_size if header is not None else None
    return Member(
        process,
        rank if rank is not None and 0 <= rank < MOST_RANKS else None,
        world if world is not None and 0 < world <= MOST_RANKS else None,
        handler["host"] if handler else "",
    )


def jobs_of(members: Sequence[Member]) -> list[Job]:
    """The members as windows of runs, in order of time; duplicates are left out and noted."""
    found: list[Job] = []
    folders: defaultdict[Path, list[Member]] = defaultdict(list)
    for each in members:
        folders[each.path.parent].append(each)
    taken: set[str] = set()
    for folder, inside in sorted(folders.items()):
        jobs = _together(sorted(inside, key=lambda each: (each.begin, each.path)))
        for job in jobs:
            _guess_ranks(job)
        jobs = _joined_by_steps(jobs)
        for run in _runs(jobs):
            run_id = _free_name(_name_of(run, folder), taken)
            for window, job in enumerate(run):
                job.run_id, job.window = run_id, window
                job.members.sort(key=lambda each: each.rank or 0)
            found.extend(run)
    return found


def _together(members: Sequence[Member]) -> list[Job]:
    """Members that overlap in time, by steps in common, one of a rank."""
    jobs: list[Job] = []
    for each in members:
        fitting = [job for job in jobs if each.begin < job.end and _agree(job, each)]
        twin = next((job for job in fitting if _is_in(job, each)), None)
        if twin is not None:
            twin.notes.append(
                ImportNote("skipped", "the same process and steps as in another file", each.path.name)
            )
            continue
        free = [job for job in fitting if each.rank is None or each.rank not in job.ranks]
        if free:
            free[-1].members.append(each)
        else:
            jobs.append(Job([each]))
    return jobs


def _agree(job: Job, each: Member) -> bool:
    sizes = {size for size in (job.world_size, each.world_size) if size is not None}
    return len(sizes) < 2 and bool(job.steps & each.steps)


def _is_in(job: Job, each: Member) -> bool:
    return any(
        other.process.pid == each.process.pid
        and other.host == each.host
        and other.begin == each.begin
        and (other.rank == each.rank or None in (other.rank, each.rank))
        for other in job.members
    )


def _guess_ranks(job: Job) -> None:
    """Number those that say no rank: the free ranks in order of host, process and file."""
    unknown = [each for each in job.members if each.rank is None]
    unknown.sort(key=lambda each: (each.host, len(each.process.pid), each.process.pid, each.path))
    free = _free_ranks(job.ranks)
    for each in unknown:
        each.rank = next(free)
        why = "the only one there is" if len(job.members) == 1 else "by the order of hosts and processes"
        each.process.note("guessed", f"rank {each.rank}: nothing says it; it is {why}")


def _free_ranks(taken: set[int]) -> Iterator[int]:
    return (rank for rank in range(MOST_RANKS) if rank not in taken)


def _joined_by_steps(jobs: list[Job]) -> list[Job]:
    """Put together what lies apart in time only because hosts' clocks do: the same steps of as many expected
    ranks, none of them twice."""
    kept: list[Job] = []
    for job in jobs:
        other = next(
            (
                other
                for other in kept
                if job.world_size is not None
                and other.world_size == job.world_size
                and other.steps == job.steps
                and not other.ranks & job.ranks
                and len(other.ranks) + len(job.ranks) <= job.world_size
            ),
            None,
        )
        if other is None:
            kept.append(job)
            continue
        other.members.extend(job.members)
        other.notes += job.notes
        apart = f"{abs(job.begin - other.members[0].begin) / 1e9:.1f} s"
        other.notes.append(
            ImportNote("guessed", f"ranks whose steps lie {apart} apart are one job with differing clocks")
        )
    return kept


def _runs(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs of the same processes, one after the other, are windows of one run."""
    runs: dict[tuple[tuple[int | None, str, str], ...], list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.begin):
        who = tuple(sorted((each.rank, each.host, each.process.pid) for each in job.members))
        runs.setdefault(who, []).append(job)
    return list(runs.values())


def _name_of(run: Sequence[Job], folder: Path) -> str:
    """A lone file's name, else the folder's."""
    files = {each.path for job in run for each in job.members}
    if len(files) == 1:
        return re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?\Z", "", next(iter(files)).name) or "trace"
    return folder.resolve().name or "traces"


def _free_name(name: str, taken: set[str]) -> str:
    """The name, numbered from the second of its kind on."""
    name = name[:200]
    free = name
    number = 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free)
    return free
