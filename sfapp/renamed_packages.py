"""Keep the import paths of renamed packages working, with a DeprecationWarning.

``sfapp/__init__.py`` installs the finder. It loads nothing until an old path is imported; the old name then
refers to the same module as the new one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

RENAMED = {
    "sfapp.record": "sfapp.recorder",
    "sfapp.kair": "sfapp.operators",
    "sfapp.traces": "sfapp.importers",
}
"""New package names by old ones."""


def new_name(name: str) -> str | None:
    """Return the new name of a module below a renamed package; None for any other module."""
    package = ".".join(name.split(".")[:2])
    renamed = RENAMED.get(package)
    return None if renamed is None else renamed + name[len(package) :]


class RenamedPackageFinder:
    """Meta path finder for modules below renamed packages."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec that loads the module under its new name; None for any other module."""
        present = new_name(name)
        if present is None:
            return None
        from importlib.util import find_spec, spec_from_loader

        found = find_spec(present)
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return spec_from_loader(
            name,
            _AliasLoader(found),  # type: ignore[arg-type]  # the stub wants load_module, which nothing calls
            is_package=is_package,
        )


class _AliasLoader:
    """Loader that imports a module under its new name and returns it for the old one."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec = spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        import warnings

        warnings.warn(
            f"{spec.name} was renamed to {self._spec.name}; the old name will be removed",
            DeprecationWarning,
            stacklevel=2,
        )
        return importlib.import_module(self._spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import under the old name has replaced."""
        module.__spec__ = self._spec

    def get_code(self, name: str) -> CodeType | None:
        """Return the module's code, for ``python -m`` with an old name."""
        loader: Any = self._spec.loader
        code: CodeType | None = loader.get_code(self._spec.name)
        return code


def install() -> None:
    """Enable the old import paths."""
    if not any(isinstance(finder, RenamedPackageFinder) for finder in sys.meta_path):
        # First in the list: the path finder would load a second copy of the modules below an old name.
        sys.meta_path.insert(0, RenamedPackageFinder())
