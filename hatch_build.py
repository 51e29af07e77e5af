"""Compiles the recorder's hot path where there is a compiler; without one the package is Python alone."""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("sfapp", "record", "_hot.pyx")


class CompileHotPath(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel carries the compiled module, an editable install has it beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not sys.platform.startswith("linux"):  # its clock is read as Python does on Linux
            return
        root = Path(self.root)
        module = SOURCE.with_name("_hot" + str(sysconfig.get_config_var("EXT_SUFFIX")))
        self._folder = tempfile.TemporaryDirectory()
        built = compiled(root / SOURCE, Path(self._folder.name))
        if built is None:
            self.app.display_warning("no C compiler: steps will be timed in Python, at about twice the cost")
        elif version == "editable":
            (root / module).unlink(missing_ok=True)  # not written over: a process may be running it
            (root / module).write_bytes(built.read_bytes())
        else:
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["force_include"][str(built)] = module.as_posix()


def compiled(source: Path, folder: Path) -> Path | None:
    """The extension module made of this source, in this folder; None where there is no compiler."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.errors import CompileError, ExecError, LinkError, PlatformError

    extension = Extension("sfapp.record._hot", [str(source)], extra_compile_args=["-g0"])  # 1 MB with symbols
    modules = cythonize([extension], build_dir=str(folder / "c"), force=True)
    command = Distribution({"name": "sfapp", "ext_modules": modules}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
    command.ensure_finalized()
    try:
        command.run()
    except (CompileError, ExecError, LinkError, PlatformError):
        return None
    return Path(command.get_outputs()[0])
