"""Write the golden packets again: ``python tests/packets/make_golden.py``.

They are made with pyarrow from packet.md alone, not with sfapp's own writer: ``valid/`` holds one file (or
folder) for each thing a reader must accept, ``broken/`` one for each rule, broken once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GOLDEN = Path(__file__).parent / "golden"

STAGES = ["data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall", "step.other_cpu_wall"]
DATA, FORWARD, BACKWARD, OTHER = STAGES
STEPS, RANKS = 3, 4
ROWS = STEPS * RANKS
EVENT = "model.fwd_loss_cuda_event_ms"

Columns = dict[str, pa.Array]
Json = dict[str, Any]


def hash_of(stages: list[str]) -> str:
    return hashlib.sha256("\n".join(stages).encode()).hexdigest()


def duration(stage: int, step: int, rank: int) -> int:
    """What the golden packets hold, ns: every cell different, so that a wrong order shows."""
    return 1_000_000 * (stage + 1) + 10_000 * step + 100 * rank


def columns(stages: list[str] = STAGES, steps: int = STEPS, ranks: int = RANKS) -> Columns:
    rows = [(step, rank) for step in range(100, 100 + steps) for rank in range(ranks)]
    planes = {
        name: pa.array([duration(index, step - 100, rank) for step, rank in rows], pa.int64())
        for index, name in enumerate(stages)
    }
    return {
        "step": pa.array([step for step, _ in rows], pa.int64()),
        "rank": pa.array([rank for _, rank in rows], pa.int32()),
        "local_rank": pa.array([rank % 2 for _, rank in rows], pa.int32()),
        "node_rank": pa.array([rank // 2 for _, rank in rows], pa.int32()),
        "hostname": pa.array([f"node-{rank // 2}" for _, rank in rows]).dictionary_encode(),
        "role": pa.array(["dp" for _ in rows]).dictionary_encode(),
        "wall_ns": pa.array(
            [sum(duration(index, step - 100, rank) for index in range(len(stages))) for step, rank in rows],
            pa.int64(),
        ),
        **planes,
    }


def manifest(stages: list[str] = STAGES, ranks: int = RANKS, **changed: Any) -> Json:
    return {
        "format": 1,
        "run_id": "golden",
        "window": 7,
        "stages": stages,
        "stage_hash": hash_of(stages),
        "world_size": ranks,
        "missing_ranks": [],
        "gather_ok": True,
        "gather_error": None,
        "started_at": "2026-11-21T00:00:00Z",
        "ended_at": "2026-11-21T00:01:00Z",
        "closed_by": "full",
        "accumulation": {"factor": 1, "ordered": True, "sync": "every"},
        "parallelism": {"dp": ranks, "tp": 1, "pp": 1, "ep": 1, "cp": 1},
        "wrapper": "ddp",
        "model_fit": False,
        "prefetch": "aligned",
        "recorder": {"version": "by hand", "torch": "none", "backend": "gloo", "host": "node-0"},
        "overhead": {"gather_ns": 1, "record_ns": 2, "train_ns": 3},
        "faults": [],
        "labels": [],
        "extra": {},
    } | changed


def write(
    path: Path,
    table: Mapping[str, pa.Array] | pa.Table,
    about: Json | bytes | None,
    **options: Any,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = table if isinstance(table, pa.Table) else pa.table(dict(table))
    raw = about if isinstance(about, bytes) or about is None else json.dumps(about).encode()
    table = table.replace_schema_metadata(None if raw is None else {"sfapp.packet": raw})
    pq.write_table(table, path, **{"compression": "zstd", "write_statistics": False} | options)


def write_with_checksum(path: Path, checksum: int | None = None) -> None:
    """A plain packet with its checksum, or with this one, in its footer."""
    table = pa.table(columns()).replace_schema_metadata(
        {"sfapp.packet": json.dumps(manifest()), "sfapp.checksum": "00000000"}
    )
    pq.write_table(table, path, compression="zstd", write_statistics=False)
    data = path.read_bytes()
    place = data.rindex(b"sfapp.checksum") + len("sfapp.checksum") + 2  # Thrift: a string, its length
    found = zlib.crc32(data) if checksum is None else checksum
    path.write_bytes(data[:place] + f"{found:08x}".encode() + data[place + 8 :])


def replaced(name: str, values: list[Any], kind: pa.DataType | None = None) -> Columns:
    """The plain columns with one of them holding something else."""
    plain = columns()
    return plain | {name: pa.array(values, kind if kind is not None else plain[name].type)}


def with_value(name: str, row: int, value: Any) -> Columns:
    """The plain columns with one value changed."""
    values = columns()[name].to_pylist()
    values[row] = value
    kind = pa.string() if name in {"hostname", "role"} else columns()[name].type
    return replaced(name, values, kind)


def taken(rows: list[int]) -> Columns:
    """The plain columns' rows in this order."""
    return {name: column.take(pa.array(rows, pa.int64())) for name, column in columns().items()}


def side_columns(values: Sequence[float | None] | None = None, name: str = EVENT) -> Columns:
    sampled = [row % 2 == 0 for row in range(ROWS)]
    values = values or [row / 4 if row % 4 == 0 else None for row in range(ROWS)]
    return {f"side.{name}": pa.array(values, pa.float64()), f"sampled.{name}": pa.array(sampled)}


MICRO = ["data.next_wait[0]", "model.bwd[0]", "data.next_wait[1]", "model.bwd[1]", "optim.step_cpu_wall"]
ORDERED = {"factor": 2, "ordered": True, "sync": "last"}
UNICODE = ["dàta.wait", "模型.前向", "🐢.rest"]


def write_valid(folder: Path) -> None:
    """One file for each thing that a reader must accept."""
    plain = columns()
    write(folder / "plain.parquet", plain, manifest())
    write(folder / "accumulation.parquet", columns(MICRO), manifest(MICRO, accumulation=ORDERED))
    collapsed = manifest(accumulation={"factor": 4, "ordered": False, "sync": "last"})
    write(folder / "accumulation_collapsed.parquet", plain, collapsed)
    write(folder / "side_channel.parquet", plain | side_columns(), manifest())
    write(folder / "role_not_declared.parquet", replaced("role", [None] * ROWS, pa.string()), manifest())
    some = ["pp0" if row % RANKS < 2 else None for row in range(ROWS)]
    write(folder / "role_of_some.parquet", replaced("role", some, pa.string()), manifest())
    unknown = {"cpu_percent": pa.array([0.5] * ROWS), "notes": pa.array([[1, 2]] * ROWS)}
    write(
        folder / "unknown_keys_and_columns.parquet", plain | unknown, manifest(colour="teal", more={"a": [1]})
    )
    names = replaced("hostname", ["nœud-Ω\x1b[31m<script>"] * ROWS, pa.string())
    names |= {name: plain[old] for name, old in zip(UNICODE, STAGES, strict=False)}
    write(folder / "unicode_names.parquet", names, manifest(UNICODE, run_id="läuf/№1 <b>"))
    layout = {"dp": [0, 0, 1, 1], "pp": [0, 1, 0, 1], "ep": [0, 0, 0, 0]}
    write(folder / "layout.parquet", plain, manifest(layout=layout))
    attributes = {"kernel": ["6.8.0"], "rack": ["r1", "r1", "", "r2"]}
    write(folder / "attributes.parquet", plain, manifest(attributes=attributes))
    least = {"format": 1, "run_id": "golden", "window": 7, "stages": STAGES, "stage_hash": hash_of(STAGES)}
    write(folder / "least_manifest.parquet", plain, least | {"world_size": RANKS})
    incomplete = taken([row for row in range(ROWS) if row % RANKS != 2])
    write(folder / "missing_rank.parquet", incomplete, manifest(missing_ranks=[2]))
    extremes = with_value(BACKWARD, 5, 2**62) | {DATA: pa.array([0] * ROWS, pa.int64())}
    write(folder / "zero_and_largest.parquet", extremes, manifest())
    other_types = {
        "step": plain["step"].cast(pa.int32()),
        "rank": plain["rank"].cast(pa.int64()),
        "local_rank": plain["local_rank"].cast(pa.uint8()),
        "hostname": plain["hostname"].cast(pa.large_string()),
        "role": plain["role"].cast(pa.string()),
        DATA: plain[DATA].cast(pa.uint64()),
        FORWARD: plain[FORWARD].cast(pa.int32()),
    }
    write(folder / "other_integers_and_strings.parquet", plain | other_types, manifest())
    write(folder / "unsorted_rows.parquet", taken([7, 0, 11, 3, 2, 9, 1, 10, 4, 8, 6, 5]), manifest())
    write(folder / "row_groups.parquet", plain, manifest(), row_group_size=5)
    write(folder / "uncompressed.parquet", plain, manifest(), compression="none", use_dictionary=False)
    write_with_checksum(folder / "checksum.parquet")
    for rank in (0, 1, 3):
        mine = taken([row for row in range(ROWS) if row % RANKS == rank])
        about = manifest(
            gather_ok=False,
            gather_error=f"rank {rank}: gather timed out after 60 s",
            missing_ranks=[other for other in range(RANKS) if other != rank],
        )
        write(folder / "parts" / f"00000007.rank{rank}.parquet", mine, about)


Broken = Callable[[Path], object]


def _broken(table: Callable[[], Any] = columns, **changed: Any) -> Broken:
    return lambda path: write(path, table(), manifest(**changed))


def _without(key: str) -> Broken:
    return lambda path: write(path, columns(), {k: v for k, v in manifest().items() if k != key})


def _raw_manifest(raw: bytes | None) -> Broken:
    return lambda path: write(path, columns(), raw)


def _bytes(make: Callable[[bytes], bytes]) -> Broken:
    """A plain packet with a checksum on every page, its bytes changed."""

    def write_bytes(path: Path) -> None:
        write(path, columns(), manifest(), write_page_checksum=True, use_dictionary=False, compression="none")
        path.write_bytes(make(path.read_bytes()))

    return write_bytes


def _flip_in_page(data: bytes) -> bytes:
    place = data.index(duration(1, 0, 0).to_bytes(8, "little"))
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def _renamed(old: str, new: str) -> Columns:
    return {new if name == old else name: column for name, column in columns().items()}


def _doubled() -> pa.Table:
    plain = columns()
    return pa.Table.from_arrays([*plain.values(), plain["wall_ns"]], names=[*plain, "wall_ns"])


def _without_column(name: str) -> Columns:
    return {other: column for other, column in columns().items() if other != name}


def _listed(stages: list[str], named: list[str] | None = None) -> Broken:
    """A packet that lists these stages."""
    return lambda path: write(path, columns(named or STAGES), manifest(stages))


LONG = "x" * 257

BROKEN: dict[str, Broken] = {
    "not_parquet": lambda path: path.write_text("step,rank\n0,0\n"),
    "empty_file": lambda path: path.write_bytes(b""),
    "truncated": _bytes(lambda data: data[: len(data) // 2]),
    "damaged_page": _bytes(_flip_in_page),
    "checksum_wrong": lambda path: write_with_checksum(path, 0x1234ABCD),
    "no_manifest": _raw_manifest(None),
    "manifest_not_json": _raw_manifest(b"{'format': 1}"),
    "manifest_not_utf8": _raw_manifest(b'{"format": 1, "run_id": "\xff"}'),
    "manifest_key_missing": _without("stage_hash"),
    "manifest_wrong_type": _broken(window="seven"),
    "manifest_unknown_word": _broken(wrapper="horovod"),
    "format_missing": _without("format"),
    "format_newer": _broken(format=2, run_id=["no longer a string"]),
    "format_zero": _broken(format=0),
    "run_id_empty": _broken(run_id=""),
    "run_id_long": _broken(run_id=LONG),
    "window_negative": _broken(window=-1),
    "window_above": _broken(window=10**18),
    "world_size_zero": _broken(world_size=0),
    "world_size_huge": _broken(world_size=2**40),
    "world_size_small": _broken(world_size=3),
    "stages_empty": _listed([]),
    "stage_twice": _listed([DATA, DATA]),
    "stage_no_column": _listed([*STAGES, "gone\n"]),
    "stage_is_wall": _listed([*STAGES, "wall_ns"]),
    "stage_is_side": _listed(["side.x"], ["side.x"]),
    "stage_long": _listed([LONG], [LONG]),
    "stage_hash_wrong": _broken(stage_hash=hash_of(STAGES[::-1])),
    "micro_steps_missing": lambda path: write(
        path, columns(MICRO), manifest(MICRO, accumulation=ORDERED | {"factor": 3})
    ),
    "micro_steps_unnamed": _broken(accumulation={"factor": 4, "ordered": True, "sync": "every"}),
    "factor_zero": _broken(accumulation={"factor": 0, "ordered": True, "sync": "every"}),
    "layout_dimension_unknown": _broken(layout={"zz": [0] * RANKS}),
    "layout_long": _broken(layout={"dp": [0] * (RANKS + 1)}),
    "layout_negative": _broken(layout={"dp": [0] * RANKS, "pp": [0, 1, -1, 0]}),
    "layout_text": _broken(layout={"dp": ["0"] * RANKS}),
    "attributes_long": _broken(attributes={"kernel": ["6.8.0"] * (RANKS - 1)}),
    "attributes_many": _broken(attributes={f"name{number}": ["x"] for number in range(33)}),
    "attributes_value_long": _broken(attributes={"kernel": ["x" * 257]}),
    "missing_rank_outside": _broken(missing_ranks=[9]),
    "missing_rank_twice": _broken(lambda: taken([0, 1, 4, 5, 8, 9]), missing_ranks=[2, 2, 3]),
    "missing_rank_present": _broken(missing_ranks=[2]),
    "rank_unaccounted": _broken(world_size=6, missing_ranks=[4]),
    "column_missing": _broken(lambda: _without_column("wall_ns")),
    "hostname_missing": _broken(lambda: _without_column("hostname")),
    "column_twice": _broken(_doubled),
    "duration_float": _broken(lambda: replaced(DATA, [1.0] * (ROWS - 1) + [float("nan")], pa.float64())),
    "duration_null": _broken(lambda: with_value(DATA, 6, None)),
    "duration_negative": _broken(lambda: with_value(BACKWARD, 9, -5)),
    "duration_above": _broken(lambda: with_value(FORWARD, 4, 2**62 + 1)),
    "duration_unsigned_above": _broken(lambda: replaced(DATA, [1] * (ROWS - 1) + [2**64 - 1], pa.uint64())),
    "wall_negative": _broken(lambda: with_value("wall_ns", 2, -1)),
    "wall_null": _broken(lambda: with_value("wall_ns", 2, None)),
    "step_null": _broken(lambda: with_value("step", 6, None)),
    "step_text": _broken(lambda: replaced("step", [str(row) for row in range(ROWS)], pa.string())),
    "step_above": _broken(lambda: replaced("step", [row // RANKS + 2**62 - 1 for row in range(ROWS)])),
    "step_negative": _broken(lambda: replaced("step", [row // RANKS - 1 for row in range(ROWS)])),
    "rank_negative": _broken(lambda: replaced("rank", [-1, 0, 1, 2] * STEPS, pa.int32())),
    "row_twice": _broken(lambda: taken([*range(ROWS), 5])),
    "row_missing": _broken(lambda: taken([row for row in range(ROWS) if row != 6])),
    "no_rows": _broken(lambda: taken([])),
    "hostname_null": _broken(lambda: with_value("hostname", 3, None)),
    "hostname_long": _broken(lambda: replaced("hostname", [LONG] * ROWS, pa.string())),
    "hostname_changes": _broken(lambda: with_value("hostname", 8, "node-9")),
    "hostname_number": _broken(lambda: replaced("hostname", [1] * ROWS, pa.int64())),
    "role_long": _broken(lambda: replaced("role", ["dp", "dp", LONG, LONG] * STEPS, pa.string())),
    "role_changes": _broken(lambda: with_value("role", 7, None)),
    "node_rank_changes": _broken(lambda: with_value("node_rank", 11, 0)),
    "local_rank_negative": _broken(lambda: replaced("local_rank", [0, -1, 0, 1] * STEPS, pa.int32())),
    "side_infinite": _broken(lambda: columns() | side_columns([1.0] * 10 + [float("inf"), 1.0])),
    "side_without_sampled": _broken(lambda: columns() | {"side.x": pa.array([1.0] * ROWS)}),
    "side_long": _broken(
        lambda: (
            columns() | {"side." + LONG: pa.array([1.0] * ROWS), "sampled." + LONG: pa.array([True] * ROWS)}
        )
    ),
    "side_text": _broken(lambda: columns() | side_columns() | {f"side.{EVENT}": pa.array(["1"] * ROWS)}),
    "sampled_null": _broken(
        lambda: columns() | side_columns() | {f"sampled.{EVENT}": pa.array([None] * ROWS, pa.bool_())}
    ),
    "sampled_number": _broken(
        lambda: columns() | side_columns() | {f"sampled.{EVENT}": pa.array([1] * ROWS)}
    ),
    "part_of_another.rank3": _broken(lambda: taken([2, 6, 10]), gather_ok=False),
}


def write_broken(folder: Path) -> None:
    """One file for each rule, broken once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in BROKEN.items():
        make(folder / f"{name}.parquet")


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_valid(GOLDEN / "valid")
    write_broken(GOLDEN / "broken")


if __name__ == "__main__":
    main()
