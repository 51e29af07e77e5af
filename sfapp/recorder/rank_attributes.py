"""Describe this rank's machine and job in words, without privileges and without using a device."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from sfapp.errors import RecorderError
from sfapp.files import open_regular
from sfapp.model.host_evidence import (
    CPU_MODEL,
    GPU_DRIVER,
    GPU_MODEL,
    IMAGE,
    KERNEL,
    MAX_ATTRIBUTE_LENGTH,
    MAX_ATTRIBUTES,
    Attributes,
)
from sfapp.packets.value_checks import is_unicode
from sfapp.packets.window_rows import check_name
from sfapp.terminal import printable, quoted

IMAGE_VARIABLES = ("SFAPP_IMAGE", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
"""Environment variables with the name of the container image; the first one that is set counts."""

MAX_BYTES = 2048
"""Maximum size of a rank's attributes as JSON: they are sent in a message of fixed size."""

_LONGEST_FOUND = 100

_NVIDIA = Path("/proc/driver/nvidia")


def rank_attributes(declared: Mapping[str, str]) -> Attributes:
    """Return the attributes of this rank: those declared, and those found under other names.

    Raises:
        RecorderError: the declared ones are no texts, or too many or too long.
    """
    _check(declared)
    found = {name: printable(text, _LONGEST_FOUND) for name, text in _found() if text}
    attributes = {**found, **declared}
    for name in found:  # Those declared matter more where there is not room for all.
        is_long = len(attributes) > MAX_ATTRIBUTES or len(msgspec.json.encode(attributes)) > MAX_BYTES
        if is_long and name not in declared:
            del attributes[name]
    return attributes


def _check(declared: Mapping[str, str]) -> None:
    if not isinstance(declared, Mapping):
        raise RecorderError(f"attributes must be texts by name, not {quoted(repr(declared))}")
    for name, value in declared.items():
        check_name("an attribute's name", name)
        if not isinstance(value, str) or len(value) > MAX_ATTRIBUTE_LENGTH or not is_unicode(value):
            raise RecorderError(
                f"the attribute {quoted(name)} must be a text of at most {MAX_ATTRIBUTE_LENGTH} characters"
            )
    if len(declared) > MAX_ATTRIBUTES or len(msgspec.json.encode(dict(declared))) > MAX_BYTES:
        raise RecorderError(
            f"attributes must be at most {MAX_ATTRIBUTES} names, and {MAX_BYTES:,} bytes with their values"
        )


def _found() -> Iterator[tuple[str, str]]:
    yield KERNEL, platform.release()
    yield CPU_MODEL, _after(Path("/proc/cpuinfo"), "model name", ":") or platform.processor()
    with suppress(OSError):
        models = {_after(gpu / "information", "Model", ":") for gpu in sorted(_NVIDIA.glob("gpus/*"))}
        yield GPU_MODEL, ", ".join(sorted(models - {""}))
    driver = _after(_NVIDIA / "version", "NVRM version", ":").partition("  ")[2].split()
    yield GPU_DRIVER, driver[0] if driver else ""
    yield IMAGE, next((os.environ[name] for name in IMAGE_VARIABLES if os.environ.get(name)), "")


def _after(path: Path, name: str, separator: str) -> str:
    """Return the rest of a file's first line that begins with a name; empty if there is none."""
    try:
        with open_regular(path) as file:
            for raw in file:
                line = raw.decode(errors="replace")
                if line.startswith(name):
                    return line.partition(separator)[2].strip()
    except OSError:
        return ""
    return ""
