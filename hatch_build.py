"""Compiles the recorder's hot path where there is a compiler; without one the package is Python alone."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("sfapp", "recorder", "timing", "_timers.pyx")


class CompileHotPath(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel carries the compiled module, an editable install has it beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        module = SOURCE.with_name("_timers" + str(sysconfig.get_config_var("EXT_SUFFIX")))
        self._folder = tempfile.mkdtemp()
        try:
            if version == "editable":
                (root / module).unlink(missing_ok=True)  # what was built from another source
            built = compiled(root / SOURCE, Path(self._folder))
            if version == "editable":
                whole = shutil.copy(built, (root / module).with_suffix(".new"))
                os.replace(whole, root / module)
            else:
                build_data["pure_python"], build_data["infer_tag"] = False, True
                build_data["force_include"][str(built)] = module.as_posix()
        except (CannotCompile, OSError) as why:
            self.app.display_warning(f"steps will be timed in Python, which takes longer: {why}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class CannotCompile(Exception):
    """Why there is no compiled hot path."""


def compiled(source: Path, folder: Path) -> Path:
    """The extension module made of this source, in this folder.

    Raises:
        CannotCompile: there is no compiler, or it is not wanted.
    """
    if os.environ.get("SFAPP_COMPILED", "").lower() == "off":
        raise CannotCompile("SFAPP_COMPILED=off")
    if not sys.platform.startswith("linux"):  # its clock is read as Python does on Linux
        raise CannotCompile(f"it is made for Linux, not {sys.platform}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise CannotCompile("this Python has no global lock, which it relies on")
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as NotCython
        from setuptools import Distribution, Extension
        from setuptools.errors import BaseError, CCompilerError
    except ImportError as missing:
        raise CannotCompile(str(missing)) from missing
    extension = Extension(
        "sfapp.recorder.timing._timers", [str(source)], extra_compile_args=["-g0"]
    )  # 1 MB with symbols
    try:
        modules = cythonize([extension], build_dir=str(folder / "c"), force=True)
        command = Distribution({"name": "sfapp", "ext_modules": modules}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
        command.ensure_finalized()
        command.run()
    except (NotCython, BaseError, CCompilerError) as failed:
        raise CannotCompile(str(failed)) from failed
    return Path(command.get_outputs()[0])
