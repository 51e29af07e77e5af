"""Merge old samples: all samples of one subject within an interval become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from sfapp.model.samples import SAMPLES, SUBJECTS, Aggregation, AnySample, PaceSample, Sample, sample_fields

_SECOND = 10**9
_MOST = 2**63 - 1  # the largest number of a sample
_BATCH = 500

_SubjectKey = tuple[type[Sample], Any]


def downsampled(pieces: Iterable[Sequence[AnySample]], every_s: int) -> Iterator[list[AnySample]]:
    """Yield one sample per subject and interval of ``every_s`` seconds, in order of time.

    Intervals are aligned to 1970. Finished samples are yielded in batches after every input piece. Only two
    intervals are held in memory; samples that arrive later, from a node that was disconnected, are merged
    separately, which readers allow.
    """
    intervals: dict[int, dict[_SubjectKey, _MergedSample]] = {}
    newest = -1
    for piece in pieces:
        ended: list[_MergedSample] = []
        for sample in piece:
            interval = sample.at_ns // (every_s * _SECOND)
            if interval > newest:
                newest = interval
                for old in sorted(each for each in intervals if each < newest - 1):
                    ended += intervals.pop(old).values()
            if interval < newest - 1:
                ended.append(_MergedSample(sample))
                continue
            kind = type(sample)
            key = kind, _SUBJECT[kind](sample)
            subjects = intervals.setdefault(interval, {})
            merged = subjects.get(key)
            if merged is None:
                subjects[key] = _MergedSample(sample)
            else:
                merged.add(sample)
        yield from _batches(ended)
    yield from _batches([merged for old in sorted(intervals) for merged in intervals[old].values()])


def _batches(ended: Sequence[_MergedSample]) -> Iterator[list[AnySample]]:
    """Yield the samples in batches; one empty batch if there are none."""
    for first in range(0, max(1, len(ended)), _BATCH):
        yield [merged.sample() for merged in ended[first : first + _BATCH]]


class _MergedSample:
    """Samples of one subject in one interval, merged as they arrive."""

    __slots__ = ("_count", "_newest", "_states")

    def __init__(self, sample: AnySample) -> None:
        self._newest = sample
        self._count = 1
        self._states: list[Any] = []

    def add(self, sample: AnySample) -> None:
        """Add a sample."""
        if self._count == 1:
            self._states = [None] * len(_MERGED_FIELDS[type(sample)])
            self._take(self._newest)
        self._take(sample)
        self._count += 1
        if sample.at_ns >= self._newest.at_ns:
            self._newest = sample

    def sample(self) -> AnySample:
        """Return the merged sample; a single sample is returned unchanged."""
        if self._count == 1:
            return self._newest
        fields = zip(_MERGED_FIELDS[type(self._newest)], self._states, strict=True)
        return replace(
            self._newest, **{name: _FINISH[aggregation](state) for (name, aggregation, _), state in fields}
        )

    def _take(self, sample: AnySample) -> None:
        weight = sample.steps if isinstance(sample, PaceSample) else 1
        states = self._states
        for index, (name, _, merge) in enumerate(_MERGED_FIELDS[type(sample)]):
            states[index] = merge(states[index], getattr(sample, name), weight)


_Merge = Callable[[Any, Any, int], Any]
"""Function that returns a field's new state from its state, the next value and the value's weight."""


def _mean(before: tuple[float, int] | None, value: float | None, weight: int) -> Any:
    if value is None:
        return before
    if before is None:
        return value * weight, weight
    return before[0] + value * weight, before[1] + weight


def _max(before: Any, value: Any, _: int) -> Any:
    return before if value is None or (before is not None and before >= value) else value


def _sum(before: Any, value: Any, _: int) -> Any:
    return value if before is None else min(before + value, _MOST)


def _union(before: frozenset[str] | None, value: Sequence[str], _: int) -> Any:
    return frozenset(value) if before is None else before.union(value)


_MERGE: Mapping[Aggregation, _Merge] = {"mean": _mean, "max": _max, "sum": _sum, "union": _union}


def _identity(state: Any) -> Any:
    return state


_FINISH: Mapping[Aggregation, Callable[[Any], Any]] = {
    "mean": lambda state: state and state[0] / state[1],
    "max": _identity,
    "sum": _identity,
    "union": lambda state: tuple(sorted(state)),
}

_MERGED_FIELDS: Mapping[type[Sample], Sequence[tuple[str, Aggregation, _Merge]]] = {
    kind: tuple(
        (name, aggregation, _MERGE[aggregation])
        for name, (_, aggregation) in sample_fields(kind).items()
        if aggregation != "newest"
    )
    for kind in SAMPLES
}

_SUBJECT: Mapping[type[Sample], Callable[[Sample], Any]] = {
    kind: attrgetter(*names) for kind, names in SUBJECTS.items()
}
