"""Every fenced block of README.md and docs/ is run, or at least parsed, by what would read it.

Python runs in a process per page. Examples with ``>>>`` are compared with what they print. SQL is sent to
DuckDB. Commands run in a folder with everything that they name, and print what the page shows below them.
JSON, YAML and TOML are parsed. Blocks of ``text`` are the output of programs. What is in ``CANNOT_RUN`` is
not run, but its command lines of sfapp are parsed.
"""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any

import click
import duckdb
import pytest
import yaml

from sfapp.cli import COMMANDS
from sfapp.packets import read_windows
from sfapp.store import Store
from tests.commands import check_arguments, run_sfapp
from tests.documentation.fenced_blocks import (
    PAGES,
    ROOT,
    SHELL,
    Command,
    FencedBlock,
    blocks,
    commands,
    is_script,
)
from tests.documentation.job_folder import make_job_folder
from tests.forked_jobs import run_job
from tests.forked_ranks import free_port

CANNOT_RUN = {
    r"^pip install ": "it changes the environment; its extras are checked",
    r"s3://": "it needs a bucket: tests/storage/test_packets_in_a_bucket.py",
    r"^sfapp (serve|mcp|aggregate|relay) ": "it runs until Ctrl-C: tests/app, tests/assistants, tests/stream",
    r"^sfapp demo( --open| +#|$)": "it runs until Ctrl-C: tests/app/test_demo.py",
    r"^sfapp top ": "it needs a running job: tests/cli/test_top.py",
    r"^sfapp watch ": "it sends messages to other machines: tests/alerts",
    r"^sfapp import .* && sfapp serve": "the second command runs until Ctrl-C",
    r"^sfapp run .*--nproc-per-node 8": "it starts 8 ranks: tests/recorder/auto, tests/cli/test_run_nodes.py",
    r"^srun ": "it needs a Slurm cluster: tests/cli/test_run_nodes.py",
    r"^(\$ )?sfapp (stacks|capture) ": "it needs a running job: tests/recorder/test_stacks_of_jobs.py, "
    "tests/recorder/test_capturing_jobs.py",
    r"^(\$ )?sfapp hang packets": "it needs a running job: the last test below",
    r"^python examples/stopped_rank.py": "it runs for ten minutes: the last test below",
    r"^(nice .*)?python -m benchmarks.fuzz": "it takes minutes: tests/benchmarks/test_fuzz.py",
    r"^\$ sfapp hang dumps/": "the dumps are those of a public job: tests/importers/test_recorded_calls.py",
    r"^docker ": "it needs Docker, and a registry: test_deployment.py",
    r"^kubectl ": "it needs a Kubernetes cluster: test_deployment.py",
    r"^deepspeed ": "it needs DeepSpeed: tests/recorder/auto/test_deepspeed.py",
    r"^claude ": "it is another product's program",
    r"^duckdb ": "it is DuckDB's shell; the queries below it are run",
    r"^python3 -m venv /opt|^groupadd |^mkdir .*/etc/|^cp .*/etc/": "it sets up a machine as root: "
    "tests/app/test_systemd_unit.py",
    r"zsh_source": "it is for zsh",
    r"^```nginx": "it is part of nginx's configuration: tests/app/test_reverse_proxy.py",
    r"^```dockerfile": "it is part of an image; its extra is checked",
}
"""Commands, and blocks with their fence, that are not run, as patterns, and why."""

PARSERS: Mapping[str, Callable[[str], Any]] = {
    "json": json.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": tomllib.loads,
}

LIKE = {
    "/etc/sfapp": "etc",
    "/shared/packets": "shared",
    "/srv/packets": "packets",
    "/data/packets": "packets",
    "~/": "./",
    "/tmp/nccl_trace": "dumps/nccl_trace",
}
"""Paths of other machines, and what stands for them in the folder; also the id of an incident."""

OUTPUT = "text"
ANYTHING = "…"
USAGE = ("docs/commands.md",)
"""Pages whose blocks of text are patterns of commands."""

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SHELL_SYNTAX = re.compile(r"[|<>&$*~;]")

ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]
ALL_COMMANDS = [command for block in ALL_BLOCKS if block.language in SHELL for command in commands(block)]
OFFLINE = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_TRACKING_URI": "mlruns",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
}


def pages_of(kept: Sequence[FencedBlock]) -> list[str]:
    return sorted({block.page for block in kept})


def reason_not_to_run(text: str) -> str | None:
    return next((reason for pattern, reason in CANNOT_RUN.items() if re.search(pattern, text)), None)


def line_of(command: Command) -> str:
    """Return a command as patterns see it: with its prompt if the page shows its output."""
    return command.text if command.shown is None else f"$ {command.text}"


def matches(expected: Sequence[str], text: str) -> bool:
    """Return whether a text has these lines.

    A line of one ``…`` stands for any number of lines, and at the end of a line for the rest of it.
    """
    pattern = "".join(
        r"(.*\n)*?" if line == ANYTHING else re.escape(line).replace(ANYTHING, ".*") + "\n"
        for line in expected
    )
    return re.fullmatch(pattern, text) is not None


class Folder:
    """A copy of the job's folder, in which the commands of a page run."""

    def __init__(self, path: Path, incident: str) -> None:
        self.path = path
        self._like = LIKE | {"3f2a9c1e": incident}
        programs = {
            "sfapp": f"#!{sys.executable}\nfrom sfapp.cli import main\nmain()\n",
            "python": f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n',
        }
        (path / "bin").mkdir()
        for name, script in programs.items():
            (path / "bin" / name).write_text(script)
            (path / "bin" / name).chmod(0o755)
        self.environment = {
            **os.environ,
            **OFFLINE,
            "PATH": f"{path / 'bin'}:{os.environ['PATH']}",
        }

    def here(self, command: Command) -> Command:
        """Return a command with the paths of this folder."""
        text = command.text
        for there, like in self._like.items():
            text = text.replace(there, like)
        return replace(command, text=text)

    def run(self, command: Command) -> tuple[int, str, str]:
        """Return a command's exit code, and its texts on standard output and standard error."""
        local = self.here(command)
        (program, *arguments), *others = local.simple_commands()
        if (
            program == "sfapp"
            and arguments[0] != "run"
            and not others
            and not SHELL_SYNTAX.search(local.text)
        ):
            done = run_sfapp(*arguments, cwd=self.path)
            return done.returncode, done.stdout, done.stderr
        result = subprocess.run(
            ["bash", "-c", f"set -eo pipefail\n{local.text}"],
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return result.returncode, result.stdout, result.stderr


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("job")
    return folder, make_job_folder(folder)


@pytest.fixture
def folder(job_folder: tuple[Path, str], tmp_path: Path) -> Folder:
    made, incident = job_folder
    return Folder(shutil.copytree(made, tmp_path / "job"), incident)


class TestClasses:
    def test_every_block_is_of_a_kind_that_is_read(self) -> None:
        known = {*SHELL, *PARSERS, "python", "sql", OUTPUT}
        for block in ALL_BLOCKS:
            assert block.language in known or reason_not_to_run(f"```{block.language}"), (
                f"{block}: no test reads a block of {block.language or 'no language'}. "
                f"Use one of {sorted(known)}, or add it to CANNOT_RUN with the reason"
            )

    def test_no_command_is_hidden_in_the_output_of_another(self) -> None:
        beginning = re.compile(rf"^(\$ |sfapp ({'|'.join(COMMANDS)})\b)", re.MULTILINE)
        for block in ALL_BLOCKS:
            if block.language == OUTPUT and block.page not in USAGE:
                assert not beginning.search(block.text), f"{block}: use ```console"

    def test_every_reason_not_to_run_something_is_needed(self) -> None:
        texts = [line_of(command) for command in ALL_COMMANDS]
        texts += [f"```{block.language}" for block in ALL_BLOCKS]
        for pattern in CANNOT_RUN:
            assert any(re.search(pattern, text) for text in texts), pattern

    def test_every_extra_that_is_installed_exists(self) -> None:
        named = [found for block in ALL_BLOCKS for found in re.findall(r"sfapp\[([\w,]+)\]", block.text)]
        assert len(named) > 5
        assert {extra for names in named for extra in names.split(",")} <= set(EXTRAS)

    def test_an_ellipsis_stands_for_any_text_and_nothing_else_does(self) -> None:
        assert matches(["a", ANYTHING, "d"], "a\nb\nc\nd\n")
        assert matches([ANYTHING], "")
        assert matches(["a (…)"], "a (b)\n")
        assert not matches(["a", "d"], "a\nb\nd\n")
        assert not matches(["a", ANYTHING], "b\na\n")


@pytest.mark.parametrize("page", pages_of([b for b in ALL_BLOCKS if b.language in PARSERS]))
def test_data_is_well_formed(page: str) -> None:
    for block in ALL_BLOCKS:
        if block.page == page and block.language in PARSERS:
            assert PARSERS[block.language](block.text), block


@pytest.mark.parametrize("page", pages_of([command.block for command in ALL_COMMANDS]))
def test_commands_run_and_print_what_the_page_shows(page: str, folder: Folder, already: set[str]) -> None:
    for command in ALL_COMMANDS:
        if command.block.page != page:
            continue
        check_command_line(folder, command)
        if reason_not_to_run(line_of(command)):
            continue
        if command.shown is None and command.text in already:
            continue
        already.add(command.text)
        code, out, error = folder.run(command)
        assert code == 0, f"{command.block}: {command.text}\n{out}{error}"
        if command.shown is not None:
            assert matches(command.shown, out), f"{command.block}: $ {command.text}\n{out}"


@pytest.fixture(scope="module")
def already() -> set[str]:
    """Commands that another page has as well."""
    return set()


def check_command_line(folder: Folder, command: Command) -> None:
    """Parse the command lines of sfapp in a command."""
    for program, *arguments in folder.here(command).simple_commands():
        if program == "srun" and "sfapp" in arguments:
            arguments = arguments[arguments.index("sfapp") + 1 :]
        elif program != "sfapp":
            continue
        with contextlib.chdir(folder.path):
            words = [found for word in arguments for found in sorted(glob(word)) or [word]]
            try:
                check_arguments(words)
            except click.ClickException as wrong:
                pytest.fail(f"{command.block}: {command.text}: {wrong.format_message()}")


@pytest.mark.parametrize("page", pages_of([block for block in ALL_BLOCKS if is_script(block)]))
def test_python_runs(page: str, folder: Folder) -> None:
    command = [sys.executable, Path(__file__).with_name("python_snippets.py"), ROOT / page]
    result = run_job(command, timeout=120, cwd=folder.path, environment=folder.environment)
    assert result.returncode == 0, result.stderr[-5000:]
    recorded = set(re.findall(r'Recorder.*run_id="([^"]+)"', (ROOT / page).read_text()))
    windows = [item.window for item in read_windows([folder.path / "packets"]).windows]
    assert recorded <= {window.run_id for window in windows}
    for window in windows:
        if window.run_id in recorded:
            assert window.manifest.faults == (), window.run_id
            assert "side_faults" not in window.manifest.extra, window.run_id


EXAMPLES = [block for block in ALL_BLOCKS if block.language == "python" and not is_script(block)]


@pytest.mark.parametrize("page", pages_of(EXAMPLES))
def test_examples_print_what_the_page_shows(page: str) -> None:
    result = doctest.testfile(str(ROOT / page), module_relative=False)
    assert result.attempted == sum(block.text.count(">>> ") for block in EXAMPLES if block.page == page)
    assert result.failed == 0


def test_queries_run(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path)
    with Store.open([Path("packets")]) as store:
        store.ingest()
    queries = [block for block in ALL_BLOCKS if block.language == "sql"]
    assert store.path is not None
    with duckdb.connect(store.path, read_only=True) as database:
        for block in queries:
            database.execute(block.text).fetchall()
    assert {block.page for block in queries} == {"docs/packets.md", "docs/store.md"}


@pytest.mark.torchrun
def test_the_tutorial_on_hangs_finds_the_rank_that_stands_still(folder: Folder) -> None:
    start, stacks, hang = (
        command for command in ALL_COMMANDS if command.block.page == "docs/tutorials/hang.md"
    )
    shutil.copytree(ROOT / "examples", folder.path / "examples")
    shutil.rmtree(folder.path / "packets")
    folder.environment["MASTER_PORT"] = str(free_port())
    job = subprocess.Popen(shlex.split(start.text), cwd=folder.path, env=folder.environment)
    try:
        deadline = time.monotonic() + 90
        code, out, error = 1, "", ""
        while not (code == 0 and matches(stacks.shown or (), out)):
            assert time.monotonic() < deadline, out + error
            time.sleep(1)  # until the ranks have reached the step
            if list(folder.path.glob("packets/stopped/*1.parquet")):
                code, out, error = folder.run(stacks)
        code, out, error = folder.run(hang)
        assert code == 0, error
        assert matches(hang.shown or (), out), out
    finally:
        job.send_signal(signal.SIGINT)
        job.wait(30)
