"""Run code right after the script has imported a module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class ImportHook(MetaPathFinder, Loader):
    """Import hook that calls a function once a module has been loaded, and is then removed.

    Importing the module earlier would ignore earlier set-up of the script, such as environment variables.

    Args:
        name: the module's full name.
        loaded: is called with the module; it must not raise.
    """

    def __init__(self, name: str, loaded: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._loaded = loaded
        self._loader: Loader | None = None
        self._is_searching = False

    def install(self) -> None:
        """Wait for the import of the module."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = find_spec(name)  # The script may only check whether the module is installed.
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        assert self._loader is not None
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self._loader is not None
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        sys.meta_path.remove(self)
        self._loader.exec_module(module)
        self._loaded(module)
