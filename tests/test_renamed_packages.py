"""Import paths from before a package was renamed keep working, and warn."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sfapp.record", "sfapp.recorder"),
        ("sfapp.record.integrations.nvrx", "sfapp.recorder.integrations.nvrx"),
        ("sfapp.kair", "sfapp.operators"),
        ("sfapp.traces.mapping", "sfapp.importers.mapping"),
    ],
)
def test_an_old_name_is_the_same_module_and_warns(old: str, new: str) -> None:
    result = run(
        "-c",
        f"import importlib; old = importlib.import_module({old!r}); new = importlib.import_module({new!r}); "
        f"assert old is new; assert new.__spec__.name == {new!r}",
    )
    assert f"DeprecationWarning: {old} was renamed to {new}" in result.stderr


def test_names_are_imported_from_an_old_package() -> None:
    result = run(
        "-c", "from sfapp.record import Recorder, wrapper_of; import sfapp; assert sfapp.Recorder is Recorder"
    )
    assert "<string>:1: DeprecationWarning: sfapp.record was renamed" in result.stderr


def test_an_old_module_runs_as_a_program() -> None:
    result = run("-m", "sfapp.record.auto", "--help")
    assert "--window-steps" in result.stdout
    assert "DeprecationWarning: sfapp.record was renamed to sfapp.recorder" in result.stderr


def test_an_unknown_module_below_an_old_name_is_not_found() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("-c", "import sfapp.record.nothing")
    assert "No module named 'sfapp.record.nothing'" in failed.value.stderr


def test_importing_sfapp_loads_nothing_of_it() -> None:
    result = run("-c", "import sys, sfapp; sys.stdout.write(' '.join(sorted(sys.modules)))")
    loaded = {name for name in result.stdout.split() if name.startswith("sfapp")}
    assert loaded == {"sfapp", "sfapp.renamed_packages", "sfapp.sink_registry"}
    assert not result.stderr
