"""Run a training script as ``__main__``, with hooks that record it."""

from __future__ import annotations

import argparse
import os
import pkgutil
import runpy
import sys
from importlib.machinery import SourceFileLoader
from io import open_code
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from sfapp.recorder.auto.import_hooks import ImportHook

if TYPE_CHECKING:
    from sfapp.recorder.auto.session import Session


class _Recording:
    """Recording of the script, which starts when it imports torch."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.session: Session | None = None
        self._options = options
        # The script may go to another folder before it imports torch.
        self._folder = _current_folder()

    def start(self, torch: ModuleType) -> None:
        """Install the hooks; if this version of PyTorch does not have them, say so and record nothing."""
        try:
            self.session = _start(self._options, self._folder)
        except Exception as error:  # fail-open: the hooks may not support this version of torch
            sys.stderr.write(
                f"sfapp: cannot record with this version of PyTorch: {type(error).__name__}: {error}\n"
            )


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # It was removed.
        return ""


def _start(options: argparse.Namespace, folder: str) -> Session:
    """Install the hooks and return the session to which they report.

    Args:
        folder: the current folder when the script began.
    """
    from sfapp.packets.output import output_in, parse_storage_options
    from sfapp.recorder.auto.session import Session
    from sfapp.recorder.auto.settings import Settings
    from sfapp.recorder.auto.torch_hooks import install

    settings = Settings(
        output=output_in(folder, options.out),
        storage_options=parse_storage_options(options.storage_option),
        run_id=options.run_id,
        window_steps=options.window_steps,
        between=not options.no_between,
        event_fraction=options.event_fraction,
    )
    session = Session(settings)
    install(session)
    return session


def _run_as_main(script: str, is_module: bool) -> None:
    """Run the script in a module of its own that stays ``__main__`` until the interpreter ends.

    Threads and exit handlers of the script may look its names up later, as pickling does.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    path = Path(script)
    folder = os.getcwd() if is_module else script if _has_main(script) else str(path.resolve().parent)
    if sys.flags.safe_path:
        sys.path.insert(0, folder)
    elif not is_module:
        sys.path[0] = folder
    if is_module or folder == script:
        # What Python itself calls for ``-m`` and for folders; the public functions put another module back.
        name = script if is_module else "__main__"
        runpy._run_module_as_main(name, is_module)  # type: ignore[attr-defined]  # private
        return
    main.__file__, main.__loader__ = script, SourceFileLoader("__main__", script)
    with open_code(str(path.absolute())) as file:
        code = pkgutil.read_code(file)  # of a compiled script
        if code is None:
            file.seek(0)
            code = compile(file.read(), script, "exec")
    exec(code, main.__dict__)


def _has_main(path: str) -> bool:
    """Return whether this is a folder or an archive, whose module ``__main__`` is the script."""
    return pkgutil.get_importer(path) is not None


def run(options: argparse.Namespace) -> None:
    """Run and record the script as ``python SCRIPT ARGS`` or ``python -m SCRIPT ARGS`` would run it.

    ``sfapp run`` starts this module with ``-P``: without it, Python searches the current folder first, and a
    file there could take the place of any module that is imported before the script runs.
    """
    recording = _Recording(options)
    ImportHook("torch", recording.start).install()
    sys.argv = [options.script, *options.arguments]
    failing = True
    try:
        _run_as_main(options.script, options.is_module)
        failing = False
    except SystemExit as request:
        failing = request.code not in (None, 0)
        raise
    finally:
        if recording.session is not None:
            recording.session.close(failing)


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
