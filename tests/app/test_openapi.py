"""A real server answers requests made from ``/openapi.json``, valid and invalid, as it declares there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.recorded_job import FAULTS, job_window, put
from tests.app.served import Served, served

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,unsupported_method,negative_data_rejection,positive_data_acceptance"
)
"""A value that is accepted may be answered with 404: stages, ranks and runs depend on the window."""


SAME_VIEW = r"/w/\{run\}/"
"""Addresses that take the view of ``/compare.json``: the bounds of its two dozen parameters are tried there
only, the rest by fuzzing, so that the test takes no longer."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    for number, fault in enumerate(FAULTS):
        put(folder / "packets", job_window(number, fault))
    with served(folder / "packets", "--memory", cwd=folder) as server:
        yield server


@pytest.mark.parametrize("phases", ["coverage", "fuzzing,stateful"])
def test_schemathesis_finds_no_answer_that_is_not_declared(
    phases: str, server: Served, tmp_path: Path
) -> None:
    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}openapi.json"),
            *("--checks", CHECKS, "--phases", phases, "--max-examples", "5", "--workers", "1"),
            *("--generation-deterministic", "--request-timeout", "30", "--no-color"),
            *(("--exclude-path-regex", SAME_VIEW) if phases == "coverage" else ()),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    assert re.search(r"Tested: [1-9]\d", found.stdout), found.stdout
