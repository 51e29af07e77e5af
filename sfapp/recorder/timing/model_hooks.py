"""Hooks on training's modules that copies of the modules leave out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class ModelHook:
    """Hook on a module, of which a saved or copied module gets one that does nothing.

    Training may pickle or copy a whole module at any time, such as when it is interrupted. The recorder that
    a hook leads to cannot be copied, and a copy is not to report to it. What stands for the hook is of the
    standard library, so that a saved module can be loaded without sfapp.
    """

    __slots__ = ("_run",)

    def __init__(self, run: Callable[..., None]) -> None:
        self._run = run

    def __call__(self, *arguments: Any) -> None:
        """Run the hook; it changes neither arguments nor output."""
        self._run(*arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return what makes a function of any arguments that returns None."""
        return getattr, (nullcontext(), "__exit__")
