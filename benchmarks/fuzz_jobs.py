"""Valid inputs of the parsers of a job's evidence, stacks and standstills, and the calls that read them.

What is read goes on to what is made of it: a verdict, sentences, JSON.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.fuzzed_parser import FuzzedParser, read_file
from sfapp.accounting import diagnose, rolling_verdict
from sfapp.importers import ImportOptions
from sfapp.importers.recorded_calls import read_calls
from sfapp.metrics.sample_files import SampleFileHeader, file_bytes, read_segment
from sfapp.model import RankIdentity, SideChannel, Window
from sfapp.model.host_evidence import EVIDENCE_KINDS, evidence_channels
from sfapp.model.live_rows import LiveRank, LiveRows
from sfapp.model.samples import LinkSample, StandstillSample
from sfapp.model.stacks import RankStacks, StackFrame, ThreadStack
from sfapp.model.standstill import RankGroup, RollCall, parse_roll_call
from sfapp.operators.hang import find_hang
from sfapp.operators.stacks import merge_stacks
from sfapp.packets import read_packet
from sfapp.packets.captures import ask_for_capture, new_stacks_request, read_request
from sfapp.packets.faults import Faults
from sfapp.packets.host_files import block_io_ns, pressure_ns, runnable_ns, throttled_ns
from sfapp.packets.manifest import check_attributes, check_layout, check_manifest, decode_manifest
from sfapp.packets.newest_steps import read_newest_steps, write_newest_steps
from sfapp.packets.stack_files import decode_stacks, encode_stacks
from sfapp.packets.stack_signal import parse_dump
from sfapp.service.standstills import Standstill
from sfapp.views.text.hang import hang_text
from sfapp.views.text.host_evidence import reason_sentences
from sfapp.views.text.stacks import stacks_text

SAMPLE = Path(__file__).parents[1] / "sample_data" / "packets" / "gpt-small-ddp" / "00000002.parquet"
NOW = datetime(2026, 11, 26, tzinfo=UTC)


@cache
def _window() -> Window:
    """Return the first ranks and steps of a window with a late rank."""
    window = read_packet(SAMPLE).window
    ranks, steps = list(range(4)), slice(0, 8)
    duration_SNR = np.ascontiguousarray(window.duration_SNR[:, steps, :4])
    duration_SNR[1, :, 2] += 60_000_000
    return replace(
        window,
        manifest=replace(window.manifest, world_size=4),
        duration_SNR=duration_SNR,
        wall_NR=duration_SNR.sum(axis=0),
        step_N=window.step_N[steps],
        ranks=window.ranks.select(ranks),
        side={},
        waits={},
    )


def _manifests_of_jobs() -> list[bytes]:
    window = _window()
    layout: dict[str, tuple[int, ...]] = {"dp": (0, 0, 1, 1), "pp": (0, 1, 0, 1)}
    attributes: dict[str, tuple[str, ...]] = {"kernel": ("6.8",) * 3 + ("6.5",), "image": ("train:7",)}
    extra: dict[str, Any] = {
        "periods": {"checkpoint": 500},
        "num_workers": 4,
        "host_evidence": {"recorded": []},
    }
    whole = replace(window.manifest, layout=layout, attributes=attributes, extra=extra)
    roles = replace(whole, accumulation=replace(whole.accumulation, factor=8, ordered=False))
    return [msgspec.json.encode(manifest) for manifest in (whole, roles)]


def _judge_manifest(data: bytes, folder: Path) -> None:
    """Judge the same rows under a manifest."""
    manifest, faults, window = decode_manifest(data), Faults(), _window()
    check_manifest(manifest, faults)
    check_layout(manifest.layout or {}, 4, faults)
    check_attributes(manifest.attributes or {}, 4, faults)
    if faults.found:
        return
    ranks = replace(
        window.ranks,
        layout=manifest.layout or {},
        attributes={
            name: values * 4 if len(values) == 1 else values
            for name, values in (manifest.attributes or {}).items()
        },
    )
    _judge(replace(window, manifest=replace(manifest, layout=None, attributes=None), ranks=ranks))


def _judge(window: Window) -> None:
    diagnosis = diagnose(window)
    msgspec.json.encode(diagnosis.document())
    reason_sentences(diagnosis)


@cache
def _channels() -> Sequence[str]:
    return evidence_channels(EVIDENCE_KINDS, _window().stages)


def _evidence() -> list[bytes]:
    randoms = np.random.default_rng(0)
    return [randoms.exponential(3.0, (len(_channels()), 8, 4)).tobytes()]


def _judge_evidence(data: bytes, folder: Path) -> None:
    """Judge the same rows with these values as evidence; packets hold no infinite ones."""
    count = len(_channels()) * 32
    values = np.resize(np.frombuffer(data[: len(data) // 8 * 8] or bytes(8)), count).copy()
    values[np.isinf(values)] = np.nan
    planes = zip(_channels(), values.reshape(-1, 8, 4), strict=True)
    side = {name: SideChannel(plane, np.ones((8, 4), dtype=bool)) for name, plane in planes}
    _judge(replace(_window(), side=side))


def _roll_calls() -> list[bytes]:
    groups = (
        RankGroup(spans=((3, 3),), state="lock", holds=True, step=7, stage="data.next_wait", still_s=40.0),
        RankGroup(
            spans=((0, 2), (4, 7)), state="collective", step=7, stage="b", call="all_reduce", group="tp"
        ),
        RankGroup(spans=((8, 9),), state="absent", has_place=False),
    )
    roll = RollCall(
        kind="rank", certainty="shown", step=7, idle_s=41.0, limit_s=30.0, world_size=10, groups=groups
    )
    other = msgspec.structs.replace(roll, kind="together", certainty="possible", groups=groups[1:])
    return [msgspec.json.encode(each) for each in (roll, other)]


def _read_roll_call(data: bytes, folder: Path) -> None:
    roll = parse_roll_call(data.decode(errors="replace"))
    if roll is not None:
        found = Standstill("run", roll, NOW, NOW, has_ended=False)
        msgspec.json.encode(found.document())
        msgspec.json.encode(found.problem())


def _stacks() -> list[bytes]:
    frames = (StackFrame("/job/data.py", "load", 7), StackFrame("/job/train.py", "step", 41))
    threads = ThreadStack("MainThread", frames, True), ThreadStack("loader", frames[:1]), ThreadStack("", ())
    return [encode_stacks(RankStacks(rank=3, taken_at=NOW, source="signal", threads=threads))]


def _read_stacks(data: bytes, folder: Path) -> None:
    merged = merge_stacks([decode_stacks(data), decode_stacks(_stacks()[0])], all_threads=True)
    stacks_text(merged, (), "title")


def _signal_dumps() -> list[bytes]:
    thread = '  File "/job/a.py", line 7 in load\n  File "b.py", line ??? in f\n'
    return [
        f"Thread 0x00aa [main] (most recent call first):\n{thread}\n"
        f"Current thread 0x00bb (most recent call first):\n{thread}".encode()
    ]


def _read_dump(data: bytes, folder: Path) -> None:
    stacks = RankStacks(
        rank=0, taken_at=NOW, source="signal", threads=parse_dump(data.decode(errors="replace"), 0xAA)
    )
    decode_stacks(encode_stacks(stacks))


def _requests() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        request = replace(new_stacks_request("run", range(8), reason="slow"), id="a", asked_at=NOW)
        return [ask_for_capture(Path(folder), request).read_bytes()]


def _newest_steps() -> list[bytes]:
    window = _window()
    planes = np.concatenate((window.wall_NR[None], window.duration_SNR))
    ranks = [
        LiveRank(
            RankIdentity(rank, rank, 0, "host"),
            window.stages,
            np.column_stack([window.step_N, planes[:, :, rank].T]),
            0.1,
            0.1,
        )
        for rank in range(4)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "newest.steps"
        write_newest_steps(path, LiveRows("run", 7 * 10**18, 5, tuple(ranks)))
        return [path.read_bytes()]


def _samples() -> list[bytes]:
    link = LinkSample(
        at_ns=1, node_rank=0, rank=0, local_rank=0, hostname="h", world_size=2, silent_s=0.1, step=7,
        stage="data", call="all_reduce", still_s=3.0, process="S",
    )  # fmt: skip
    standing = StandstillSample(
        at_ns=2,
        node_rank=0,
        step=7,
        began_ns=1,
        limit_s=30.0,
        has_ended=False,
        roll_call=_roll_calls()[0].decode(),
    )
    return [file_bytes(SampleFileHeader(version=1, run_id="run", every_s=1), (link, standing))]


def _host_files() -> list[bytes]:
    return [
        b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=5\n",
        b"usage_usec 5\nnr_throttled 3\nthrottled_usec 77\n",
        b"123 456 7\n",
        b"7 (a (b) c) S " + b" ".join(b"%d" % number for number in range(50)) + b"\n",
    ]


def _read_host_file(data: bytes, folder: Path) -> None:
    for parse in (pressure_ns, throttled_ns, runnable_ns, block_io_ns):
        try:
            parse(data)
        except (ValueError, IndexError):
            continue


def _dumps() -> list[bytes]:
    entries = [
        {
            "pg_id": 0, "process_group": ["0", "default"], "collective_seq_id": number, "p2p_seq_id": number,
            "profiling_name": name, "time_created_ns": number, "input_sizes": [[4]], "output_sizes": [[4]],
            "input_dtypes": ["float"], "state": "scheduled", "retired": False, "is_p2p": "send" in name,
        }
        for number, name in enumerate(["nccl:all_reduce", "nccl:_all_gather_base", "nccl:send 1->0"])
    ]  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default", "ranks": "[0, 1]"}}
    status = {"0": {"last_enqueued_collective": 2, "last_completed_collective": 0}}
    dump = {"version": "2.4", "pg_config": groups, "entries": entries, "pg_status": status}
    return [json.dumps(dump).encode(), pickle.dumps(dump)]


def _read_hang(data: bytes, folder: Path) -> None:
    for name, content in (("rank_0", _dumps()[0]), ("rank_1", data)):
        (folder / name).write_bytes(content)
    job, _, _ = read_calls([folder / "rank_0", folder / "rank_1"], ImportOptions())
    list(hang_text(find_hang(job)))


JOB_PARSERS: dict[str, FuzzedParser] = {
    "manifests to verdicts": FuzzedParser(_manifests_of_jobs, _judge_manifest, mutants=60),
    "evidence to verdicts": FuzzedParser(_evidence, _judge_evidence, mutants=30),
    "roll-calls": FuzzedParser(_roll_calls, _read_roll_call, ()),
    "stacks": FuzzedParser(_stacks, _read_stacks),
    "stacks from signals": FuzzedParser(_signal_dumps, _read_dump, ()),
    "requests": FuzzedParser(_requests, partial(read_file, read_request, "a.json")),
    "newest steps": FuzzedParser(
        _newest_steps,
        partial(read_file, lambda path: rolling_verdict(read_newest_steps(path)), "newest.steps"),
        mutants=100,
    ),
    "samples": FuzzedParser(_samples, partial(read_file, read_segment, "20260101T000000Z.jsonl")),
    "host files": FuzzedParser(_host_files, _read_host_file, ()),
    "dumps of a hang": FuzzedParser(_dumps, _read_hang),
}
