"""Options of ``Recorder`` in groups. Each option may also be given as a keyword."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import index
from typing import Any, TypedDict, TypeVar

from sfapp.errors import RecorderError
from sfapp.model.manifest import Accumulation, Parallelism, Prefetch, Wrapper
from sfapp.model.rank_table import RankIdentity
from sfapp.model.stages import DEFAULT_STAGES, with_between
from sfapp.packets.declared import check_declared
from sfapp.packets.output import SPOOL_BYTES
from sfapp.recorder.rank_coordinates import Layout
from sfapp.recorder.side_channels.host_evidence import chosen_kinds
from sfapp.recorder.transport.transports import TRANSPORTS, GatherMode

_POSITIVE = "window_steps, max_pending, spool_bytes and timeout must be positive"

_MAX_TIMEOUT = 1e6
"""Seconds: Python refuses to wait for a thread or a lock much longer, or for infinity."""

_MAX_FIRST_STEP = 2**61
"""Half of the largest number of a step in a packet, so that no job comes to that."""


def _make_whole(options: object, *names: str) -> None:
    """Make these fields integers of Python: one of NumPy overflows, and packets cannot hold it.

    Raises:
        RecorderError: a value is no whole number.
    """
    for name in names:
        value = getattr(options, name)
        try:
            object.__setattr__(options, name, int(index(value)))
        except TypeError as error:
            raise RecorderError(f"{name} must be a whole number, not {value!r:.40}") from error


def _make_real(options: object, name: str) -> None:
    """Make this field a number of Python, as ``_make_whole`` does.

    Raises:
        RecorderError: the value is no number.
    """
    value = getattr(options, name)
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        object.__setattr__(options, name, float(value))
    except (TypeError, ValueError) as error:
        raise RecorderError(f"{name} must be a number, not {value!r:.40}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options that describe the job and this rank in the packets.

    Attributes:
        run_id: the run's name; if ranks differ, rank 0's counts. A restarted run continues after its existing
            windows. Default: torchrun's ``--rdzv-id``, Slurm's job, else the time.
        identity: this rank's place; if None, from torch.distributed and the launcher's environment
            (torchrun, Slurm, MPI).
        roles: diagnosis role of this rank (``dp``, ``pp0``, ``expert3``), or of every rank by its number; an
            identity has its own.
        layout: this rank's coordinates in the parallel layout by dimension (``dp``, ``pp``, ``tp``, ``ep``,
            ``cp``), such as ``{"dp": 1, "pp": 0}``, or a ``DeviceMesh`` with such dimensions.
        attributes: texts by name that describe this rank's machine or job and may differ between ranks, such
            as ``{"rack": "r12"}``, beside those that are found (docs/recorder.md).
        periods: what happens every so many steps, such as ``{"checkpoint": 500}``: names to check for a delay
            that returns at that spacing.
        wrapper, parallelism, prefetch, model_fit: declared in the packet (packet.md).

    Raises:
        RecorderError: one of the last four has a value that a packet cannot have.
    """

    run_id: str | None = None
    identity: RankIdentity | None = None
    roles: str | Mapping[int, str] | Sequence[str] | None = None
    layout: Layout | None = None
    attributes: Mapping[str, str] | None = None
    periods: Mapping[str, int] | None = None
    wrapper: Wrapper = "other"
    parallelism: Parallelism | None = None
    prefetch: Prefetch = "unknown"
    model_fit: bool = False

    def __post_init__(self) -> None:
        check_declared("wrapper", self.wrapper, Wrapper)
        check_declared("parallelism", self.parallelism or Parallelism(), Parallelism)
        check_declared("prefetch", self.prefetch, Prefetch)
        check_declared("model_fit", self.model_fit, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOptions:
    """Options of the content of a window.

    Attributes:
        window_steps: number of steps of a window.
        stages: ordered explicit stages; the residual ``step.other_cpu_wall`` is added at the end.
        between: record the time between steps as a stage before these, ``step.between_cpu_wall``: from the
            end of this rank's previous step to the start of the step, without waits for batches.
        accumulation: gradient accumulation; if ``ordered`` and the factor is above 1, data, forward and
            backward are recorded per micro-step (``with perf.micro_step(k):``).
        first_step: number of the first step, for a run that continues from a checkpoint; the highest of all
            ranks' counts.
        strict: raise RecorderError if a stage is entered inside another one, outside a step or in an
            undeclared micro-step, or is not among ``stages``.

    Raises:
        RecorderError: ``window_steps`` is not positive, ``first_step`` is negative or above 2^61, or one of
            them is no whole number.
    """

    window_steps: int = 100
    stages: Sequence[str] = DEFAULT_STAGES[:-1]
    between: bool = True
    accumulation: Accumulation | None = None
    first_step: int = 0
    strict: bool = False

    def __post_init__(self) -> None:
        _make_whole(self, "window_steps", "first_step")
        if self.window_steps < 1:
            raise RecorderError(_POSITIVE)
        if self.first_step < 0:
            raise RecorderError("first_step must not be negative")
        if self.first_step > _MAX_FIRST_STEP:
            raise RecorderError("first_step must not be above 2^61")

    @property
    def recorded_stages(self) -> tuple[str, ...]:
        """The explicit stages in order, with the time between steps if that is recorded."""
        return with_between(self.stages, self.between)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherOptions:
    """Options of the transport that combines the ranks' rows of a window.

    Attributes:
        gather: name of a transport; the titles in ``TRANSPORTS`` (``sfapp.recorder.transport.transports``)
            describe each, and docs/recorder.md states its cost.
        timeout: seconds that a rank waits for the others at a window's end, outside the training thread
            unless the transport gathers on it.
        max_pending: closed windows that may wait to be written before one is dropped, in addition to short
            ones that wait to be gathered together (docs/recorder.md).
        spool_bytes: packets that may wait on disk for a bucket; above it the oldest are discarded.

    Raises:
        RecorderError: a value is unknown, no number or not positive, or the timeout is above 10^6 s.
    """

    gather: GatherMode = "gloo"
    timeout: float = 30.0
    max_pending: int = 4
    spool_bytes: int = SPOOL_BYTES

    def __post_init__(self) -> None:
        _make_whole(self, "max_pending", "spool_bytes")
        _make_real(self, "timeout")
        if self.max_pending < 1 or self.timeout <= 0 or self.spool_bytes < 1:
            raise RecorderError(_POSITIVE)
        if not self.timeout <= _MAX_TIMEOUT:
            raise RecorderError(f"timeout must be at most {_MAX_TIMEOUT:,.0f} seconds, not {self.timeout}")
        if self.gather not in TRANSPORTS:
            raise RecorderError(f"gather must be one of {', '.join(TRANSPORTS)}, not {self.gather!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChannelOptions:
    """Options of measurements in addition to the stages.

    Attributes:
        event_fraction: fraction of the steps in which ``cuda_event_sample`` records events, such as 0.05, and
            in which waits over NCCL are timed if they are watched.
        evidence: host evidence about the training thread (docs/recorder.md): True for every kind, False for
            none, or some of ``cpu``, ``gc``, ``runnable``, ``switches``, ``faults``, ``block_io``,
            ``throttled`` and ``pressure``. ``SFAPP_EVIDENCE`` in the environment takes precedence.

    Raises:
        RecorderError: the fraction is outside 0 to 1, or a kind of evidence is unknown.
    """

    event_fraction: float = 0.0
    evidence: bool | Collection[str] = True

    def __post_init__(self) -> None:
        chosen_kinds(self.evidence, "")
        _make_real(self, "event_fraction")
        if not 0 <= self.event_fraction <= 1:
            raise RecorderError("event_fraction must lie between 0 and 1")


class RecorderKeywords(TypedDict, total=False):
    """Every field of the option groups except ``gather``, as a keyword of ``Recorder``."""

    run_id: str | None
    identity: RankIdentity | None
    roles: str | Mapping[int, str] | Sequence[str] | None
    layout: Layout | None
    attributes: Mapping[str, str] | None
    periods: Mapping[str, int] | None
    wrapper: Wrapper
    parallelism: Parallelism | None
    prefetch: Prefetch
    model_fit: bool
    window_steps: int
    stages: Sequence[str]
    between: bool
    accumulation: Accumulation | None
    first_step: int
    strict: bool
    timeout: float
    max_pending: int
    spool_bytes: int
    event_fraction: float
    evidence: bool | Collection[str]


_Group = TypeVar("_Group", JobOptions, WindowOptions, GatherOptions, SideChannelOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderOptions:
    """All option groups of a recorder."""

    job: JobOptions = field(default_factory=JobOptions)
    windows: WindowOptions = field(default_factory=WindowOptions)
    gather: GatherOptions = field(default_factory=GatherOptions)
    side_channels: SideChannelOptions = field(default_factory=SideChannelOptions)

    @classmethod
    def of(
        cls,
        job: JobOptions | None,
        windows: WindowOptions | None,
        gather: GatherMode | GatherOptions,
        side_channels: SideChannelOptions | None,
        keywords: RecorderKeywords,
    ) -> RecorderOptions:
        """Return the groups with the given keywords in place of their fields.

        Raises:
            RecorderError: a value is invalid.
            TypeError: a keyword is no option.
        """
        left: dict[str, Any] = {**keywords}
        if not isinstance(gather, GatherOptions):
            left["gather"], gather = gather, GatherOptions()
        options = cls(
            job=_with_keywords(job or JobOptions(), left),
            windows=_with_keywords(windows or WindowOptions(), left),
            gather=_with_keywords(gather, left),
            side_channels=_with_keywords(side_channels or SideChannelOptions(), left),
        )
        if left:
            raise TypeError(f"Recorder() got an unexpected keyword argument {next(iter(left))!r}")
        return options


def _with_keywords(group: _Group, keywords: dict[str, Any]) -> _Group:
    """Return the group with its fields among ``keywords`` replaced, and remove them from there."""
    names = [each.name for each in fields(group) if each.name in keywords]
    return replace(group, **{name: keywords.pop(name) for name in names})


RECORDER_OPTIONS = frozenset(
    {"output", "job", "windows", "gather", "side_channels", "stream", "storage_options", "captures", "clock"}
    | RecorderKeywords.__annotations__.keys()
)
"""Names of all arguments of ``Recorder``."""
