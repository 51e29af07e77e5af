"""Create an environment in which this tree runs with the CUDA build of torch of an existing interpreter.

    python -m benchmarks.gpu_environment FOLDER [--wheels FOLDER] [PIP_ARGUMENT …]

The environment sees the interpreter's packages. pip installs missing packages into it, but never torch. With
``--wheels`` nothing is downloaded. If the tree cannot be built (no wheels of the build tools), it runs from
its folder, with steps timed in Python. This module needs only the standard library.
"""

from __future__ import annotations

import argparse
import os
import site
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)


def missing() -> str:
    """Return what this interpreter lacks for a run on a CUDA device; empty if it lacks nothing."""
    try:
        import torch
    except ImportError:
        return f"{sys.executable} has no torch: name an interpreter that has one (make gpu GPU_PYTHON=…)"
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return (
            f"torch {torch.__version__} is built without CUDA: install a build with CUDA, or name an "
            "interpreter that has one (make gpu GPU_PYTHON=…)"
        )
    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} has CUDA {torch.version.cuda} but finds no device: is there a "
            "driver, and does CUDA_VISIBLE_DEVICES hide the devices?"
        )
    return ""


def requirements() -> list[str]:
    """Return the requirements of the tree and its GPU tests from ``pyproject.toml``, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["gpu"], *extras["stream"]]
    return [each for each in needed if not each.startswith("sfapp")]


def create(folder: Path) -> Path:
    """Create the environment and return its interpreter.

    It sees the packages of this interpreter, even if that is in its own environment.
    """
    builder = venv.EnvBuilder(system_site_packages=True, clear=True, with_pip=False, symlinks=os.name != "nt")
    builder.create(folder)
    interpreter = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    variables = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", variables))
    seen = [path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir()]
    (packages / "interpreter.pth").write_text("\n".join([*seen, ""]), encoding="utf-8")
    (packages / "tree.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    return interpreter


def install(interpreter: Path, wheels: Path | None, arguments: Sequence[str]) -> None:
    """Install missing packages.

    Raises:
        SystemExit: pip failed.
    """
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "install"]
    pip += ["--quiet", "--disable-pip-version-check", *arguments]
    if wheels is not None:
        pip += ["--no-index", "--find-links", str(wheels.resolve())]
    if subprocess.run([*pip, "-e", f"{ROOT}[gpu]"], check=False).returncode == 0:
        return
    print("The tree could not be built: it runs from its folder, and steps are timed in Python.", flush=True)
    if subprocess.run([*pip, *requirements()], check=False).returncode:
        sys.exit("pip could not install what is missing: carry wheels (make gpu GPU_WHEELS=FOLDER)")


def main() -> None:
    """Create the environment, if this interpreter meets the requirements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheels", type=Path, default=None)
    options, arguments = parser.parse_known_args()
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"make gpu needs Python {'.'.join(map(str, OLDEST_PYTHON))}, not {sys.version.split()[0]}")
    if why := missing():
        sys.exit(f"make gpu needs a CUDA device: {why}")
    if options.wheels is not None and not options.wheels.is_dir():
        sys.exit(f"there is no folder {options.wheels} with wheels")
    install(create(options.folder), options.wheels, arguments)


if __name__ == "__main__":
    main()
