"""Read windows from packet files without a store, skip those that cannot be judged, and predict fixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sfapp.accounting import WhatIf, check_totals, suspect_fix, what_if_of
from sfapp.errors import WindowError
from sfapp.model import Diagnosis, Fix, Window
from sfapp.model.view import WindowKey
from sfapp.packets import Loaded, Quarantined, read_files, read_windows
from sfapp.packets.paths import THINNED_SUFFIX
from sfapp.service.verdicts import measures_behind
from sfapp.storage import StoragePath, storage_of


def load_windows(paths: Sequence[StoragePath]) -> Loaded:
    """Read the windows under some paths; a window whose durations overflow when added up is quarantined."""
    loaded = read_windows(paths)
    usable, refused = judgeable(loaded)
    return replace(usable, quarantined=(*loaded.quarantined, *(each for _, each in refused)))


def thinned_windows(paths: Iterable[StoragePath]) -> list[Window]:
    """Return what `sfapp compact` left of windows below some folders."""
    folders = [path for path in paths if storage_of(path).kind(path) == "folder"]
    files = [file.path for path in folders for file in storage_of(path).files_below(path, THINNED_SUFFIX)]
    return [found.window for found in read_files(files).windows]


def judgeable(loaded: Loaded) -> tuple[Loaded, list[tuple[str, Quarantined]]]:
    """Return the windows whose durations can be added up, and the files of the others, each with its run."""
    usable, refused = [], []
    for found in loaded.windows:
        try:
            check_totals(found.window)
        except WindowError as error:
            run_id = found.window.run_id
            refused += [(run_id, Quarantined(p.path, p.size, p.sha256, str(error))) for p in found.packets]
        else:
            usable.append(found)
    return replace(loaded, windows=tuple(usable)), refused


def what_if_windows(
    windows: Iterable[Window], diagnoses: Sequence[Diagnosis], chosen: Fix | None = None
) -> dict[WindowKey, WhatIf]:
    """Return the effect of a fix in each window; by default, the fix of the suspect.

    Raises:
        WindowNotFoundError: a window has no such stage, rank or node.
    """
    by_key = {WindowKey(window.run_id, window.number): window for window in windows}
    found = {}
    for diagnosis in diagnoses:
        fix = chosen or suspect_fix(diagnosis)
        if fix is not None:
            key = WindowKey(diagnosis.run_id, diagnosis.window)
            found[key] = what_if_of(measures_behind(by_key[key], diagnosis), diagnosis, fix)
    return found
