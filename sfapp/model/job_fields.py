"""What a job ran with, as texts by name: fields of the manifest by which runs are compared (§23)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sfapp.model.manifest import Manifest
from sfapp.terminal import printable

MOST_FIELDS = 48
"""Fields of a window that are kept; the manifest's ``extra`` comes first."""

LONGEST_NAME, LONGEST_VALUE = 100, 200
"""Characters of a field's name and value that are kept."""

SEVERAL = "several values"
"""Value of an attribute that ranks of one window do not share."""

SFAPP_VERSION, TORCH_VERSION = "sfapp_version", "torch_version"

IMPORTED_SOURCE = "imported_source"
"""Entry of ``extra`` that tells of which source an import wrote a packet."""

_NO_FIELDS = frozenset({"nested_ns", IMPORTED_SOURCE})
"""Entries of ``extra`` that do not say what a job ran with."""


def job_fields(manifest: Manifest, attributes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the fields of a window: texts, numbers and truth values of ``extra``, attributes, versions.

    Of several with one name, the first of these counts. Names and values are untrusted; control characters
    in them are escaped, and both are cut.

    Args:
        attributes: those of its ranks by name, one value for each rank.
    """
    fields: dict[str, str] = {}
    for name, value in _found(manifest, attributes):
        if len(fields) == MOST_FIELDS:
            break
        if value and name:
            fields.setdefault(printable(name, LONGEST_NAME), printable(value, LONGEST_VALUE))
    return fields


def _found(manifest: Manifest, attributes: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for name, value in manifest.extra.items():
        if name not in _NO_FIELDS and (text := _text(value)):
            yield name, text
    for name, values in attributes.items():
        known = set(values)
        yield name, next(iter(known)) if len(known) == 1 else SEVERAL if known else ""
    yield SFAPP_VERSION, manifest.recorder.version
    yield TORCH_VERSION, manifest.recorder.torch


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else ""


def encode_fields(fields: Mapping[str, str]) -> str:
    """Return fields as JSON; equal fields give equal texts."""
    return msgspec.json.encode(dict(sorted(fields.items()))).decode()
