"""Valid inputs of every parser, from which the fuzzer makes mutants, and the calls that read them."""

from __future__ import annotations

import json
import pickle
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.fuzz_jobs import JOB_PARSERS
from benchmarks.fuzz_stores import STORE_PARSERS
from benchmarks.fuzzed_parser import FuzzedParser, read_file
from benchmarks.kineto_job import Shape, write_job
from sfapp.errors import SfappError
from sfapp.importers import ImportOptions
from sfapp.importers.import_formats import read_traces
from sfapp.incidents import IncidentEditor, IncidentLog, document_of, parse
from sfapp.incidents.compaction import pack, unpack
from sfapp.incidents.events import decode
from sfapp.model import DEFAULT_STAGES
from sfapp.model.capture import RankCapture
from sfapp.model.sides import parse_compare
from sfapp.model.standstill import ProcessId, ProcessLook, ReportedPlace, parse_roll_call
from sfapp.model.view import parse_query
from sfapp.operators.standstill import roll_call
from sfapp.packets import read_operators, read_packet, write_operators
from sfapp.packets.captures import ask_for_capture, new_stacks_request
from sfapp.packets.faults import Faults
from sfapp.packets.manifest import check_manifest, decode_manifest
from sfapp.stream.live_state import LiveSnapshot
from sfapp.stream.message_parser import decode_from_aggregator
from sfapp.stream.messages import (
    VERSION,
    Ack,
    CaptureCommand,
    CapturePiece,
    CaptureReport,
    Echo,
    Heartbeat,
    Message,
    Resend,
    Steps,
    StreamHello,
    WindowClosed,
    WindowOpened,
    encode,
)
from sfapp.stream.process_looks import look_at, this_host
from sfapp.stream.standstill_watch import positions_of
from sfapp.stream.stream_receiver import StreamReceiver

SAMPLES = Path(__file__).parents[1] / "sample_data" / "packets" / "gpt-small-ddp"


def _packets() -> list[bytes]:
    return [path.read_bytes() for path in sorted(SAMPLES.glob("*.parquet"))[:2]]


def _operators() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(_kineto()[0])
        (window,) = read_traces("kineto", [path], ImportOptions()).windows
        assert window.operators is not None
        write_operators(window.operators, "run", 0, path.with_suffix(".parquet"))
        return [path.with_suffix(".parquet").read_bytes()]


def _manifests() -> list[bytes]:
    import pyarrow.parquet as pq

    paths = sorted(SAMPLES.rglob("0000000?.parquet"))[:2]
    metadata = [pq.read_metadata(path).metadata for path in paths]
    return [value for each in metadata for key, value in each.items() if value.startswith(b"{")]


def _read_manifest(data: bytes, folder: Path) -> None:
    check_manifest(decode_manifest(data), Faults())


def _messages() -> list[Message]:
    process = ProcessId(7, 7, "host")
    rows = np.array([[step, 60, 10, 10, 10, 10, 10, 10] for step in range(3)], dtype="<i8").tobytes()
    return [
        StreamHello(
            v=VERSION, rank=0, incarnation="fuzz", run_id="run", attempt="a", world_size=1,
            attributes={"kernel": "6.8"},
        ),
        WindowOpened(
            v=VERSION, rank=0, incarnation="fuzz", sequence=0, window=0,
            broad=DEFAULT_STAGES[:-1], stages=DEFAULT_STAGES, coordinates={"dp": 0, "pp": 1},
        ),
        Steps(v=VERSION, rank=0, incarnation="fuzz", sequence=1, window=0, rows=rows),
        WindowClosed(
            v=VERSION, rank=0, incarnation="fuzz", sequence=4, window=0, steps=3,
            evidence={"host.gc_ms": bytes(8), "host.runnable_ms": bytes(24)},
        ),
        Heartbeat(
            v=VERSION, rank=0, incarnation="fuzz", sent=5, sent_ns=7, looks=(ProcessLook(process, "S"),),
            place=ReportedPlace(step=3, stage="b", call="recv", group_ranks=(0, 1), process=process),
        ),
        CaptureReport(
            v=VERSION, rank=0, incarnation="fuzz", number=0, first=0, capture="a",
            state=RankCapture(rank=0, status="done"),
        ),
        CapturePiece(
            v=VERSION, rank=0, incarnation="fuzz", number=1, first=0, capture="a", window=0, piece=0,
            pieces=1, content=b"{}", holds="dump",
        ),
    ]  # fmt: skip


class _ReceiverUnderFuzz:
    """A receiver that takes valid messages and mutants in turn, as an aggregator among hostile peers."""

    def __init__(self) -> None:
        self._count = 0
        self._receiver: StreamReceiver | None = None

    def read(self, data: bytes, folder: Path) -> None:
        if self._receiver is None or self._count % 500 == 0:
            root = folder / f"packets-{self._count}"
            ask_for_capture(root, replace(new_stacks_request("run", [0, 1]), id="a"))
            self._receiver = StreamReceiver(root, lambda route, answer: None)
        self._count += 1
        valid = _VALID_FRAMES[self._count % len(_VALID_FRAMES)]
        for frame in (valid, data):
            self._receiver.receive((b"peer",), memoryview(frame), lambda: "fuzz")
        self._receiver.run_due_work()
        if self._count % 50 == 0:
            self._look_at_jobs(self._receiver.snapshot())

    def _look_at_jobs(self, snapshot: LiveSnapshot) -> None:
        for run_id in {rank.run_id for rank in snapshot.ranks}:
            job = positions_of([rank for rank in snapshot.ranks if rank.run_id == run_id])
            roll = roll_call(replace(job, idle_s=1e6))
            assert roll is None or parse_roll_call(msgspec.json.encode(roll).decode()) == roll


_VALID_FRAMES = [encode(message) for message in _messages()]


def _answers() -> list[bytes]:
    return [
        encode(Ack(v=VERSION, rank=0, incarnation="fuzz", up_to_sequence=7)),
        encode(Resend(v=VERSION, rank=0, incarnation="fuzz", sequence=3, hello=True)),
        encode(
            Echo(
                v=VERSION,
                rank=0,
                incarnation="fuzz",
                sent_ns=1,
                received_ns=2,
                replied_ns=3,
                look_at=(ProcessId(7, 7, this_host() or ""),),
            )
        ),
        encode(
            CaptureCommand(
                v=VERSION,
                rank=0,
                incarnation="fuzz",
                request=new_stacks_request("run", [0, 1], reason="slow"),
            )
        ),
    ]


def _read_answer(data: bytes, folder: Path) -> None:
    answer = decode_from_aggregator(data)
    if isinstance(answer, Echo):
        for process in answer.look_at or ():
            look_at(process)


def _queries() -> list[bytes]:
    return [
        b"tau_c=0.9&reference=team/run%201/12&step=161&ranks=0-3,7&zoom=frontier_steps.x:1.0:2.5",
        b"gamma_a=0.3&tab=frontier&stage=data.next_wait&rank=3&baseline=median&fix=rank:3",
        b"a=team/run%201/12&b=team/run%201/13&c=r/14&group=node",
    ]


def _read_query(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "surrogateescape")
    view, _ = parse_query(text)
    again, problems = parse_query(view.query)
    if again != view or problems:
        raise AssertionError(f"the view does not survive its address: {view.query!r}")
    parse_compare(text)


def _incident_log() -> tuple[list[bytes], bytes]:
    with tempfile.TemporaryDirectory() as folder:
        log = IncidentLog(Path(folder) / "log.jsonl")
        by = IncidentEditor(log, "Ada", lambda: datetime(2026, 11, 25, tzinfo=UTC))
        incident = by.open_incident("slow loader", summary="since step 161")
        by.add_note(log.state().incident(incident), by.write_note("here"))
        by.undo(by.write_note("there"))
        lines = log.path.read_bytes().splitlines()
        return [*lines, pack(b"\n".join(lines) + b"\n")], json.dumps(document_of(log.state())).encode()


def _read_incident_line(data: bytes, folder: Path) -> None:
    path = folder / "incidents.jsonl"
    path.write_bytes(data + b"\n" + data)
    IncidentLog(path).state()
    for reader in (decode, partial(unpack, most=1 << 20, most_lines=1 << 16)):
        try:
            reader(data)
        except SfappError:
            continue


def _read_export(data: bytes, folder: Path) -> None:
    path = folder / "imported.jsonl"
    path.unlink(missing_ok=True)
    IncidentLog(path).append(parse(data))


def _kineto() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        paths = write_job(
            Path(folder), Shape(ranks=1, steps=3, late_rank=0, buckets=1, layers=1), packed=False
        )
        return [path.read_bytes() for path in paths]


def _tables() -> list[bytes]:
    csv = "step,rank,stage,duration_ms\n" + "".join(f"{n // 2},{n % 2},load,{n}.5\n" for n in range(12))
    rows = [{"step": n // 2, "rank": n % 2, "stage": "load", "duration_ms": n} for n in range(12)]
    return [csv.encode(), json.dumps(rows).encode()]


def _flight_recorder() -> list[bytes]:
    entries = [
        {
            "record_id": n, "pg_id": 0, "process_group": ["0", "default"], "collective_seq_id": n,
            "p2p_seq_id": 0, "op_id": n, "profiling_name": "nccl:all_reduce", "time_created_ns": 1000 * n + 1,
            "duration_ms": None, "input_sizes": [[4]], "output_sizes": [[4]], "state": "completed",
            "time_discovered_started_ns": 1000 * n + 9, "time_discovered_completed_ns": 1000 * n + 99,
            "retired": True, "timeout_ms": 600000, "is_p2p": False, "frames": [],
        }
        for n in range(6)
    ]  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default", "ranks": "[0, 1]"}}
    dump = {"version": "2.4", "pg_config": {"0": groups["0"]}, "entries": entries, "rank": 0}
    return [json.dumps(dump).encode(), pickle.dumps(dump)]


def _nccl() -> list[bytes]:
    records = [
        {
            "header": {"id": "0x7f", "rank": 0, "n_ranks": 2, "nnodes": 1},
            "metadata": {
                "inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "profiler_plugin",
                "dump_timestamp_us": 1_748_030_377_748_202 + n * 100_000, "hostname": "host", "pid": 7,
            },
            "coll_perf": {
                "coll": "AllReduce", "coll_sn": n, "coll_msg_size_bytes": 4096, "coll_exec_time_us": 40 + n,
                "coll_algobw_gbs": 2.5, "coll_busbw_gbs": 4.5,
            },
        }
        for n in range(6)
    ]  # fmt: skip
    counts = {"coll_records": 6, "coll_dropped_total": 3, "p2p_records": 1}
    newer = [
        {"header": records[0]["header"], "metadata": records[0]["metadata"], "dump_stats": counts},
        *({"coll_perf": each["coll_perf"]} for each in records),
        {"p2p_perf": {"p2p": "Send", "p2p_sn": 8, "p2p_peer": 1, "p2p_exec_time_us": 50}},
        {"proxy_trace": {"record_type": "proxy_op", "record_sn": 42}},
    ]
    return ["".join(json.dumps(each) + "\n" for each in log).encode() for log in (records, newer)]


def _sqlite(statements: list[tuple[str, list[tuple[object, ...]]]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed.sqlite"
        file = sqlite3.connect(path)
        for statement, rows in statements:
            file.executemany(statement, rows) if rows else file.execute(statement)
        file.commit()
        file.close()
        return path.read_bytes()


def _nsys() -> list[bytes]:
    ranges = [(n * 10_000_000, n * 10_000_000 + 8_000_000, 59, None, 1 << 24, n % 2) for n in range(8)]
    return [
        _sqlite(
            [
                ("CREATE TABLE StringIds (id INTEGER, value TEXT)", []),
                ("INSERT INTO StringIds VALUES (?, ?)", [(0, "step"), (1, "load")]),
                (
                    "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, "
                    "globalTid INTEGER, textId INTEGER)",
                    [],
                ),
                ("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", [*ranges]),
            ]
        )
    ]


def _traceml() -> list[bytes]:
    prefix = "_traceml_internal:"
    times = {"dataloader_next": 2.0, "forward_time": 3.0, "backward_time": 4.0, "step_time": 10.0}
    events = json.dumps(
        {
            prefix + key: {"cpu": {"cpu_ms": ms, "duration_ms": ms, "gpu_ms": None}}
            for key, ms in times.items()
        }
    )
    return [
        _sqlite(
            [
                (
                    "CREATE TABLE step_time_samples (id INTEGER PRIMARY KEY, step INTEGER, events_json TEXT, "
                    "global_rank INTEGER, hostname TEXT)",
                    [],
                ),
                (
                    "INSERT INTO step_time_samples VALUES (NULL, ?, ?, ?, ?)",
                    [(n // 2, events, n % 2, "node") for n in range(8)],
                ),
            ]
        )
    ]


def _importer(name: str, suffix: str, seeds: Callable[[], list[bytes]]) -> FuzzedParser:
    def read(data: bytes, folder: Path) -> None:
        path = folder / f"seed{suffix}"
        path.write_bytes(data)
        read_traces(name, [path], ImportOptions())

    return FuzzedParser(seeds, read)


PARSERS: dict[str, FuzzedParser] = {
    "packets": FuzzedParser(_packets, partial(read_file, read_packet, "00000000.parquet")),
    "operators": FuzzedParser(_operators, partial(read_file, read_operators, "00000000.operators.parquet")),
    "manifests": FuzzedParser(_manifests, _read_manifest),
    "frames to the aggregator": FuzzedParser(lambda: [*_VALID_FRAMES], _ReceiverUnderFuzz().read, ()),
    "frames to a rank": FuzzedParser(_answers, _read_answer),
    "view addresses": FuzzedParser(_queries, _read_query, ()),
    "incident lines": FuzzedParser(lambda: _incident_log()[0], _read_incident_line),
    "incident exports": FuzzedParser(lambda: [_incident_log()[1]], _read_export),
    "kineto": _importer("kineto", ".json", _kineto),
    "table": _importer("table", ".csv", lambda: _tables()[:1]),
    "table json": _importer("table", ".json", lambda: _tables()[1:]),
    "flight-recorder": _importer("flight-recorder", "0", _flight_recorder),
    "nccl-inspector": _importer("nccl-inspector", ".log", _nccl),
    "nsys": _importer("nsys", ".sqlite", _nsys),
    "traceml": _importer("traceml", ".sqlite", _traceml),
    **JOB_PARSERS,
    **STORE_PARSERS,
}
