"""Fewer samples for older times: all of one subject in so many seconds become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from sfapp.model.samples import SAMPLES, SUBJECTS, AnySample, PaceSample, Sample, Thinning, described

_SECOND = 10**9
_AT_ONCE = 500

_Key = tuple[type[Sample], Any]


def thinned(pieces: Iterable[Sequence[AnySample]], every_s: int) -> Iterator[list[AnySample]]:
    """One sample for each subject and stretch of ``every_s`` seconds, aligned to 1970, in order of time; a
    few at a time, after every piece that comes.

    Holds one sample of each subject for each of two stretches, however many are put together. One that comes
    later than that, from a node that was cut off, is thinned by itself: a reader puts stretches together
    anyway.
    """
    stretches: dict[int, dict[_Key, _Merged]] = {}
    newest = -1
    for piece in pieces:
        ended: list[_Merged] = []
        for sample in piece:
            stretch = sample.at_ns // (every_s * _SECOND)
            if stretch > newest:
                newest = stretch
                for old in sorted(which for which in stretches if which < newest - 1):
                    ended += stretches.pop(old).values()
            if stretch < newest - 1:
                ended.append(_Merged(sample))
                continue
            kind = type(sample)
            key = kind, _SUBJECT[kind](sample)
            subjects = stretches.setdefault(stretch, {})
            known = subjects.get(key)
            if known is None:
                subjects[key] = _Merged(sample)
            else:
                known.add(sample)
        yield from _portions(ended)
    yield from _portions([merged for old in sorted(stretches) for merged in stretches[old].values()])


def _portions(ended: Sequence[_Merged]) -> Iterator[list[AnySample]]:
    """A few at a time; one of none where there are none."""
    for first in range(0, max(1, len(ended)), _AT_ONCE):
        yield [merged.sample() for merged in ended[first : first + _AT_ONCE]]


class _Merged:
    """One subject's samples of one stretch, added up as they come."""

    __slots__ = ("_count", "_newest", "_states")

    def __init__(self, sample: AnySample) -> None:
        self._newest = sample
        self._count = 1
        self._states: list[Any] = []

    def add(self, sample: AnySample) -> None:
        """One more."""
        if self._count == 1:
            self._states = [None] * len(_ADDED_UP[type(sample)])
            self._take(self._newest)
        self._take(sample)
        self._count += 1
        if sample.at_ns >= self._newest.at_ns:
            self._newest = sample

    def sample(self) -> AnySample:
        """All of them as one; a single one as it came."""
        if self._count == 1:
            return self._newest
        fields = zip(_ADDED_UP[type(self._newest)], self._states, strict=True)
        return replace(self._newest, **{name: _END[thinning](state) for (name, thinning, _), state in fields})

    def _take(self, sample: AnySample) -> None:
        weight = sample.steps if isinstance(sample, PaceSample) else 1
        states = self._states
        for place, (name, _, add) in enumerate(_ADDED_UP[type(sample)]):
            states[place] = add(states[place], getattr(sample, name), weight)


_Add = Callable[[Any, Any, int], Any]
"""What is known of a field after one more value, given that before, the value and its weight."""


def _mean(before: tuple[float, int] | None, value: float | None, weight: int) -> Any:
    if value is None:
        return before
    if before is None:
        return value * weight, weight
    return before[0] + value * weight, before[1] + weight


def _max(before: Any, value: Any, _: int) -> Any:
    return before if value is None or (before is not None and before >= value) else value


def _sum(before: Any, value: Any, _: int) -> Any:
    return value if before is None else before + value


def _union(before: frozenset[str] | None, value: Sequence[str], _: int) -> Any:
    return frozenset(value) if before is None else before.union(value)


_ADD: Mapping[Thinning, _Add] = {"mean": _mean, "max": _max, "sum": _sum, "union": _union}


def _as_it_is(state: Any) -> Any:
    return state


_END: Mapping[Thinning, Callable[[Any], Any]] = {
    "mean": lambda state: state and state[0] / state[1],
    "max": _as_it_is,
    "sum": _as_it_is,
    "union": lambda state: tuple(sorted(state)),
}

_ADDED_UP: Mapping[type[Sample], Sequence[tuple[str, Thinning, _Add]]] = {
    kind: tuple(
        (name, thinning, _ADD[thinning])
        for name, (_, thinning) in described(kind).items()
        if thinning != "newest"
    )
    for kind in SAMPLES
}

_SUBJECT: Mapping[type[Sample], Callable[[Sample], Any]] = {
    kind: attrgetter(*names) for kind, names in SUBJECTS.items()
}
