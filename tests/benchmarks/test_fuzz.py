"""Every parser reads mutants and everything that the fuzzer ever found without a foreign exception."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from benchmarks.fuzz import CORPUS, fuzz_parser, read_one, stop
from benchmarks.fuzz_inputs import PARSERS

SECONDS = 60.0


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_reads_its_valid_inputs_and_what_was_found(name: str, tmp_path: Path) -> None:
    signal.signal(signal.SIGPROF, stop)
    seeds = PARSERS[name].seeds()
    assert seeds
    for seed in seeds:
        PARSERS[name].read(seed, tmp_path)
    for path in sorted((CORPUS / name.replace(" ", "-")).glob("*")):
        assert read_one(name, path.read_bytes(), tmp_path) == "", path


@pytest.mark.parametrize("name", PARSERS)
def test_mutants_raise_no_foreign_exception(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.fuzz.CORPUS", tmp_path)
    result = fuzz_parser(name, SECONDS, seed=7, most=PARSERS[name].mutants)  # The same in every run.
    assert result["foreign"] == []
    assert result["mutants"] == PARSERS[name].mutants
