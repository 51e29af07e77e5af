"""Every command names the extra to install where a module of it is missing."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from sfapp.cli import COMMANDS, module_of
from sfapp.errors import EXTRA_OF_MODULE, MissingExtraError

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_data" / "packets"
BASE = {"click", "msgspec", "numpy", "pyarrow"}

# Has loaded the base install, and forks a command for each line that it reads; answers with its exit code. A
# meta-path finder refuses some modules of the command and notes which third-party modules it asks for.
PROGRAM = """
import json, os, sys
import click, msgspec, numpy, pyarrow.compute, pyarrow.parquet

for line in sys.stdin:
    blocked, noted, arguments, output = json.loads(line)
    if (child := os.fork()) == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()

class Blocker:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in noted:
            print(f"asked:{top}", file=sys.stderr)
        if top in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

os.dup2(os.open(os.devnull, os.O_RDWR), 0)
os.dup2(0, 1)
os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
sys.meta_path.insert(0, Blocker())
sys.argv = ["sfapp", *arguments]
from sfapp.cli import main
main()
"""

# Arguments with which a command gets far enough to import what it needs; others are called with `--help`.
ARGUMENTS: dict[str, list[str]] = {
    "run": ["--out", "{tmp}/packets", "--live", "{tmp}/script.py"],
    "serve": ["{tmp}/nowhere", "--port", "0", "--no-browser"],
    "analyze": [str(SAMPLE / "gpt-small-rank-lost")],
    "compare": ["--packets", str(SAMPLE), "gpt-small-ddp/0", "gpt-small-ddp/1"],
    "mcp": [str(SAMPLE / "gpt-small-rank-lost")],
    "report": [str(SAMPLE / "gpt-small-rank-lost"), "-o", "{tmp}/report.html"],
    "top": [str(SAMPLE / "gpt-small-rank-lost"), "--once"],
    "watch": [
        *("{tmp}/copy", "--once", "--notify", "json://127.0.0.1:9"),
        *("--quiet-hours", "00:00-12:00", "--quiet-hours", "12:00-00:00"),
    ],
    "stacks": ["{tmp}/copy", "gpt-small-rank-lost", "--last"],
    "hang": [str(SAMPLE)],
    "capture": ["{tmp}/copy", "gpt-small-rank-lost", "--no-wait"],
    "aggregate": ["{tmp}/packets", "--listen", "not an address"],
    "relay": ["not an address", "--listen", "not an address"],
    "import": ["kineto", str(SAMPLE), "-o", "{tmp}/packets"],
    "export": ["perfetto", str(SAMPLE), "--window", "gpt-small-ddp/0", "-o", "{tmp}/slice.zip"],
    "validate": [str(SAMPLE / "gpt-small-rank-lost")],
}


SfappWithout = Callable[[set[str], str, Path], tuple[int, str, set[str]]]


@pytest.fixture(scope="module")
def sfapp_without() -> Iterator[SfappWithout]:
    """Run a command without some modules: its exit code, its messages and the modules it asked for."""
    noted = sorted({*EXTRA_OF_MODULE, "torch"})

    def run(blocked: set[str], command: str, tmp: Path) -> tuple[int, str, set[str]]:
        (tmp / "script.py").write_text("")
        copy = tmp / "copy" / "gpt-small-rank-lost"
        shutil.copytree(SAMPLE / "gpt-small-rank-lost", copy, dirs_exist_ok=True)
        arguments = [each.replace("{tmp}", str(tmp)) for each in ARGUMENTS.get(command, ["--help"])]
        asked_for = [sorted(blocked), noted, [command, *arguments], str(tmp / "output")]
        assert base.stdin is not None
        assert base.stdout is not None
        base.stdin.write(json.dumps(asked_for) + "\n")
        base.stdin.flush()
        code = int(base.stdout.readline())
        lines = (tmp / "output").read_text().splitlines()
        asked = {line.removeprefix("asked:") for line in lines if line.startswith("asked:")}
        return code, "\n".join(line for line in lines if not line.startswith("asked:")), asked

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, **pipes) as base:
        yield run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_the_extra_that_it_lacks(
    command: str, tmp_path: Path, sfapp_without: SfappWithout
) -> None:
    # Given a command with everything installed, which says what it would import
    _, output, asked = sfapp_without(set(), command, tmp_path)
    assert "Traceback" not in output
    # When the modules of any one extra are missing, then the command runs without them or names the extra
    for extra in sorted({EXTRA_OF_MODULE.get(module, "torch") for module in asked}):
        missing = {module for module in asked if EXTRA_OF_MODULE.get(module, "torch") == extra}
        code, output, _ = sfapp_without(missing, command, tmp_path)
        assert "Traceback" not in output
        if extra == "torch":
            assert code == 0 or "needs PyTorch, which sfapp never installs" in output
        elif "pip install" in output:
            assert code == 2
            assert f"sfapp[{extra}]" in output
            assert any(module in output for module in missing) or missing & {"zmq"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_base_install_runs_or_names_an_extra(
    command: str, tmp_path: Path, sfapp_without: SfappWithout
) -> None:
    everything = {*EXTRA_OF_MODULE, "torch"}
    code, output, _ = sfapp_without(everything, command, tmp_path)
    assert "Traceback" not in output
    if command in ("serve", "top", "capture", "watch"):
        assert (code, "pip install 'sfapp[app]'" in output) == (2, True)


OF_NICEGUI = ("engineio", "fastapi", "socketio", "starlette", "uvicorn", "wsproto")


def test_every_extra_of_pyproject_is_named() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EXTRA_OF_MODULE.values()} == set(extras) - {"bench", "dev", "docs", "gpu"}
    distributions = packages_distributions()
    for module, extra in EXTRA_OF_MODULE.items():
        names = {name.lower().replace("_", "-") for name in distributions.get(module, ())}
        required = {each.partition("[")[0].partition(">")[0].partition("=")[0] for each in extras[extra]}
        comes_with_another = module in {"IPython", "anyio", *OF_NICEGUI}
        assert not names or names & required or comes_with_another, module


def test_every_third_party_import_belongs_to_an_extra_or_to_the_base() -> None:
    imported: set[str] = set()
    for path in (ROOT / "sfapp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    third_party = imported - set(sys.stdlib_module_names) - {"sfapp"}
    installed_by_users = {"torch", "composer"}
    assert third_party - BASE - set(EXTRA_OF_MODULE) - installed_by_users - {"cython", "Cython"} == set()


@pytest.mark.parametrize(
    ("command", "module"), [("serve", "serve"), ("import", "import_"), ("check-all", "check_all")]
)
def test_the_module_of_a_command_is_its_name_as_an_identifier(command: str, module: str) -> None:
    assert module_of(command) == module


def test_torch_is_left_to_the_user() -> None:
    missing = ModuleNotFoundError("No module named 'torch.cuda'", name="torch.cuda")
    assert "never installs" in str(MissingExtraError.of(missing, "this command"))
    assert MissingExtraError.of(ModuleNotFoundError(name="sfapp.nothing"), "this command") is None
    assert MissingExtraError.of(ImportError("cannot import name"), "this command") is None
