"""Check the layers: allowed imports, modules loaded at run time, pure packages, sizes and unique names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sfapp"

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def names_in(cell: str) -> set[str]:
    """Return the names that a cell of the table lists, without remarks in parentheses."""
    listed = re.sub(r"\([^)]*\)", "", cell).split(",")
    return {name.strip() for name in listed} - {"–", ""}


def imports_allowed_by(page: str) -> dict[str, tuple[set[str], set[str]]]:
    """Return which packages of sfapp and which third-party modules each package may import."""
    _, rest = page.split("| package | holds | may import | third party |\n| --- | --- | --- | --- |\n")
    allowed = {}
    for row in rest.partition("\n\n")[0].splitlines():
        _, packages, _, own, third_party, _ = row.split("|")
        for package in re.findall(r"`(\w+)(?:/|\.py)`", packages):
            allowed[package] = names_in(own), names_in(third_party)
    return allowed


ALLOWED = imports_allowed_by(PAGE)
"""By package: the packages of sfapp and the third-party modules that it may import."""

PURE = ("model", "accounting", "operators", "views")
IMPURE_CALLS = {"open", "print", "input"}
IMPURE_MODULES = {"os", "time", "logging", "pathlib", "io", "subprocess", "socket"}


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules(*packages: str) -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not packages or package_of(path) in packages]


def imported(path: Path) -> set[str]:
    """Every module a file imports at run time, wherever in the file (typing-only imports count too)."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


# What every package may import: pure ones (True) only errors, the others the atomic writer too.
OPEN = {True: {"errors", "terminal"}, False: {"errors", "files", "terminal"}}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_table(path: Path) -> None:
    package = package_of(path)
    if package == "__init__":
        return
    own, third_party = ALLOWED[package]
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "sfapp":
            assert {*parts[1:2]} <= {package, *own, *OPEN[package in PURE]}, f"{path.name} imports {name}"
        elif parts[0] not in sys.stdlib_module_names:
            assert parts[0] in third_party, f"{path.name} imports {name}"


def test_every_package_is_in_the_table() -> None:
    assert {package_of(path) for path in modules()} - {"__init__"} == set(ALLOWED)
    assert set().union(*(own for own, _ in ALLOWED.values())) <= set(ALLOWED)


def test_the_table_lists_third_party_modules_by_their_homes() -> None:
    homes = {"duckdb": {"store"}, "nicegui": {"app"}, "zmq": {"stream"}, "click": {"cli"}}
    for module, packages in homes.items():
        assert {package for package, (_, third_party) in ALLOWED.items() if module in third_party} == packages


@pytest.mark.parametrize("path", modules(*PURE), ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_packages_do_no_io(path: Path) -> None:
    assert not imported(path) & IMPURE_MODULES
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & IMPURE_CALLS


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nsys.stdout.write(' '.join(m.split('.')[0] for m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_recorder_loads_nothing_of_the_app() -> None:
    loaded = loaded_after("from sfapp.recorder import Recorder, wrapper_of")
    heavy = {"nicegui", "duckdb", "polars", "plotly", "lightning", "transformers", "accelerate"}
    assert not loaded & (heavy | {"zmq", "psutil"})


def _modules_of(package: str) -> list[str]:
    """Return the names of a package's modules, without the entry points and what needs other libraries."""
    paths = (path.relative_to(ROOT).with_suffix("") for path in modules(package))
    names = (".".join(path.parts).removesuffix(".__init__") for path in paths)
    return [name for name in names if not name.endswith("__main__") and ".integrations." not in name]


@pytest.mark.parametrize(("package", "other"), [("recorder", "stream"), ("stream", "recorder")])
def test_recorder_and_stream_do_not_load_each_other(package: str, other: str) -> None:
    statement = f"import importlib\nfor name in {_modules_of(package)}: importlib.import_module(name)"
    code = f"import sys\n{statement}\nsys.stdout.write(' '.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = result.stdout.split()
    assert f"sfapp.{package}" in loaded
    assert not [name for name in loaded if name.startswith(f"sfapp.{other}")]


@pytest.mark.parametrize(("package", "other"), [("recorder", "stream"), ("stream", "recorder")])
def test_recorder_and_stream_do_not_name_each_other_in_strings(package: str, other: str) -> None:
    """A module that is loaded through importlib is named in a string; docstrings may mention it."""
    for path in modules(package):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                assert f"sfapp.{other}" not in node.value, f"{path.name}:{node.lineno}"


def test_help_loads_nothing_heavy() -> None:
    run = (
        "from click.testing import CliRunner; from sfapp.cli import cli; CliRunner().invoke(cli, ['--help'])"
    )
    assert not loaded_after(run) & {"torch", "nicegui", "numpy", "pyarrow", "duckdb", "polars"}


def test_a_window_is_diagnosed_without_torch_on_the_cpu() -> None:
    run = (
        "import sfapp, sfapp.packets, sfapp.store, sfapp.operators, sfapp.views\n"
        "window = sfapp.read_window('sample_data/packets/gpt-small-ddp/00000000.parquet')\n"
        "assert sfapp.diagnose(window).labels"
    )
    assert "torch" not in loaded_after(run)


@pytest.mark.parametrize("command", ["top", "capture"])
def test_commands_for_a_login_node_load_no_nicegui(command: str, tmp_path: Path) -> None:
    # Given a folder of packets without a streaming run, so that each command opens the store and ends
    run = (
        "from click.testing import CliRunner; from sfapp.cli import cli\n"
        f"CliRunner().invoke(cli, {[command, str(tmp_path), *({'top': ['--once']}.get(command, []))]!r})"
    )
    loaded = loaded_after(run)
    assert "duckdb" in loaded
    assert not loaded & {"nicegui", "fastapi", "uvicorn", "starlette"}


def test_analyzing_files_loads_no_database() -> None:
    run = (
        "from click.testing import CliRunner; from sfapp.cli import cli\n"
        "assert CliRunner().invoke(cli, ['analyze', 'sample_data/packets']).exit_code == 0"
    )
    assert not loaded_after(run) & {"duckdb", "filelock", "polars", "nicegui", "torch"}


def test_the_services_load_no_nicegui_and_no_click() -> None:
    modules = sorted(path.stem for path in (PACKAGE / "service").glob("[a-z]*.py"))
    statement = "import " + ", ".join(f"sfapp.service.{name}" for name in modules)
    assert not loaded_after(statement) & {"nicegui", "starlette", "click", "rich"}


def test_serving_loads_no_format_of_reports_and_no_http_client() -> None:
    run = (
        "from sfapp.cli.serve import _without\n"
        "with _without('aiohttp', 'tornado'):\n    import sfapp.app.server\n"
    )
    assert not loaded_after(run) & {"torch", "typst", "polars", "scipy", "aiohttp", "tornado"}
    assert "aiohttp" in loaded_after(f"{run}import aiohttp")  # it can be imported afterwards


def test_public_names_are_all_importable() -> None:
    import sfapp

    for name in sfapp.__all__:
        assert getattr(sfapp, name) is not None
    with pytest.raises(AttributeError):
        sfapp.nothing_of_this_name  # noqa: B018


def _definitions(kind: type[ast.AST]) -> list[tuple[Path, ast.AST]]:
    """Return every definition of a kind in sfapp with its file."""
    trees = [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in modules()]
    return [(path, node) for path, tree in trees for node in ast.walk(tree) if isinstance(node, kind)]


def test_no_class_name_occurs_twice() -> None:
    homes: dict[str, list[str]] = {}
    for path, node in _definitions(ast.ClassDef):
        homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))  # type: ignore[attr-defined]
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_a_long_function_gives_a_reason() -> None:
    long = {}
    for path, node in _definitions(ast.FunctionDef) + _definitions(ast.AsyncFunctionDef):
        lines = node.end_lineno - node.lineno + 1  # type: ignore[attr-defined]
        source = path.read_text().splitlines()[node.lineno - 1 : node.end_lineno]  # type: ignore[attr-defined]
        if lines > MAX_FUNCTION_LINES and not any("# Long because" in line for line in source):
            long[f"{path.name}:{node.name}"] = lines  # type: ignore[attr-defined]
    assert long == {}


def test_the_architecture_page_names_files_that_exist() -> None:
    named = re.findall(r"`((?:sfapp|assets|tests|docs)/[\w./]*\w)", PAGE)
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


OPENED_OTHERWISE = {
    "files.py": "is the one place",
    "importers/capture_converter.py": "/proc of the kernel",
    "packets/job.py": "/proc of the kernel",
    "recorder/side_channels/memory.py": "/proc of the kernel",
    "store/lock.py": "/proc of the kernel",
    "recorder/timing/timer_backend.py": "sfapp's own compiled module",
    "app/theme.py": "sfapp's own assets",
    "app/server.py": "sfapp's own assets",
    "report/html.py": "sfapp's own assets",
    "report/pdf.py": "sfapp's own templates",
    "importers/perfetto_export.py": "an entry of a zip archive that is being written",
}
"""By file: why it may open something in another way than ``sfapp.files``, which refuses pipes and devices."""


def _opens_a_file(call: ast.Call) -> bool:
    """Return whether a call opens a file by its path, by the names and modes of the standard library."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in ("read_bytes", "read_text", "write_bytes", "write_text"):
        return True
    if call.func.attr != "open":
        return False
    owner = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    return owner in ("os", "io", "gzip", "codecs") or any(re.fullmatch(r"[rwaxbt+]+", str(t)) for t in texts)


def test_files_are_opened_where_pipes_and_devices_are_refused() -> None:
    calls = [(path.relative_to(PACKAGE), call) for path, call in _definitions(ast.Call)]
    opened = {str(path) for path, call in calls if isinstance(call, ast.Call) and _opens_a_file(call)}
    assert opened == set(OPENED_OTHERWISE)
