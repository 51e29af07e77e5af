"""What pages ask: filters, orders, pages."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.store import SORTABLE, Store, WindowQuery, window_queries
from tests.store.jobs import SLOW, SLOWER, numbers, put, put_part, window


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    """Two runs of six windows; in run a the third waits for data, the fifth for a callback."""
    root = tmp_path_factory.mktemp("packets")
    slow = {2: SLOW, 4: SLOWER}
    for number in range(6):
        started = f"2026-11-21T1{number}:00:00Z"
        put(root, window("a", number, extra=slow.get(number), started_at=started, ended_at=started))
        put(root, window("b", number, started_at="2026-11-20T09:00:00+09:00", ended_at="gibberish"))
    put_part(root, window("parts", 0), 1)
    with Store.open([root], memory=True) as store:
        store.ingest()
        yield store


def test_the_worst_window_comes_first(store: Store) -> None:
    page = store.windows(WindowQuery(run="a"))
    assert page.total == 6
    assert [row["window"] for row in page.rows[:2]] == [4, 2]
    assert page.rows[0]["aim_stage"] == "callbacks.cpu_wall"
    assert page.rows[0]["culprit_kind"] == "chronic"
    assert page.rows[0]["leader_hostname"] == "node-0"
    assert sum(page.rows[0]["shares"].values()) == pytest.approx(1)


def test_a_window_that_lacks_data_comes_before_all_others(store: Store) -> None:
    # Given a part of a window whose other ranks never reported, with no delay among those that did
    (lost,) = store.windows(WindowQuery(run="parts")).rows
    assert lost["lacks_data"]
    assert not lost["needs_attention"]
    # Then it is the first of all, among those that need attention, and not among the healthy ones
    assert store.windows(WindowQuery()).rows[0] == lost
    assert store.windows(WindowQuery(needs_attention=True)).rows[0] == lost
    assert lost not in store.windows(WindowQuery(needs_attention=False)).rows


def test_a_page_is_a_slice_of_the_whole(store: Store) -> None:
    everything = store.windows(WindowQuery(run="b", sort=(("window", "desc"),))).rows
    page = store.windows(WindowQuery(run="b", sort=(("window", "desc"),), offset=2, limit=3))
    assert page.rows == everything[2:5]
    assert page.total == 6
    assert store.windows(WindowQuery(offset=100)).rows == []


def test_all_windows_that_match_are_read_a_part_at_a_time_and_in_order(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    # Given parts of five windows
    monkeypatch.setattr(window_queries, "_ROWS_OF_A_PART", 5)
    for query in (WindowQuery(), WindowQuery(run="b", sort=(("window", "desc"),)), WindowQuery(run="absent")):
        # When every window is read
        parts = list(store.window_parts(query))
        # Then no part is larger, and together they are the whole list
        assert all(len(part) <= 5 for part in parts)
        assert [row for part in parts for row in part] == store.windows(query).rows


def test_a_wrong_order_is_refused_before_the_first_part(store: Store) -> None:
    with pytest.raises(StoreError, match="cannot be sorted by 'colour'"):
        store.window_parts(WindowQuery(sort=(("colour", "asc"),)))


def test_filters_narrow_and_combine(store: Store) -> None:
    assert numbers(store, run="a", min_severity=0.3) == [2, 4]
    assert numbers(store, stage="callbacks.cpu_wall", min_severity=0.3) == [4]
    assert numbers(store, label="telemetry_limited") == [0]
    assert store.windows(WindowQuery(label="telemetry_limited")).rows[0]["run_id"] == "parts"
    assert numbers(store, text="CALLBACKS") == [4]
    assert numbers(store, text="100%_") == []
    assert numbers(store, text="Incomplete data") == numbers(store, label="telemetry_limited") == [0]
    assert numbers(store, run="absent") == []


@pytest.mark.parametrize("column", SORTABLE)
def test_every_column_sorts_both_ways_with_absent_values_last(store: Store, column: str) -> None:
    for direction in ("asc", "desc"):
        rows = store.windows(WindowQuery(sort=((column, direction),))).rows
        assert len(rows) == 13
        values = [row[column] for row in rows]
        known = [value for value in values if value is not None]
        assert values == known + [None] * (len(values) - len(known))
        assert known == sorted(known, reverse=direction == "desc")


def test_what_is_not_a_column_is_refused(store: Store) -> None:
    for column in ("diagnosis", "nothing", "severity; DROP TABLE windows", "1"):
        with pytest.raises(StoreError, match="cannot be sorted by"):
            store.windows(WindowQuery(sort=((column, "asc"),)))
    with pytest.raises(StoreError, match="'asc' or 'desc'"):
        store.windows(WindowQuery(sort=(("window", "asc, 1"),)))
    with pytest.raises(StoreError, match="negative"):
        store.windows(WindowQuery(offset=-1))


def test_times_are_utc_and_nonsense_is_no_time(store: Store) -> None:
    (row,) = store.windows(WindowQuery(run="b", limit=1)).rows
    assert row["started_at"] == datetime(2026, 11, 20, 0, 0, tzinfo=UTC)
    assert row["ended_at"] is None
    (summary,) = [run for run in store.runs() if run.run_id == "a"]
    assert summary.first_started_at == datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    newest = store.newest_packet_at()
    assert newest is not None
    assert abs((datetime.now(UTC) - newest).total_seconds()) < 600


def test_runs_are_summed_up(store: Store) -> None:
    by_id = {run.run_id: run for run in store.runs()}
    assert {name: run.windows for name, run in by_id.items()} == {"a": 6, "b": 6, "parts": 1}
    assert (by_id["a"].ranks, by_id["a"].nodes) == (4, 1)
    assert by_id["a"].worst_severity == store.windows(WindowQuery(run="a")).rows[0]["severity"]


def test_the_timeline_is_in_order_and_small(store: Store) -> None:
    rows = store.timeline(WindowQuery("a"))
    assert [row["window"] for row in rows] == list(range(6))
    assert set(rows[0]) == {
        "run_id", "window", "started_at", "ended_at", "first_step", "last_step", "step_time_ns", "shares",
        "label",
        "change",
        "severity",
        "needs_attention", "aim_stage", "aim_rank", "aim_hostname", "culprit_kind", "is_reference",
        "missing_ranks", "first_missing_rank", "lacks_data",
    }  # fmt: skip
    assert len(store.timeline()) == 13


def test_a_runs_diagnoses_are_those_of_its_windows_in_order(store: Store) -> None:
    assert store.diagnoses("a") == [store.diagnosis("a", number) for number in range(6)]
    with pytest.raises(WindowNotFoundError, match="no run 'absent'"):
        store.diagnoses("absent")


def test_windows_that_need_attention_are_found_with_those_next_to_them(store: Store) -> None:
    telling = [store.diagnosis("a", number) for number in range(1, 6)]
    numbers = list(store.telling_windows(["a"], 100)["a"])
    found = [one.decode().diagnosis for one in store.verdicts([("a", number) for number in numbers])]
    assert found == telling
    assert list(store.telling_windows(["a"], 2)["a"]) == numbers[-2:]
    assert store.telling_windows(["b", "no-such-run"], 100) == {}
    assert [*store.verdicts([("a", 99)]), *store.verdicts([])] == []


def test_ctrl_c_amid_a_query_is_no_error_of_the_store(tmp_path: Path) -> None:
    main = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    press = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    with Store.open([tmp_path], memory=True) as store:
        # DuckDB looks for signals between the parts of a query that this thread computes.
        store._database.rows("SET GLOBAL threads = 1")
        try:
            press.start()
            with pytest.raises(KeyboardInterrupt):
                store._database.rows("SELECT sum(hash(range)) FROM range(1_000_000_000_000)")
        finally:
            press.join()
            signal.signal(signal.SIGINT, before)
        assert store.runs() == []


def test_a_missing_window_or_run_is_reported(store: Store) -> None:
    with pytest.raises(WindowNotFoundError, match="run 'a' has no window 9; it has 6, from 0 to 5"):
        store.diagnosis("a", 9)
    with pytest.raises(WindowNotFoundError, match="no run 'absent'"):
        store.window("absent", 0)


def test_a_packet_deleted_meanwhile_is_reported(tmp_path: Path) -> None:
    path = put(tmp_path, window())
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        path.unlink()
        with pytest.raises(StoreError, match="removed or changed"):
            store.window("run", 0)
