"""What commands have in common: colours, messages, and the completion of a shell (docs/command-line.md)."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pickle
import pty
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from sfapp.cli import COMMANDS, cli
from sfapp.errors import GateError
from sfapp.model import Gates
from tests.app.served import PROGRAM
from tests.commands import run_sfapp
from tests.store.jobs import put, window

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command-line.md"
SAMPLE = ROOT / "sample_data" / "packets" / "gpt-small-rank-lost"


@pytest.mark.parametrize(("variable", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_has_colours_unless_the_user_wants_none(variable: str, is_coloured: bool) -> None:
    result = CliRunner(env={"NO_COLOR": variable}).invoke(cli, ["analyze", str(SAMPLE)], color=True)
    assert "Rank 7 is missing" in result.stdout
    assert ("\x1b[" in result.stdout) is is_coloured


@pytest.mark.parametrize("option", ["--csv", "--json", None])
def test_what_an_encoding_lacks_is_escaped(option: str | None, tmp_path: Path) -> None:
    name = "训练-\U0001f600-ü"
    put(tmp_path, window(name))
    result = subprocess.run(
        [*PROGRAM, "analyze", str(tmp_path), *([option] if option else [])],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    printed = result.stdout.decode("latin-1")
    if option == "--json":
        assert printed.isascii()
        assert json.loads(printed)["windows"][0]["run_id"] == name
    else:
        assert r"\u8bad\u7ec3-\U0001f600-ü" in printed


def test_a_name_that_only_this_locale_cannot_read_is_refused_with_what_to_do(tmp_path: Path) -> None:
    put(tmp_path, window("训练"))
    ascii_names = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [*PROGRAM, "fleet", str(tmp_path), "--json", "--db", str(tmp_path / "store.duckdb")]
    refused = subprocess.run(
        command, env=os.environ | ascii_names, capture_output=True, text=True, timeout=60
    )
    assert "this locale takes its name for ascii: set PYTHONUTF8=1" in refused.stderr
    with_remedy = os.environ | ascii_names | {"PYTHONUTF8": "1"}
    read = subprocess.run(command, env=with_remedy, capture_output=True, text=True, timeout=60)
    assert (read.returncode, read.stderr) == (0, "")
    assert json.loads(read.stdout)["runs"][0]["run_id"] == "训练"


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [([], "wa", ["watch"]), ([], "d", ["demo", "doctor"]), (["demo"], "--o", ["--open"])],
)
def test_a_shell_completes_commands_and_options(words: list[str], incomplete: str, found: list[str]) -> None:
    completion = BashComplete(cli, {}, "sfapp", "_SFAPP_COMPLETE")
    assert [each.value for each in completion.get_completions(words, incomplete)] == found
    assert set(found) <= {*COMMANDS, "--open"}


def test_the_page_lists_the_commands_that_can_omit_messages() -> None:
    context = click.Context(cli)
    found = {
        name
        for name in COMMANDS
        if any("--quiet" in option.opts for option in cli.get_command(context, name).params)
    }
    (sentence,) = re.findall(r"`--quiet` [^.]*", PAGE.read_text(encoding="utf-8"))
    assert set(re.findall(r"`([a-z]+)`", sentence)) == found


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "{packets}", "--parquet", "rows.parquet"],
        ["report", "{packets}", "-o", "report.md"],
        ["export", "perfetto", "{packets}", "--window", "gpt-small-rank-lost/0", "-o", "slice.zip"],
    ],
)
def test_messages_are_omitted_on_request(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.format(packets=SAMPLE) for word in command]
    shown = CliRunner().invoke(cli, words)
    omitted = CliRunner().invoke(cli, [*words, "--quiet"])
    assert (shown.exit_code, omitted.exit_code) == (0, 0)
    assert shown.stderr
    assert omitted.stderr == ""
    assert omitted.stdout == shown.stdout


@pytest.mark.parametrize(("option", "is_shown"), [([], True), (["--quiet"], False)])
def test_progress_is_shown_in_a_terminal_unless_omitted(
    option: list[str], is_shown: bool, tmp_path: Path
) -> None:
    dump = {"version": "2.10", "pg_config": {}, "entries": []}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, protocol=2))
    terminal, end = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, "hang", tmp_path, *option], stdout=subprocess.PIPE, stderr=end, text=True, timeout=60
    )
    os.write(end, b"end")
    text = os.read(terminal, 10_000)
    os.close(terminal)
    os.close(end)
    assert done.returncode == 0
    assert "Dumps of 1 of 1 rank;" in done.stdout
    assert (b"[1/1]" in text) is is_shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_ingest_leaves_no_temporary_folder(tmp_path: Path, number: signal.Signals) -> None:
    spare = tmp_path / "temporary"
    spare.mkdir()
    command = [*PROGRAM, "ingest", SAMPLE, "--to", f"{tmp_path}/verdicts/"]
    environment = os.environ | {"TMPDIR": str(spare)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not any(spare.glob("sfapp-dataset-*")):
            time.sleep(0.001)
        process.send_signal(number)
        assert process.communicate(timeout=60)[1] == "sfapp: stopped; the next call reads the rest\n"
    assert process.returncode == 1
    assert list(spare.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_stopped_import_leaves_no_expanded_file(tmp_path: Path, number: signal.Signals) -> None:
    (spare := tmp_path / "temporary").mkdir()
    (large := tmp_path / "large.sqlite.gz").write_bytes(gzip.compress(bytes(1 << 25), 0))
    command = [*PROGRAM, "import", "nsys", large, "-o", tmp_path / "packets"]
    environment = os.environ | {"TMPDIR": str(spare)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not any(spare.rglob("*.sqlite")):
            time.sleep(0.001)
        process.send_signal(number)
        assert process.wait(60) == (1 if number == signal.SIGINT else -number)
    assert list(spare.iterdir()) == []


@pytest.fixture
def no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a read-only file system."""

    def unusable(*_: object, **__: object) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", unusable)


@pytest.mark.usefixtures("no_temporary_folder")
def test_an_import_that_needs_no_temporary_folder_goes_without(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,rank,stage,duration_ms\n0,0,data.next_wait,1\n")
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    database.close()

    assert "1 packet written" in run_sfapp("import", "table", tmp_path, "-o", tmp_path / "packets").stdout
    refused = run_sfapp("import", "nsys", tmp_path, "-o", tmp_path / "packets").stderr
    assert "temporary" not in refused
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


@pytest.mark.usefixtures("no_temporary_folder")
@pytest.mark.parametrize(
    "arguments",
    [
        ("compact", SAMPLE, "--older-than", "30", "--dry-run"),
        ("ingest", SAMPLE, "--to", "{folder}/verdicts/"),
        ("serve", SAMPLE, "--no-browser"),
    ],
)
def test_a_command_that_needs_a_temporary_folder_reports_that_there_is_none(
    tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    result = run_sfapp(*(str(each).replace("{folder}", str(tmp_path)) for each in arguments))
    assert result.returncode == 2
    assert "set TMPDIR to a folder with room" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "{path}", "--no-browser"],
        ["report", "{path}", "-o", "report.html"],
        ["compare", "{path}", "{path}"],
        ["ingest", SAMPLE, "--to", "{path}"],
        ["run", "{path}"],
    ],
)
def test_a_path_that_cannot_be_looked_up_is_a_message(arguments: list[str | Path]) -> None:
    """As one in a folder of another user, which does not stop root."""
    result = run_sfapp(*(str(each).replace("{path}", "x" * 300) for each in arguments))
    assert result.returncode == 2
    assert result.stderr.endswith(f"{'x' * 300}: File name too long\n")


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", SAMPLE], ["analyze", SAMPLE, "--json"]])
def test_output_to_a_full_disk_is_a_message_and_no_answer(arguments: list[str | Path]) -> None:
    """1 would say that the command did its work."""
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*PROGRAM, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
        nowhere = subprocess.run([*PROGRAM, *map(str, arguments)], stdout=full, stderr=full, timeout=60)
    assert (result.returncode, nowhere.returncode) == (2, 2)
    assert result.stderr == "sfapp: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [
        (["import", "table", "{folder}/a.csv", "-o", "{folder}/packets"], "2>&-", 0),
        (["ingest", str(SAMPLE), "--to", "{folder}/store.duckdb"], "<&- >&- 2>&-", 0),
        (["analyze", str(SAMPLE), "--json"], ">&-", 0),
        (["analyze", "{folder}/none", "--json"], ">&- 2>&-", 2),
        (["mcp", str(SAMPLE)], "<&- >&-", 0),
    ],
)
def test_a_command_does_its_work_where_streams_are_closed(
    tmp_path: Path, arguments: list[str], closed: str, code: int
) -> None:
    (tmp_path / "a.csv").write_text("step,rank,stage,duration_ms\n0,0,data.next_wait,1\n")
    given = [each.replace("{folder}", str(tmp_path)) for each in arguments]
    result = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *PROGRAM, *given], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (code, "")


def taken(option: click.Parameter, text: str) -> Gates:
    """Return the gates after an option that is given as text was taken."""
    number = option.type.convert(text, option, None)
    return Gates().with_values(**{str(option.name): number})


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_takes_a_number_that_is_not_finite(name: str, text: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for option in command.params:
        if isinstance(option.type, click.types.FloatParamType):
            with pytest.raises((click.BadParameter, GateError)):
                taken(option, text)


def test_files_that_the_fleet_leaves_out_are_named(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"{number:02d}\x1b.parquet").write_bytes(b"cut off")
    result = run_sfapp("fleet", tmp_path)
    assert result.returncode == 0
    named = [line for line in result.stderr.splitlines() if "not a readable Parquet file" in line]
    assert len(named) == 20
    assert result.stderr.endswith("sfapp: left out 5 more\n")
    assert "\x1b" not in result.stderr
