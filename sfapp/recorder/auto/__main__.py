"""Run a training script as ``__main__``, with hooks that record it."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfapp.recorder.auto.session import Session


class _TorchImportHook(MetaPathFinder, Loader):
    """Import hook that starts recording when the script imports torch.

    Importing torch earlier would ignore earlier set-up of the script, such as environment variables.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.session: Session | None = None
        self._options = options
        self._loader: Loader | None = None
        self._is_searching = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch" or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = find_spec(name)  # The script may only check whether torch is installed.
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
        try:
            self.session = _start(self._options)
        except Exception as error:  # fail-open: the hooks may not support this version of torch
            sys.stderr.write(
                f"sfapp: cannot record with this version of PyTorch: {type(error).__name__}: {error}\n"
            )


def _start(options: argparse.Namespace) -> Session:
    """Install the hooks and return the session to which they report."""
    from sfapp.packets.output import parse_storage_options
    from sfapp.recorder.auto.session import Session
    from sfapp.recorder.auto.settings import Settings
    from sfapp.recorder.auto.torch_hooks import install

    settings = Settings(
        output=options.out,
        storage_options=parse_storage_options(options.storage_option),
        run_id=options.run_id,
        window_steps=options.window_steps,
        between=not options.no_between,
        event_fraction=options.event_fraction,
    )
    session = Session(settings)
    install(session)
    return session


def run(options: argparse.Namespace) -> None:
    """Run and record the script as ``python SCRIPT ARGS`` or ``python -m SCRIPT ARGS`` would run it.

    ``sfapp run`` starts this module with ``-P``: without it, Python searches the current folder first, and a
    file there could take the place of any module that is imported before the script runs.
    """
    import_hook = _TorchImportHook(options)
    sys.meta_path.insert(0, import_hook)
    sys.argv = [options.script, *options.arguments]
    failing = True
    try:
        if options.is_module:
            if sys.flags.safe_path:
                sys.path.insert(0, os.getcwd())
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            folder = str(Path(options.script).resolve().parent)
            if sys.flags.safe_path:
                sys.path.insert(0, folder)
            else:
                sys.path[0] = folder
            runpy.run_path(options.script, run_name="__main__")
        failing = False
    except SystemExit as request:
        failing = request.code not in (None, 0)
        raise
    finally:
        if import_hook.session is not None:
            import_hook.session.close(failing)


def fraction(text: str) -> float:
    """Parse a number from 0 to 1.

    Raises:
        ValueError: it is no such number.
    """
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def main() -> None:
    """Parse the command line and run the script."""
    parser = argparse.ArgumentParser("python -m sfapp.recorder.auto", allow_abbrev=False)
    parser.add_argument("--out", default="packets", help="folder or bucket for packets")
    parser.add_argument(
        "--storage-option", action="append", default=[], metavar="KEY=VALUE", help="option of the bucket"
    )
    parser.add_argument("--run-id", help="name of the run")
    parser.add_argument("--window-steps", type=int, default=100, help="optimizer steps per window")
    parser.add_argument("--no-between", action="store_true", help="do not record the time between steps")
    parser.add_argument(
        "--event-fraction", type=fraction, default=0.05, help="fraction of steps with timed waits over NCCL"
    )
    parser.add_argument("-m", action="store_true", dest="is_module", help="SCRIPT is a module name")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
