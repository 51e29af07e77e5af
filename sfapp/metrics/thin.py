"""Fewer samples for older times: all of one subject in so many seconds become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sfapp.model.metrics import SAMPLES, SUBJECTS, AnySample, Sample, Thinning, described

_SECOND = 10**9

Values = Sequence[Any]
_Key = tuple[type[Sample], tuple[int, ...]]


def thinned(samples: Iterable[AnySample], every_s: int) -> Iterator[AnySample]:
    """One sample for each subject and stretch of ``every_s`` seconds, aligned to 1970, in order of time.

    Holds the samples of two stretches at most. One that comes later than that, from a node that was cut off,
    is thinned by itself: a reader puts stretches together anyway.
    """
    stretches: dict[int, dict[_Key, list[AnySample]]] = {}
    newest = -1
    for sample in samples:
        stretch = sample.at_ns // (every_s * _SECOND)
        if stretch > newest:
            newest = stretch
            for old in sorted(which for which in stretches if which < newest - 1):
                yield from _merged(stretches.pop(old))
        subject = tuple(getattr(sample, name) for name in SUBJECTS[type(sample)])
        stretches.setdefault(stretch, {}).setdefault((type(sample), subject), []).append(sample)
        if stretch < newest - 1:
            yield from _merged(stretches.pop(stretch))
    for old in sorted(stretches):
        yield from _merged(stretches[old])


def _merged(groups: Mapping[_Key, list[AnySample]]) -> Iterator[AnySample]:
    for (kind, _), group in groups.items():
        yield group[0] if len(group) == 1 else _merge(kind, group)


def _merge(kind: type[Sample], group: list[AnySample]) -> AnySample:
    group.sort(key=lambda sample: sample.at_ns)
    weights = [getattr(sample, "steps", 1) for sample in group]
    merged: AnySample = kind(
        **{
            name: _MERGES[thinning]([getattr(sample, name) for sample in group], weights)
            for name, thinning in _FIELDS[kind]
        }
    )
    return merged


def _present(values: Values) -> list[Any]:
    return [value for value in values if value is not None]


def _mean(values: Values, weights: Sequence[int]) -> float | None:
    there = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weight for _, weight in there)
    return sum(value * weight for value, weight in there) / total if total else None


def _union(values: Values, weights: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted({name for value in values for name in value}))


_MERGES: Mapping[Thinning, Callable[[Values, Sequence[int]], Any]] = {
    "mean": _mean,
    "max": lambda values, _: max(_present(values), default=None),
    "sum": lambda values, _: sum(values),
    "newest": lambda values, _: values[-1],
    "union": _union,
}

_FIELDS = {kind: tuple((name, how) for name, (_, how) in described(kind).items()) for kind in SAMPLES}
