"""Group processes into jobs, assign ranks, and group windows into runs.

Files carry no job name. Files of one folder whose steps overlap in time and that expect the same number of
ranks are one job. A folder may hold several jobs with the same ranks, or one job profiled several times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sfapp.importers.import_result import ImportNote
from sfapp.importers.kineto.stage_rules import Process
from sfapp.importers.run_names import free_name

_NAMED_RANK = re.compile(r"(?<![a-z])(?:rank|worker)[-_. ]?(\d{1,7})(?!\d)", re.IGNORECASE)
_HANDLER_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json(?:\.gz)?\Z")
MAX_RANKS = 2**20
_LONGEST_NAME = 200


@dataclass(slots=True)
class Member:
    """One process of a job.

    Attributes:
        process: its events and steps.
        rank: its rank, None until it is guessed.
        world_size: number of ranks stated in its file.
        host: host in its file's name, empty if none.
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
class TraceJob:
    """Members of one window and its position in a run.

    Attributes:
        members: members, ascending by rank; ``add`` adds one.
        run_id, window: the run that it belongs to, and its window number.
        notes: notes on guesses.
        steps: steps that all members have.
        begin, end: times of the first and last step of any member, ns.
    """

    members: list[Member]
    run_id: str = ""
    window: int = 0
    notes: list[ImportNote] = field(default_factory=list)
    steps: frozenset[int] = field(init=False)
    begin: int = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.steps = frozenset.intersection(*(each.steps for each in self.members))
        self.begin = min(each.begin for each in self.members)
        self.end = max(each.end for each in self.members)

    def add(self, member: Member) -> None:
        """Add a member."""
        self.members.append(member)
        self.steps &= member.steps
        self.begin = min(self.begin, member.begin)
        self.end = max(self.end, member.end)

    @property
    def world_size(self) -> int | None:
        return next((each.world_size for each in self.members if each.world_size is not None), None)

    @property
    def ranks(self) -> set[int]:
        return {each.rank for each in self.members if each.rank is not None}


def member_of(process: Process, alone: bool) -> Member:
    """Return a process with rank and host from its file; with several processes per file, its rank is
    ignored."""
    header = process.columns.header.distributed
    handler = _HANDLER_NAME.match(process.columns.path.name)
    rank = header.rank if header is not None and alone else None
    if rank is None and alone:
        named = _NAMED_RANK.search(process.columns.path.name)
        if named is not None:
            rank = int(named[1])
            process.note("derived", f"rank {rank} from the file's name")
    world = header.world_size if header is not None else None
    return Member(
        process,
        rank if rank is not None and 0 <= rank < MAX_RANKS else None,
        world if world is not None and 0 < world <= MAX_RANKS else None,
        handler["host"] if handler else "",
    )


def jobs_of(members: Sequence[Member]) -> list[TraceJob]:
    """Return the members as windows of runs, in order of time; duplicates are left out with a note."""
    found: list[TraceJob] = []
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
            run_id = free_name(_name_of(run, folder)[:_LONGEST_NAME], taken)
            for window, job in enumerate(run):
                job.run_id, job.window = run_id, window
                job.members.sort(key=lambda each: each.rank or 0)
            found.extend(run)
    return found


def _together(members: Sequence[Member]) -> list[TraceJob]:
    """Group members that overlap in time and share steps, one per rank."""
    jobs: list[TraceJob] = []
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
            free[-1].add(each)
        else:
            jobs.append(TraceJob([each]))
    return jobs


def _agree(job: TraceJob, each: Member) -> bool:
    sizes = {size for size in (job.world_size, each.world_size) if size is not None}
    return len(sizes) < 2 and bool(job.steps & each.steps)


def _is_in(job: TraceJob, each: Member) -> bool:
    return any(
        other.process.pid == each.process.pid
        and other.host == each.host
        and other.begin == each.begin
        and (other.rank == each.rank or None in (other.rank, each.rank))
        for other in job.members
    )


def _guess_ranks(job: TraceJob) -> None:
    """Assign free ranks to members without one, in order of host, process and file."""
    unknown = [each for each in job.members if each.rank is None]
    unknown.sort(key=lambda each: (each.host, len(each.process.pid), each.process.pid, each.path))
    free = _free_ranks(job.ranks)
    for each in unknown:
        each.rank = next(free)
        why = "it is the only process" if len(job.members) == 1 else "by the order of hosts and processes"
        each.process.note("guessed", f"rank {each.rank}, which no file states: {why}")


def _free_ranks(taken: set[int]) -> Iterator[int]:
    return (rank for rank in range(MAX_RANKS) if rank not in taken)


def _joined_by_steps(jobs: list[TraceJob]) -> list[TraceJob]:
    """Merge jobs that are apart in time only because of clock offsets.

    They have the same steps and the same number of expected ranks, and no rank in common.
    """
    kept: list[TraceJob] = []
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
        for each in job.members:
            other.add(each)
        other.notes += job.notes
        apart = f"{abs(job.begin - other.members[0].begin) / 1e9:.1f} s"
        other.notes.append(
            ImportNote(
                "guessed", f"ranks whose steps are {apart} apart are taken as one job with clock offsets"
            )
        )
    return kept


def _runs(jobs: Sequence[TraceJob]) -> list[list[TraceJob]]:
    """Group jobs of the same processes: consecutive jobs are windows of one run."""
    runs: dict[tuple[tuple[int | None, str, str], ...], list[TraceJob]] = {}
    for job in sorted(jobs, key=lambda job: job.begin):
        members = tuple(sorted((each.rank, each.host, each.process.pid) for each in job.members))
        runs.setdefault(members, []).append(job)
    return list(runs.values())


def _name_of(run: Sequence[TraceJob], folder: Path) -> str:
    """Return the name of a single file, or else of the folder."""
    files = {each.path for job in run for each in job.members}
    if len(files) == 1:
        return re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?\Z", "", next(iter(files)).name) or "trace"
    return folder.resolve().name or "traces"
