"""Every rule of packet.md on a file of its own: those to accept, and each rule broken once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.errors import PacketError, PacketVersionError
from sfapp.model import Window
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.packets import (
    Limits,
    Quarantined,
    load_packet,
    read_packet,
    read_window,
    validate_packet,
)
from tests.packets.make_golden import (
    BROKEN,
    EVENT,
    GOLDEN,
    MICRO,
    RANKS,
    ROWS,
    STAGES,
    STEPS,
    UNICODE,
    columns,
    duration,
    manifest,
    taken,
    write,
)

VALID = GOLDEN / "valid"

EXPECTED_SNR = np.array(
    [
        [[duration(stage, step, rank) for rank in range(RANKS)] for step in range(STEPS)]
        for stage in range(len(STAGES))
    ]
)

# file -> the faults that `sfapp validate` prints, first to last
with pytest.raises(UNREADABLE_JSON) as _not_utf8:
    msgspec.json.decode(b'{"run_id": "\xff"}')
NOT_UTF8 = str(_not_utf8.value)
"""The reason of the installed msgspec, which differs between 0.22 and 0.23."""

FAULTS: dict[str, tuple[str, ...]] = {
    "checksum_wrong": ("the file is damaged: its checksum is ",),
    "column_missing": ("column 'wall_ns': the column is missing",),
    "column_twice": ("column 'wall_ns': 2 columns have this name",),
    "damaged_page": ("not a readable Parquet file: could not verify page integrity, CRC checksum",),
    "duration_above": ("row 4, column 'model.fwd_loss_cpu_wall': 4611686018427387905 is above 2^62",),
    "duration_float": (
        "column 'data.next_wait': holds double, not whole nanoseconds (never NaN or infinite)",
    ),
    "duration_negative": ("row 9, column 'model.backward_cpu_wall': -5 is negative",),
    "duration_null": ("row 6, column 'data.next_wait': is null",),
    "duration_unsigned_above": ("row 11, column 'data.next_wait': 18446744073709551615 is above 2^62",),
    "empty_file": ("not a readable Parquet file: Parquet file size is 0 bytes",),
    "factor_zero": ("accumulation factor 0 is outside 1…2^62",),
    "format_missing": ("the manifest is wrong: Object missing required field `format`",),
    "format_newer": (
        "packet format 2 is newer than format 1, the newest this sfapp reads: install a newer sfapp",
    ),
    "format_zero": ("packet format 0 does not exist",),
    "hostname_changes": ("row 8, column 'hostname': rank 0 changes inside the window",),
    "hostname_long": ("row 0, column 'hostname': 'xxxxx",),
    "hostname_missing": ("column 'hostname': the column is missing",),
    "hostname_null": ("row 3, column 'hostname': is null",),
    "hostname_number": ("column 'hostname': holds int64, not strings",),
    "attributes_long": ("attributes has 3 values of 'kernel' for 4 ranks",),
    "attributes_many": ("attributes has 33 names, more than 32",),
    "attributes_value_long": (
        "attributes has a value of 'kernel' that is not valid Unicode, or has more than",
    ),
    "layout_dimension_unknown": ("layout has the dimension 'zz', which is none of dp, pp, tp, ep, cp",),
    "layout_long": ("layout has 5 coordinates in dp for 4 ranks with rows",),
    "layout_negative": ("layout has a coordinate in pp outside 0…1,048,575",),
    "layout_text": ("the manifest is wrong: Expected `int`, got `str` - at `$.layout[...][0]`",),
    "local_rank_negative": ("row 1, column 'local_rank': -1 is outside 0…2147483647",),
    "manifest_key_missing": ("the manifest is wrong: Object missing required field `stage_hash`",),
    "manifest_not_json": ("the manifest is not readable JSON: JSON is malformed",),
    "manifest_not_utf8": (f"the manifest is not readable JSON: {NOT_UTF8}",),
    "manifest_unknown_word": ("the manifest is wrong: Invalid enum value 'horovod' - at `$.wrapper`",),
    "manifest_wrong_type": ("the manifest is wrong: Expected `int`, got `str` - at `$.window`",),
    "micro_steps_missing": (
        "stage 'data.next_wait' has the micro-steps '0, 1', but accumulation factor 3 needs 0 to 2",
        "stage 'model.bwd' has the micro-steps '0, 1', but accumulation factor 3 needs 0 to 2",
    ),
    "micro_steps_unnamed": (
        "accumulation says that 4 micro-steps are kept apart (ordered), but no stage is",
    ),
    "missing_rank_outside": ("missing rank 9 is outside world_size 4",),
    "missing_rank_present": ("column 'rank': rank 2 is among missing_ranks, but has rows",),
    "missing_rank_twice": ("missing_ranks names a rank twice",),
    "no_manifest": ("no manifest: the Parquet footer has no key 'sfapp.packet'",),
    "no_rows": ("the file has no rows",),
    "node_rank_changes": ("row 11, column 'node_rank': rank 3 changes inside the window",),
    "not_parquet": ("not a readable Parquet file: Parquet magic bytes not found",),
    "part_of_another.rank3": (
        "column 'rank': the file's name says it is the part of rank 3, but it holds other ranks",
    ),
    "rank_negative": ("row 0, column 'rank': -1 is outside 0…2147483647",),
    "rank_unaccounted": ("column 'rank': rank 5 of world_size 6 has no rows and is not among missing_ranks",),
    "role_changes": ("row 7, column 'role': rank 3 changes inside the window",),
    "role_long": ("row 2, column 'role': 'xxxxx",),
    "row_missing": ("column 'rank': step 101 has no row for rank 2",),
    "row_twice": ("row 12: step 101, rank 1 is also in row 5",),
    "run_id_empty": ("run_id is empty",),
    "run_id_long": ("run_id 'xxxxx",),
    "sampled_null": (f"row 0, column 'sampled.{EVENT}': is null (and 11 more)",),
    "sampled_number": (f"column 'sampled.{EVENT}': holds int64, not true or false",),
    "side_infinite": (f"row 10, column 'side.{EVENT}': inf is infinite",),
    "side_long": ("side channel 'xxxxx",),
    "side_text": (f"column 'side.{EVENT}': holds string, not floating-point numbers",),
    "side_without_sampled": ("column 'sampled.x': the column is missing",),
    "stage_hash_wrong": ("stage_hash '270fed36b844'… is not that of the listed stages, '242177b6849c'…",),
    "stage_is_side": ("stage 'side.x' has the name of a column that is no stage",),
    "stage_is_wall": ("stage 'wall_ns' has the name of a column that is no stage",),
    "stage_long": ("stage 'xxxxx",),
    "stage_no_column": (r"column 'gone\n': a stage of the manifest is no column",),
    "stage_twice": ("stage 'data.next_wait' is listed 2 times",),
    "stages_empty": ("the stage list is empty",),
    "step_above": ("row 8, column 'step': 4611686018427387905 is outside 0…",),
    "step_negative": ("row 0, column 'step': -1 is outside 0…",),
    "step_null": ("row 6, column 'step': is null",),
    "step_text": ("column 'step': holds string, not integers",),
    "truncated": ("not a readable Parquet file: Parquet magic bytes not found",),
    "wall_negative": ("row 2, column 'wall_ns': -1 is negative",),
    "wall_null": ("row 2, column 'wall_ns': is null",),
    "window_above": ("window number 1000000000000000000 is outside 0…10^18−1",),
    "window_negative": ("window number -1 is outside 0…10^18−1",),
    "world_size_huge": (
        "world_size 1099511627776 is outside 1…1,048,576",
        "column 'rank': rank 4 of world_size 1099511627776 has no rows",
    ),
    "world_size_small": ("row 3, column 'rank': rank 3 is outside world_size 3",),
    "world_size_zero": (
        "world_size 0 is outside 1…1,048,576",
        "row 0, column 'rank': rank 0 is outside world_size 0",
    ),
}


def golden(name: str) -> Window:
    return read_packet(VALID / f"{name}.parquet").window


def test_every_broken_packet_has_its_faults_listed() -> None:
    assert set(FAULTS) == set(BROKEN) == {path.stem for path in (GOLDEN / "broken").iterdir()}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_broken_packet_is_refused_with_what_and_where(name: str) -> None:
    path = GOLDEN / "broken" / f"{name}.parquet"

    faults = validate_packet(path)

    assert [fault.fault[: len(start)] for fault, start in zip(faults, FAULTS[name], strict=True)] == list(
        FAULTS[name]
    )
    assert all(fault.path == str(path) and "\n" not in str(fault) for fault in faults)
    with pytest.raises(PacketError) as refused:
        read_packet(path)
    assert str(refused.value) == str(faults[0])
    loaded = load_packet(path)
    assert isinstance(loaded, Quarantined)
    assert (loaded.reason, loaded.size) == (faults[0].fault, path.stat().st_size)
    assert len(loaded.sha256) == 64


def test_a_newer_format_is_detected_whatever_else_has_changed() -> None:
    with pytest.raises(PacketVersionError, match="format 2 is newer than format 1"):
        read_packet(GOLDEN / "broken" / "format_newer.parquet")


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "checksum",
        "least_manifest",
        "other_integers_and_strings",
        "role_not_declared",
        "row_groups",
        "side_channel",
        "uncompressed",
        "layout",
        "attributes",
        "unknown_keys_and_columns",
        "unsorted_rows",
    ],
)
def test_the_matrix_is_read_in_order_whatever_the_file_looks_like(name: str) -> None:
    window = golden(name)

    assert np.array_equal(window.duration_SNR, EXPECTED_SNR)
    assert window.duration_SNR.flags.c_contiguous
    assert np.array_equal(window.wall_NR, EXPECTED_SNR.sum(axis=0))
    assert window.step_N.tolist() == [100, 101, 102]
    assert window.stages == tuple(STAGES)
    assert window.ranks.rank == (0, 1, 2, 3)
    assert window.ranks.local_rank == (0, 1, 0, 1)
    assert window.ranks.node_rank == (0, 0, 1, 1)
    assert window.ranks.hostname == ("node-0", "node-0", "node-1", "node-1")
    assert (window.run_id, window.number) == ("golden", 7)


def test_the_manifest_is_read_whole() -> None:
    manifest = golden("plain").manifest

    assert manifest.wrapper == "ddp"
    assert manifest.prefetch == "aligned"
    assert manifest.parallelism.dp == RANKS
    assert manifest.overhead.train_ns == 3
    assert manifest.started_at == "2026-11-21T00:00:00Z"
    assert manifest.recorder.version == "by hand"


def test_roles_may_be_absent_for_all_or_some_ranks() -> None:
    assert golden("role_not_declared").ranks.role == (None,) * RANKS
    assert golden("role_of_some").ranks.role == ("pp0", "pp0", None, None)


def test_a_layout_places_every_rank_and_several_may_share_a_place() -> None:
    assert golden("plain").layout == {}
    window = golden("layout")

    assert window.layout == {"dp": (0, 0, 1, 1), "pp": (0, 1, 0, 1), "ep": (0, 0, 0, 0)}
    assert window.ranks.identity(2).coordinates == {"dp": 1, "pp": 0, "ep": 0}
    assert window.of_group("node:1").layout == {"dp": (1, 1), "pp": (0, 1), "ep": (0, 0)}


def test_attributes_are_one_text_for_each_rank() -> None:
    assert golden("plain").attributes == {}
    window = golden("attributes")

    assert window.attributes == {"kernel": ("6.8.0",) * 4, "rack": ("r1", "r1", "", "r2")}
    assert window.ranks.identity(2).attributes == {"kernel": "6.8.0"}
    assert window.of_group("node:1").attributes == {"kernel": ("6.8.0",) * 2, "rack": ("", "r2")}


def test_micro_steps_are_stages_of_their_own() -> None:
    window = golden("accumulation")

    assert window.stages == tuple(MICRO)
    assert window.broad_stages == ("data.next_wait", "model.bwd", "optim.step_cpu_wall")
    assert window.manifest.accumulation.factor == 2
    assert golden("accumulation_collapsed").manifest.accumulation.factor == 4


def test_side_channels_keep_apart_what_was_not_sampled_and_what_was_not_ready() -> None:
    channel = golden("side_channel").side[EVENT]

    assert channel.sampled_NR.flatten().tolist() == [row % 2 == 0 for row in range(ROWS)]
    ready = ~np.isnan(channel.value_NR)
    assert ready.flatten().tolist() == [row % 4 == 0 for row in range(ROWS)]
    assert channel.value_NR[ready].tolist() == [0.0, 1.0, 2.0]


def test_names_are_kept_as_they_are() -> None:
    window = golden("unicode_names")

    assert window.stages == tuple(UNICODE)
    assert window.run_id == "läuf/№1 <b>"
    assert set(window.ranks.hostname) == {"nœud-Ω\x1b[31m<script>"}


def test_missing_ranks_are_named_and_have_no_rows() -> None:
    window = golden("missing_rank")

    assert window.manifest.missing_ranks == (2,)
    assert window.ranks.rank == (0, 1, 3)


def test_zero_and_the_largest_value_are_durations() -> None:
    window = golden("zero_and_largest")

    assert int(window.duration_SNR[0].max()) == 0
    assert int(window.duration_SNR.max()) == 2**62


def test_parts_of_a_failed_gather_are_one_window() -> None:
    window = read_window(VALID / "parts")

    assert np.array_equal(window.duration_SNR, EXPECTED_SNR[:, :, [0, 1, 3]])
    assert window.manifest.missing_ranks == (2,)
    assert window.manifest.gather_ok is False
    assert window.manifest.gather_error == "rank 0: gather timed out after 60 s"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_cells=47), "12 rows × 4 stages are 48 cells, more than the 47 allowed"),
        (Limits(max_bytes=1000), "bytes on disk, more than the 1,000 allowed"),
    ],
)
def test_a_packet_beyond_the_limits_is_refused(limits: Limits, reason: str) -> None:
    path = VALID / "plain.parquet"

    with pytest.raises(PacketError, match=reason):
        read_packet(path, limits)
    loaded = load_packet(path, limits)
    assert isinstance(loaded, Quarantined)
    assert len(loaded.sha256) == 64
    read_packet(path, Limits(max_cells=48))


def test_a_dictionary_may_list_more_names_than_there_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "packet.parquet"
    hosts = [f"node-{row % RANKS // 2}" for row in range(ROWS)]
    unused = [f"elsewhere-{index}" for index in range(3 * ROWS)]
    listed = [*unused, "node-0", "node-1"]
    codes = pa.array([listed.index(host) for host in hosts], pa.int32())
    write(path, columns() | {"hostname": pa.DictionaryArray.from_arrays(codes, pa.array(listed))}, manifest())
    assert read_packet(path).window.ranks.hostname == ("node-0", "node-0", "node-1", "node-1")


@given(order=st.permutations(range(ROWS)))
def test_rows_in_any_order_make_the_same_window(
    order: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("packet") / "packet.parquet"
    write(path, taken(order), manifest())

    window = read_packet(path).window

    assert np.array_equal(window.duration_SNR, EXPECTED_SNR)
    assert window.ranks == golden("plain").ranks
