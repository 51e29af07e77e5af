"""Check the layers: allowed imports, modules loaded at run time, pure packages, sizes and unique names."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

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


def all_code() -> list[Path]:
    """Return every Python file of the product, its tests and its benchmarks."""
    return [*modules(), *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.fixture(autouse=True, scope="module")
def _nodes_are_released() -> Iterator[None]:
    """Free the nodes of all files, some hundred MB, after these tests."""
    yield
    nodes_of.cache_clear()


def imported(path: Path) -> set[str]:
    """Every module a file imports at run time, wherever in the file (typing-only imports count too)."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


# What every package may import: pure ones (True) only errors, the others the atomic writer too.
OPEN = {True: {"errors", "terminal"}, False: {"errors", "files", "terminal"}}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_follow_the_table(package: str) -> None:
    own, third_party = ALLOWED[package]
    for path in modules(package):
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "sfapp":
                assert {*parts[1:2]} <= {package, *own, *OPEN[package in PURE]}, f"{path.name}: {name}"
            elif parts[0] not in sys.stdlib_module_names:
                assert parts[0] in third_party, f"{path.name}: {name}"


def test_every_package_is_in_the_table() -> None:
    assert {package_of(path) for path in modules()} - {"__init__"} == set(ALLOWED)
    assert set().union(*(own for own, _ in ALLOWED.values())) <= set(ALLOWED)


def test_the_table_lists_third_party_modules_by_their_homes() -> None:
    homes = {"duckdb": {"store"}, "nicegui": {"app"}, "zmq": {"stream"}, "click": {"cli"}}
    for module, packages in homes.items():
        assert {package for package, (_, third_party) in ALLOWED.items() if module in third_party} == packages


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_do_no_io(package: str) -> None:
    for path in modules(package):
        assert not imported(path) & IMPURE_MODULES, path
        calls = {
            node.func.id
            for node in nodes_of(path)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & IMPURE_CALLS, path


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
        docstrings = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
        for node in nodes_of(path):
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


ENDING = {"top": ["--once"], "watch": ["--once", "--notify", "command:cat"]}  # otherwise they go on


@pytest.mark.parametrize("command", ["top", "capture", "watch"])
def test_commands_for_a_login_node_load_no_nicegui(command: str, tmp_path: Path) -> None:
    # Given a folder of packets without a streaming run, so that each command opens the store and ends
    run = (
        "from click.testing import CliRunner; from sfapp.cli import cli\n"
        f"CliRunner().invoke(cli, {[command, str(tmp_path), *ENDING.get(command, [])]!r})"
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
    run = "from sfapp.cli.serve import UNUSED, _without\nwith _without(*UNUSED): import sfapp.app.server\n"
    assert not loaded_after(run) & {"torch", "typst", "polars", "scipy", "aiohttp", "requests", "tornado"}
    assert "aiohttp" in loaded_after(f"{run}import aiohttp")  # it can be imported afterwards


def test_public_names_are_all_importable() -> None:
    import sfapp

    for name in sfapp.__all__:
        assert getattr(sfapp, name) is not None
    unknown = "nothing_of_this_name"
    with pytest.raises(AttributeError):
        getattr(sfapp, unknown)


NodeT = TypeVar("NodeT", bound=ast.AST)


def _nodes(kind: type[NodeT], paths: Iterable[Path]) -> Iterator[tuple[Path, NodeT]]:
    """Yield every node of a kind in some files, with its file."""
    for path in paths:
        yield from ((path, node) for node in nodes_of(path) if isinstance(node, kind))


MEASURED_IN = {
    "service/verdicts.py": "every surface",
    "service/live_rolling.py": "the last steps of a running job, which are no window of a store",
    "store/verdict_builder.py": "each window once, at ingest",
}
"""By file outside ``accounting``: for what it measures or judges there."""


def test_windows_are_measured_and_judged_in_one_place_for_every_surface() -> None:
    entry_points = {"diagnose", "diagnose_runs", "judge", "measure", "measure_many", "measured"}
    found = {
        str(path.relative_to(PACKAGE))
        for path, node in _nodes(ast.ImportFrom, modules())
        if node.module == "sfapp.accounting" and entry_points & {alias.name for alias in node.names}
    }
    found = {name for name in found if not name.startswith("accounting/") and name != "__init__.py"}
    assert found == set(MEASURED_IN)


@pytest.mark.parametrize(
    ("method", "module", "home"),
    [
        ("isdigit", "", "model/parse.py"),  # it accepts ``²``, which ``int`` refuses
        ("isnumeric", "", None),
        ("escape", "html", "views/html_text.py"),
    ],
)
def test_text_from_outside_is_parsed_and_escaped_in_one_place(
    method: str, module: str, home: str | None
) -> None:
    found = set()
    for path, node in _nodes(ast.Attribute, modules()):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if node.attr == method and module in ("", owner):
            found.add(str(path.relative_to(PACKAGE)))
    for path, imports in _nodes(ast.ImportFrom, modules()):
        if imports.module == module and method in {alias.name for alias in imports.names}:
            found.add(str(path.relative_to(PACKAGE)))
    assert found == ({home} if home else set())


def test_no_class_name_occurs_twice() -> None:
    homes: dict[str, list[str]] = {}
    for path, node in _nodes(ast.ClassDef, all_code()):
        homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


ONE_CONCEPT = frozenset(
    re.findall(
        r"\w+",
        """
        address blame capture capture_mailbox causes collectives compare comparison device_waits examples
        explanation findings fleet frequency frontier glossary hang heatmap history host_evidence incidents
        ingest labels live live_rows manifest notebook onsets operator_findings operators packets
        parallel_layout pipeline plot_help problems rank_similarity recorder reduced relay routing run_waits
        samples stacks standstill swim_lane tables trends verdict_map watch what_if window
        """,
    )
)
"""Names of files that occur in several layers, or in a layer and its benchmark, for the same concept."""


def test_a_file_name_occurs_twice_only_for_one_concept_in_several_layers() -> None:
    homes: dict[str, list[Path]] = {}
    for path in all_code():
        if path.stem not in ("__init__", "__main__", "conftest"):
            homes.setdefault(path.stem, []).append(path.parent)
    assert {name for name, folders in homes.items() if len(folders) > 1} == ONE_CONCEPT


MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in all_code()}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_a_long_function_gives_a_reason_at_its_head() -> None:
    long = {}
    for path, node in _nodes(ast.stmt, all_code()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                body = node.body[1 if ast.get_docstring(node) else 0].lineno
                head = path.read_text().splitlines()[node.lineno - 1 : body]
                if not any("# Long because " in line for line in head):
                    long[f"{path.name}:{node.name}"] = lines
    assert long == {}


_SUPPRESSED = re.compile(r"# (?:type: ignore|noqa)\b(?P<codes>\[[\w, -]+\]|: \w+(?:, \w+)*)?(?P<reason>.*)")
_REASON = re.compile(r"  # \S.{5,}")


def test_a_suppressed_check_names_its_code_and_has_a_reason() -> None:
    found = []
    for path in all_code():
        source = path.read_text(encoding="utf-8")
        if _SUPPRESSED.search(source):
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                ignored = _SUPPRESSED.search(token.string) if token.type == tokenize.COMMENT else None
                if ignored and not (ignored["codes"] and _REASON.match(ignored["reason"])):
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]} {token.string}")
    assert found == []


CASTS = {
    "accounting/measures.py": "values are kept by name and key, and planes are spread as keywords",
    "files.py": "the mode is always a binary one",
    "recorder/integrations/safe_hooks.py": "a wrapped hook keeps its signature",
}
"""By file of sfapp: why it tells the type checker a type that it cannot find."""


def test_types_are_asserted_only_with_a_reason() -> None:
    calls = _nodes(ast.Call, all_code())
    found = {path for path, call in calls if isinstance(call.func, ast.Name) and call.func.id == "cast"}
    assert found == {PACKAGE / name for name in CASTS}


def test_the_architecture_page_names_files_that_exist() -> None:
    named = re.findall(r"`((?:sfapp|assets|tests|docs)/[\w./]*\w)", PAGE)
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


OPENED_OTHERWISE = {
    "files.py": "is the one place",
    "importers/capture_converter.py": "/proc of the kernel",
    "packets/host_files.py": "/proc of the kernel, and control groups",
    "packets/memory_budget.py": "/proc of the kernel, and control groups",
    "recorder/side_channels/memory.py": "/proc of the kernel",
    "store/lock.py": "/proc of the kernel",
    "stream/process_looks.py": "/proc of the kernel",
    "compiled_modules.py": "sfapp's own compiled module",
    "app/address.py": "sfapp's own assets",
    "app/server.py": "sfapp's own assets",
    "cli/__init__.py": "the null device, for a stream that is closed",
    "report/html.py": "sfapp's own assets",
    "typesetter.py": "sfapp's own templates",
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
    calls = _nodes(ast.Call, modules())
    opened = {str(path.relative_to(PACKAGE)) for path, call in calls if _opens_a_file(call)}
    assert opened == set(OPENED_OTHERWISE)
