"""Valid packets, operator events and files of verdicts, and the calls that read them into a store, with all
that is made of them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzzed_parser import FuzzedParser
from benchmarks.fuzzed_values import EditedDocument
from benchmarks.generated_jobs import noisy_durations, window_on_hosts
from sfapp.errors import PacketError, WindowNotFoundError
from sfapp.model import SideChannel, Window
from sfapp.model.fix import Fix
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators.agreement import agreement
from sfapp.operators.stage_events import operators_of
from sfapp.packets import packet_path, read_operators, read_packet, write_operators, write_packet
from sfapp.packets.operators import OPERATORS_KEY
from sfapp.packets.packet_layout import MANIFEST_KEY, TEXT_COLUMNS
from sfapp.packets.paths import operators_path
from sfapp.packets.write import parquet_bytes
from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery, ingest_to_dataset
from sfapp.store.schema import SCHEMA_VERSION
from sfapp.store.verdict_encoding import VERDICTS_KEY, Verdicts, decode_verdicts
from sfapp.views.operator_findings import document
from sfapp.views.text import verdict
from sfapp.views.text.problems import problem_explanation, problem_text
from sfapp.views.text.stragglers import agreement_sentences, findings_notes

T = TypeVar("T")

RUN, WINDOWS = "run", 3
"""The windows of the run; the last one has a late rank."""

_NO_FILE = (AttributeError, LookupError, TypeError, ValueError, OverflowError, pa.ArrowException)
"""What is raised if no Parquet file can hold the values of a document."""


def _window(number: int) -> Window:
    durations_SNR = noisy_durations(4, 6, number)
    if number == WINDOWS - 1:
        durations_SNR[0, :, 2] += 60_000_000
    times = {"started_at": f"2026-11-26T08:0{number}:00Z", "ended_at": f"2026-11-26T08:0{number}:30Z"}
    return window_on_hosts(RUN, number, durations_SNR, ("a", "b"), **times)


@cache
def _written() -> tuple[tuple[bytes, ...], bytes]:
    """Return the packets of the run and of its next window, and a file of verdicts on all but the last."""
    with tempfile.TemporaryDirectory() as folder:
        packets = Path(folder) / "packets"
        paths = [packet_path(packets, RUN, number) for number in range(WINDOWS + 1)]
        for number, path in enumerate(paths):
            write_packet(_window(number), path)
        contents = tuple(path.read_bytes() for path in paths)
        paths[-1].unlink()
        ingest_to_dataset([packets], Path(folder) / "verdicts")
        (file,) = (Path(folder) / "verdicts").rglob("*.parquet")
        return contents, file.read_bytes()


def _look_at(store: Store, workspace: Workspace) -> None:
    """Make everything of the stored verdicts that pages and documents show."""
    store.windows(WindowQuery())
    store.timeline()
    workspace.windows_overview(None)
    workspace.fleet()
    workspace.trends()
    problems = workspace.problems(locates=False)
    for run in store.runs():
        store.reference(run.run_id)
        for diagnosis in store.diagnoses(run.run_id):
            diagnosis.document()
            verdict(diagnosis)
            for problem in problems:
                problem_text(problem)
                problem_explanation(problem, diagnosis)


def _look_into(workspace: Workspace, key: WindowKey) -> None:
    """Make what the page of a window shows of its packet and its operator events."""
    judged = workspace.judge(workspace.source(key), ViewState())
    if judged.diagnosis.aim is not None:
        workspace.what_if(judged, Fix(judged.diagnosis.aim.stage, judged.diagnosis.aim.rank))
    found = workspace.examine(judged).result()
    if found.findings is not None:
        agreed = agreement(judged.diagnosis, found.findings, judged.measures.window)
        document(found, agreed, 20)
        agreement_sentences(agreed, judged.diagnosis)
        findings_notes(found.findings)


def _is_accepted(reader: Callable[[T], object], source: T) -> bool:
    try:
        reader(source)
    except PacketError:
        return False
    return True


def _folder(folder: Path, name: str) -> Path:
    path = folder / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def _columns(edited: dict[str, Any], valid: dict[str, Any], table: pa.Table) -> pa.Table:
    """Return a table of these values. A column that was not edited keeps its type, of which JSON has no
    notion."""
    return pa.table(
        {
            name: table.column(name) if name in valid and valid[name] == values else pa.array(values)
            for name, values in edited.items()
        }
    )


# ---- files of verdicts ------------------------------------------------------------------------------


@cache
def _verdicts() -> Verdicts:
    return decode_verdicts(_written()[1])


def _verdicts_document() -> Any:
    """Return the references of the footer and the columns; texts that hold JSON are part of it."""
    verdicts = _verdicts()
    columns = verdicts.table.to_pydict()
    columns["diagnosis"] = [json.loads(one) for one in columns["diagnosis"]]
    references = [msgspec.structs.asdict(one) for one in verdicts.references]
    for one in references:
        one["reference"] = json.loads(one["reference"])
    return json.loads(msgspec.json.encode({"references": references, "columns": columns}))


_VERDICTS = EditedDocument(_verdicts_document)


def _as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _file_of_verdicts(data: bytes) -> bytes | None:
    """Return the file of verdicts with these edits; None if no Parquet file can hold them."""
    document = _VERDICTS.edited(data)
    try:
        for one in document["references"]:
            one["reference"] = _as_text(one["reference"])
        diagnoses = pa.array([_as_text(one) for one in document["columns"].pop("diagnosis")])
        table = _columns(document["columns"], _VERDICTS.valid["columns"], _verdicts().table)
        head = json.dumps({"schema": SCHEMA_VERSION, "references": document["references"]}).encode()
        return bytes(parquet_bytes(table.append_column("diagnosis", diagnoses), VERDICTS_KEY, head, []))
    except _NO_FILE:
        return None


def _read_verdicts(data: bytes, folder: Path) -> None:
    file = _file_of_verdicts(data)
    if file is None or not _is_accepted(decode_verdicts, file):
        return
    root, copy = _folder(folder, "root"), _folder(folder, "copy")
    (root / "x.verdicts.parquet").write_bytes(file)
    later = packet_path(root, RUN, WINDOWS)
    later.parent.mkdir()
    later.write_bytes(_written()[0][-1])
    ingest_to_dataset([root], copy)
    with Store.open([root, copy], memory=True) as store:
        store.ingest()
        with closing(Workspace(store, [root])) as workspace:
            _look_at(store, workspace)


# ---- packets ----------------------------------------------------------------------------------------


@cache
def _packet() -> tuple[bytes, pa.Table]:
    """Return the manifest and the columns of a packet with every kind of column."""
    window = _window(WINDOWS - 1)
    wait_NR = window.duration_SNR[2] // 2
    ranks = replace(window.ranks, layout={"dp": (0, 0, 1, 1), "pp": (0, 1, 0, 1)}, role=("a", "a", "b", "b"))
    value_NR = np.linspace(0.0, 9.0, wait_NR.size).reshape(wait_NR.shape)
    side = {
        name: SideChannel(value_NR, np.ones(value_NR.shape, dtype=bool)) for name in ("host.gc_ms", "gpu.sm")
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packet.parquet"
        write_packet(replace(window, waits={window.stages[2]: wait_NR}, side=side, ranks=ranks), path)
        return pq.read_metadata(path).metadata[MANIFEST_KEY], pq.read_table(path)


def _packet_document() -> Any:
    manifest, table = _packet()
    return {"manifest": json.loads(manifest), "columns": table.to_pydict()}


_PACKET = EditedDocument(_packet_document)


def _file_of_packet(data: bytes) -> bytes | None:
    """Return the packet with these edits; None if no Parquet file can hold them."""
    document, (_, valid) = _PACKET.edited(data), _packet()
    try:
        table = _columns(document["columns"], _PACKET.valid["columns"], valid)
        fields = [
            valid.schema.field(name).with_type(column.type)
            if name in valid.schema.names and not column.null_count
            else pa.field(name, column.type)
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        head = json.dumps(document["manifest"]).encode()
        return bytes(parquet_bytes(table.cast(pa.schema(fields)), MANIFEST_KEY, head, TEXT_COLUMNS))
    except _NO_FILE:
        return None


def _read_packet(data: bytes, folder: Path) -> None:
    file = _file_of_packet(data)
    root = _folder(folder, "root")
    path = packet_path(root, RUN, WINDOWS - 1)
    path.parent.mkdir()
    path.write_bytes(file or b"")
    if not _is_accepted(read_packet, path):
        return
    for number, content in enumerate(_written()[0]):
        if number != WINDOWS - 1:
            packet_path(root, RUN, number).write_bytes(content)
    window = read_packet(path).window
    with Store.open([root], memory=True) as store, closing(Workspace(store, [root])) as workspace:
        store.ingest()
        _look_at(store, workspace)
        with suppress(WindowNotFoundError):  # Its values do not add up, or another file has the window.
            _look_into(workspace, WindowKey(window.run_id, window.number))


# ---- operator events --------------------------------------------------------------------------------


@cache
def _operators() -> tuple[bytes, pa.Table]:
    """Return the head and the columns of a file of operator events."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        write_operators(operators_of(_window(WINDOWS - 1), ()), RUN, WINDOWS - 1, path)
        return pq.read_metadata(path).metadata[OPERATORS_KEY], pq.read_table(path)


def _operators_document() -> Any:
    head, table = _operators()
    return {"head": json.loads(head), "columns": table.slice(0, 40).to_pydict()}


_OPERATORS = EditedDocument(_operators_document)


def _read_operators(data: bytes, folder: Path) -> None:
    edited, (_, valid) = _OPERATORS.edited(data), _operators()
    root = _folder(folder, "root")
    packet = packet_path(root, RUN, WINDOWS - 1)
    path = operators_path(root, RUN, WINDOWS - 1)
    packet.parent.mkdir()
    try:
        table = _columns(edited["columns"], _OPERATORS.valid["columns"], valid.slice(0, 40))
        head = json.dumps(edited["head"]).encode()
        path.write_bytes(bytes(parquet_bytes(table, OPERATORS_KEY, head, [])))
    except _NO_FILE:
        return
    if not _is_accepted(read_operators, path):
        return
    packet.write_bytes(_written()[0][WINDOWS - 1])
    with Store.open([root], memory=True) as store, closing(Workspace(store, [root])) as workspace:
        store.ingest()
        _look_into(workspace, WindowKey(RUN, WINDOWS - 1))


STORE_PARSERS: dict[str, FuzzedParser] = {
    "files of verdicts": FuzzedParser(_VERDICTS.seeds, _read_verdicts, (), mutants=25),
    "whole packets": FuzzedParser(_PACKET.seeds, _read_packet, (), mutants=25),
    "whole operator files": FuzzedParser(_OPERATORS.seeds, _read_operators, (), mutants=25),
}
