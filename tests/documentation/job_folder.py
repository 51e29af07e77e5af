"""The folder in which the pages' commands run: packets, traces, dumps and a training script."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path

from benchmarks.kineto_job import Shape, write_job
from sfapp.importers import ImportOptions, read_traces, write_imported
from sfapp.incidents import IncidentEditor, IncidentLog, document_of
from sfapp.model.view import WindowKey
from sfapp.packets import read_windows
from sfapp.stream import Keys
from tests.app.recorded_job import put
from tests.documentation.fenced_blocks import ROOT
from tests.operators.hang_jobs import dump_of, grid_job, run

SAMPLE = ROOT / "sample_data" / "packets"
STOPPED = {3: 4}
"""Rank 3 of the job that left dumps, and the position in its program at which it stopped."""


def make_job_folder(folder: Path) -> str:
    """Fill a folder with the files that the pages name; return the id of an incident in it."""
    shutil.copytree(SAMPLE, folder / "sample_data" / "packets")
    packets = folder / "packets"
    for name in ("train-7", "train-8", "a", "b"):
        _put_sample(packets, name)
    for branch in ("main", "branch"):
        _put_sample(folder / branch / "packets", "train")
    _put_profiled(packets, folder, "run")
    write_job(folder / "traces", Shape(steps=4, layers=2))
    (folder / "stages.toml").write_text(_mapping())
    _write_dumps(folder / "dumps")
    (folder / "train.py").write_text(_training_script())
    (folder / "secret").write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    for name in ("shared", "etc", ".config/fish/completions"):
        (folder / name).mkdir(parents=True)
    (folder / "etc" / "token").write_text("0123456789abcdef")
    Keys.make().save(folder / "etc" / "stream.keys")
    return _write_incident(packets, folder / "incident.json")


def _put_sample(packets: Path, run_id: str) -> None:
    """Write the sample's run under another name."""
    for loaded in read_windows([SAMPLE / "gpt-small-ddp"]).windows:
        put(packets, replace(loaded.window, manifest=replace(loaded.window.manifest, run_id=run_id)))


def _put_profiled(packets: Path, folder: Path, run_id: str) -> None:
    """Write a run of one window with operator events."""
    write_job(folder / "profiled" / run_id, Shape(steps=6, layers=4))
    written = write_imported(read_traces("kineto", [folder / "profiled" / run_id], ImportOptions()), packets)
    assert not written.refused


def _mapping() -> str:
    """Return the mapping of docs/traces.md."""
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    (mapping,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert isinstance(mapping, str)
    return mapping


def _write_dumps(folder: Path) -> None:
    folder.mkdir()
    job = grid_job(2, 2, 1, blocking=frozenset({"all"}))
    for number, rank in run(job, STOPPED).items():
        content = pickle.dumps(dump_of(job, number, rank), protocol=2)
        (folder / f"nccl_trace_rank_{number}").write_bytes(content)


def _training_script() -> str:
    """Return the example, with fewer steps and the option that the pages give to ``train.py``."""
    text = (ROOT / "examples" / "train.py").read_text(encoding="utf-8")
    steps = 'parser.add_argument("--steps", type=int, default=1000'
    assert steps in text
    return text.replace(steps, 'parser.add_argument("--lr", type=float)\n    ' + steps.replace("1000", "20"))


def _write_incident(packets: Path, exported: Path) -> str:
    log = IncidentLog.for_packets(packets)
    editor = IncidentEditor(log, "Ada")
    incident = editor.open_incident("Slow loader", severity="high")
    editor.add_window(log.state().incident(incident), WindowKey("train-7", 3), "")
    exported.write_text(json.dumps(document_of(log.state(), incident)))
    return incident
