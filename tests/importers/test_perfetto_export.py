"""A window's events as an archive for Perfetto: its content, and the message if there is none."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sfapp.cli import cli
from sfapp.errors import TraceError
from sfapp.importers.perfetto_export import MANIFEST, check_size, perfetto_chunks, write_perfetto
from sfapp.model import CATEGORIES, Lane, Operators, RankIdentity, RankTable
from sfapp.packets import operators_path, packet_path, write_operators, write_packet
from tests.builders import window_of

HOST, KERNEL, RUNTIME, COLLECTIVE = map(CATEGORIES.index, ("host", "kernel", "runtime", "collective"))
LATE = 1_700_000_000_000_000_000
"""Nanoseconds since 1970: as microseconds too long for a float to keep its last digits."""

RANKS = RankTable.of([RankIdentity(0, 0, 0, "a"), RankIdentity(1, 0, 1, 'b"</script>')])


def events(names: tuple[str, ...] = ("matmul", "launch", "gemm", "all_reduce")) -> Operators:
    """On each rank one of each, in two steps; the launch leads to the kernel on the device."""
    lanes = [Lane(rank, name, name == "stream 7") for rank in (0, 1) for name in ("thread 1", "stream 7")]
    rows = [
        (kind, 2 * rank + (kind == 2), step, LATE + 10_000 * step + 1_001 * kind + rank)
        for rank in (0, 1)
        for step in (0, 1)
        for kind in range(4)
    ]
    kinds, lane, step, start = zip(*rows, strict=True)
    category = (HOST, RUNTIME, KERNEL, COLLECTIVE)
    return Operators.of(
        names=names,
        name_E=kinds,
        category_E=[category[kind] for kind in kinds],
        lanes=lanes,
        lane_E=lane,
        start_ns_E=start,
        end_ns_E=[at + 1_000 for at in start],
        step_E=step,
        correlation_E=[10 + at if kind in (1, 2) else -1 for kind, at in zip(kinds, step, strict=True)],
        groups=("world",),
        group_E=[0 if kind == 3 else -1 for kind in kinds],
        sequence_E=[at if kind == 3 else -1 for kind, at in zip(kinds, step, strict=True)],
    )


def opened(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def spans(document: dict[str, Any], thread: int) -> list[tuple[str, float, float]]:
    return [
        (event["name"], event["ts"], event["dur"])
        for event in document["traceEvents"]
        if event["ph"] == "X" and event["tid"] == thread
    ]


def test_every_rank_is_a_file_and_the_manifest_comes_first_and_names_its_node(tmp_path: Path) -> None:
    write_perfetto(events(), RANKS, tmp_path / "slice.zip")
    files = opened(tmp_path / "slice.zip")
    assert list(files) == [MANIFEST, "rank00000.json", "rank00001.json"]
    manifest = files[MANIFEST]["perfetto_manifest"]
    assert manifest["version"] == 1
    assert [(each["path"], each["machine"]["name"]) for each in manifest["files"]] == [
        ("rank00000.json", "node 0 (a)"),
        ("rank00001.json", 'node 1 (b"</script>)'),
    ]


def test_times_count_from_the_first_event_of_any_rank_to_the_nanosecond(tmp_path: Path) -> None:
    write_perfetto(events(), RANKS, tmp_path / "slice.zip")
    first, second = (opened(tmp_path / "slice.zip")[f"rank0000{rank}.json"] for rank in (0, 1))
    assert first["baseTimeNanoseconds"] == LATE
    assert spans(first, 1)[:3] == [("matmul", 0, 1), ("launch", 1.001, 1), ("all_reduce", 3.003, 1)]
    assert spans(second, 3)[0] == ("matmul", 0.001, 1)
    assert spans(first, 0) == [("step 0", 0, 4.003), ("step 1", 10, 4.003)]


def test_an_arrow_leads_from_a_launch_to_its_kernel_and_to_no_other_ranks(tmp_path: Path) -> None:
    write_perfetto(events(), RANKS, tmp_path / "slice.zip")
    files = opened(tmp_path / "slice.zip")
    for rank, host, device in ((0, 1, 2), (1, 3, 4)):
        drawn = files[f"rank0000{rank}.json"]["traceEvents"]
        arrows = [(each["ph"], each["tid"], each["id"]) for each in drawn if each["ph"] in "sf"]
        first = rank << 32
        assert sorted(arrows) == [
            ("f", device, first), ("f", device, first + 1), ("s", host, first), ("s", host, first + 1)
        ]  # fmt: skip


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """Two windows; the first has events of its own."""
    root = tmp_path / "packets"
    for number in (0, 1):
        made = window_of([[[5, 7], [6, 9]], [[2, 3], [4, 1]]], window=number)
        write_packet(made, packet_path(root, "run", number))
    write_operators(events(), "run", 0, operators_path(root, "run", 0))
    return root


def export(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["export", "perfetto", *map(str, arguments)])


def test_some_steps_of_some_ranks_are_exported(packets: Path, tmp_path: Path) -> None:
    done = export(packets, "--window", "run/0", "--step", 1, "--rank", 1, "-o", tmp_path / "slice.zip")
    assert done.exit_code == 0, done.output
    files = opened(tmp_path / "slice.zip")
    assert list(files) == [MANIFEST, "rank00001.json"]
    assert [name for name, _, _ in spans(files["rank00001.json"], 0)] == ["step 1"]
    assert "4 events of 1 rank" in done.output


def test_without_events_stages_are_shown_with_a_note(packets: Path, tmp_path: Path) -> None:
    done = export(packets, "--window", "run/1", "-o", tmp_path / "slice.zip")
    assert done.exit_code == 0, done.output
    assert "No operator trace for this window" in done.output
    document = opened(tmp_path / "slice.zip")["rank00000.json"]
    assert "laid end to end" in document["note"]
    assert len(spans(document, 1)) == 4


def test_a_missing_item_is_reported_with_those_that_exist(packets: Path, tmp_path: Path) -> None:
    out = tmp_path / "slice.zip"
    for arguments, message in (
        ((), "run/0, run/1"),
        (("--window", "run/7"), "no window run/7"),
        (("--window", "run/0", "--step", 9), "has steps 0–1"),
    ):
        done = export(packets, *arguments, "-o", out)
        assert done.exit_code != 0
        assert message in str(done.exception), done.output
    assert not out.exists()


def test_an_archive_is_made_rank_by_rank_as_it_is_read() -> None:
    chunks = perfetto_chunks(events(), RANKS)
    first = next(chunks)
    assert b"rank00000.json" in first
    assert b"rank00001.json" not in first
    with zipfile.ZipFile(io.BytesIO(first + b"".join(chunks))) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [MANIFEST, "rank00000.json", "rank00001.json"]


def test_a_large_rank_comes_in_several_parts() -> None:
    count = 120_000
    many = Operators.of(
        names=tuple(f"operator {number}" for number in range(count)),
        name_E=range(count),
        category_E=[HOST] * count,
        lanes=[Lane(0, "thread 1", False)],
        lane_E=[0] * count,
        start_ns_E=[7919 * number for number in range(count)],
        end_ns_E=[7919 * number + 1 for number in range(count)],
    )
    assert len(list(perfetto_chunks(many, RANKS))) > 3


@pytest.mark.parametrize(("ranks", "events"), [(2_049, 10), (2, 1_000_001)])
def test_an_archive_that_no_viewer_opens_is_refused_with_what_to_do(ranks: int, events: int) -> None:
    with pytest.raises(TraceError, match="choose some with ranks=3,5 and step=12"):
        check_size(ranks, events)
    check_size(2_048, 1_000_000)


def test_steps_are_exported_without_a_look_at_all_events_for_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = 300
    start = [1_000 * at for at in range(count)]
    found = Operators.of(
        names=("a",),
        name_E=[0] * count,
        category_E=[HOST] * count,
        lanes=[Lane(0, "thread 1", False)],
        lane_E=[0] * count,
        start_ns_E=start,
        end_ns_E=[at + 500 for at in start],
        step_E=[(1 << 40) - at for at in range(count - 1)] + [-1],  # the last one belongs to none
    )
    looked: list[Operators] = []

    def select(whole: Operators, _: object) -> Operators:
        looked.append(whole)
        return whole

    monkeypatch.setattr(Operators, "select", select)
    write_perfetto(found, RANKS, tmp_path / "out.zip")
    steps = spans(opened(tmp_path / "out.zip")["rank00000.json"], 0)
    assert len(steps) == count - 1
    assert steps[-1] == (f"step {1 << 40}", 0.0, 0.5)
    assert len(looked) < 3
