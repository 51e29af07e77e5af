"""Find the compiled copies of modules that ``hatch_build.py`` compiles where there is a C compiler."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from types import ModuleType


def compiled_from(source: ModuleType) -> ModuleType | None:
    """Return the compiled copy of a module; None if there is none, or it was compiled from another source."""
    package, _, name = source.__name__.rpartition(".")
    try:
        compiled = importlib.import_module(f"{package}._{name}")
        digest = hashlib.sha256(Path(source.__file__ or "").read_bytes()).hexdigest()
    except (ImportError, OSError):
        # Installed without a compiler, or compiled for another Python or from another source.
        return None
    return compiled if getattr(compiled, "SOURCE_DIGEST", "") == digest else None
