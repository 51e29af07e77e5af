"""Compile the recorder's hot path and the array kernels where there is a C compiler; without one they run in
Python and NumPy."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TIMERS = Path("sfapp", "recorder", "timing", "timers.py")
HOOKS = Path("sfapp", "recorder", "timing", "hooks.py")
PAGE_SIZES = Path("sfapp", "packets", "page_sizes.py")
KERNELS = Path("sfapp", "accounting", "_kernels.pyx")

IN_C = {
    TIMERS: {
        "state.clock()": "read_clock(state)",
        "state.cpu_clock()": "read_cpu(state)",
        "from threading import get_ident\n": "",
        "NOT_READ, read_host, set_host_row": "NOT_READ, set_host_row",
    },
    HOOKS: {},
    PAGE_SIZES: {},
}
"""Sources in Python that are compiled too, and what is replaced in the copy for the compiler, because the
``.pxd`` file beside the source has it as inline C."""

DIRECTIVES = {"language_level": 3, "annotation_typing": False, "infer_types": True, "wraparound": False}


class CompileHotPath(BuildHookInterface[Any]):
    """Build hook: a wheel carries the compiled module, an editable install has it beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = tempfile.mkdtemp()
        for source, name, compiler, without in (
            (TIMERS, "_timers", compiled, "steps will be timed in Python"),
            (HOOKS, "_hooks", compiled, "waits and collections will be timed in Python"),
            (PAGE_SIZES, "_page_sizes", compiled, "the pages of packets will be checked in Python"),
            (KERNELS, "_kernels", compiled_kernels, "large windows will be diagnosed with NumPy alone"),
        ):
            module = source.with_name(name + str(sysconfig.get_config_var("EXT_SUFFIX")))
            try:
                self._add(source, module, compiler, version, build_data)
            except (CannotCompile, OSError) as why:
                self.app.display_warning(f"{without}, which takes longer: {why}")

    def _add(
        self,
        source: Path,
        module: Path,
        compiler: Callable[[Path, Path], Path],
        version: str,
        build_data: dict[str, Any],
    ) -> None:
        root = Path(self.root)
        if version == "editable":
            (root / module).unlink(missing_ok=True)  # It was built from another source.
        built = compiler(root / source, Path(self._folder, module.stem))
        if version == "editable":
            whole = shutil.copy(built, (root / module).with_suffix(".new"))
            os.replace(whole, root / module)
        else:
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["force_include"][str(built)] = module.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class CannotCompile(Exception):
    """A module cannot be compiled; the message states why."""


def compiled(source: Path, folder: Path) -> Path:
    """Compile a source in Python to an extension module in this folder, and return the module's path.

    Raises:
        CannotCompile: there is no compiler, or ``SFAPP_COMPILED`` is ``off``.
    """
    path = next(path for path in IN_C if source.parts[-len(path.parts) :] == path.parts)
    module = path.with_name(f"_{path.stem}")
    copy = folder / "source" / module.with_suffix(".py")
    copy.parent.mkdir(parents=True)
    for package in path.parents[:-1]:
        (folder / "source" / package / "__init__.py").touch()
    _copy_for_c(source, copy, IN_C[path])
    return _extension(".".join(module.parts), copy, folder, DIRECTIVES, ["-g0"])  # 1 MB with symbols


def compiled_kernels(source: Path, folder: Path) -> Path:
    """Compile the array kernels to an extension module in this folder, and return the module's path.

    Raises:
        CannotCompile: there is no compiler, or ``SFAPP_COMPILED`` is ``off``.
    """
    # A product and a sum in one rounding would give other numbers than NumPy's.
    options = ["-g0", "-O3", "-ffp-contract=off"]
    return _extension(f"sfapp.accounting.{source.stem}", source, folder, {}, options)


def _extension(name: str, source: Path, folder: Path, directives: dict[str, Any], options: list[str]) -> Path:
    if os.environ.get("SFAPP_COMPILED", "").lower() == "off":
        raise CannotCompile("SFAPP_COMPILED=off")
    if not sys.platform.startswith("linux"):  # The clock is read as Python does on Linux.
        raise CannotCompile(f"it is written for Linux, not {sys.platform}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise CannotCompile("this Python has no global lock, which it relies on")
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as NotCython
        from setuptools import Distribution, Extension
        from setuptools.errors import BaseError, CCompilerError
    except ImportError as missing:
        raise CannotCompile(str(missing)) from missing
    try:
        extension = Extension(name, [str(source)], extra_compile_args=options)
        modules = cythonize(
            [extension], build_dir=str(folder / "c"), compiler_directives=directives, force=True
        )
        command = Distribution({"name": "sfapp", "ext_modules": modules}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
        command.ensure_finalized()
        command.run()
    except (NotCython, BaseError, CCompilerError) as failed:
        raise CannotCompile(str(failed)) from failed
    return Path(command.get_outputs()[0])


def _copy_for_c(source: Path, copy: Path, in_c: dict[str, str]) -> None:
    """Copy a source and its C types to where Cython finds them under the compiled module's name."""
    text = source.read_text(encoding="utf-8")
    for python, c in in_c.items():
        if python not in text:
            raise CannotCompile(f"{source.name} has no {python!r} to replace")
        text = text.replace(python, c)
    text += f'\nSOURCE_DIGEST = "{hashlib.sha256(source.read_bytes()).hexdigest()}"\n'
    copy.write_text(text, encoding="utf-8")
    shutil.copy(source.with_name(copy.stem + ".pxd"), copy.with_suffix(".pxd"))
