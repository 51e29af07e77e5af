"""Child processes import nothing from the working directory, which may be a folder of packets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sfapp.cli.supervisor import Service
from sfapp.packets.writer_process import WriterProcess
from sfapp.recorder.capture.trace_converter import _COMMAND
from tests.stream.streams import until


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules that leave a file behind when they are imported."""
    monkeypatch.chdir(tmp_path)
    for name in ("click", "msgspec", "numpy", "pyarrow"):
        code = f"open({str(tmp_path / 'imported')!r}, 'w').write({name!r})\nraise ImportError\n"
        (tmp_path / f"{name}.py").write_text(code)
    yield tmp_path
    assert not (tmp_path / "imported").exists()


@pytest.mark.usefixtures("folder")
def test_the_writer_of_packets_imports_nothing_from_there() -> None:
    writer = WriterProcess()
    try:
        until(lambda: writer._connection.poll() or writer._process.poll() is not None)
        assert writer._process.poll() is None
    finally:
        writer.close()


@pytest.mark.usefixtures("folder")
def test_the_converter_of_traces_imports_nothing_from_there() -> None:
    subprocess.run(_COMMAND, input=b"{}", capture_output=True, timeout=60)


@pytest.mark.usefixtures("folder")
def test_services_of_a_run_import_nothing_from_there() -> None:
    with Service("relay", ["--help"], os.environ, restart=False) as service:
        service._thread.join(30)
    assert service._process is not None
    assert service._process.returncode == 0


def test_services_of_a_run_are_restarted_when_their_messages_cannot_be_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", full)
        with Service("relay", ["--help"], os.environ) as service:
            until(lambda: service._process is not None)
            first = service._process
            until(lambda: service._process is not first)
        patch.undo()
        with suppress(OSError):  # What is left in its buffer.
            full.close()
