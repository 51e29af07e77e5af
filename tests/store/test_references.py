"""Which window a run is compared with: measured, chosen, changed, gone."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from sfapp.accounting import healthy_in_run, pooled_reference, reference_of, with_reference
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.store import Store, WindowQuery, ingest, reference_choices
from sfapp.store.database import Cursor
from sfapp.store.reference_choices import ReferenceChoices
from sfapp.store.references import runs_to_compare
from tests.store.jobs import SLOW, SLOW_EVERYWHERE, SLOWER, put, put_run, window


def measured_reference(store: Store, run: str = "run") -> int | None:
    """Return the window that stands for what the accounting would pick from the stored diagnoses."""
    rows = store.windows(WindowQuery(run=run, limit=1000)).rows
    diagnoses = {row["window"]: store.diagnosis(run, row["window"]) for row in rows}
    healthy = healthy_in_run(diagnoses.values())
    if healthy is None:
        return None
    parts = [reference_of(diagnoses[number]) for number in healthy.windows]
    return pooled_reference(parts, healthy.noise).window


def compared_with(store: Store, run: str = "run") -> set[int | None]:
    """What the run's windows are compared with, by their rows and by their diagnoses."""
    rows = store.windows(WindowQuery(run=run, limit=1000)).rows
    stored = [store.diagnosis(run, row["window"]).reference for row in rows]
    return {row["reference_window"] for row in rows} | {found and found.window for found in stored}


def test_a_run_is_compared_with_its_fastest_complete_windows_after_the_first(tmp_path: Path) -> None:
    # given a first window that would be the fastest, a fast one with a rank missing, and healthy ones
    quick = window(number=0)
    put(tmp_path, quick)
    put(tmp_path, window(number=1, world_size=5, missing_ranks=(4,)))
    for number in range(2, 8):
        put(tmp_path, window(number=number, extra=SLOW if number == 4 else None))
    with Store.open([tmp_path]) as store:
        store.ingest()
        expected = measured_reference(store)
        assert expected in {2, 3, 5, 6, 7}
        assert compared_with(store) == {expected}
        reference = store.reference("run")
        assert reference is not None
        assert reference.window == expected
        assert set(reference.windows) <= {2, 3, 5, 6, 7}
        rows = {row["window"]: row for row in store.windows().rows}
        compared = sorted(number for number, row in rows.items() if row["is_reference"])
        assert compared == list(reference.windows)
        assert [number for number in sorted(rows) if not rows[number]["complete"]] == [1]
        assert rows[4]["change"] > 0.5
        assert (rows[4]["aim_stage"], rows[4]["aim_basis"]) == ("data.next_wait", "delta")


def test_a_lone_window_has_no_reference(tmp_path: Path) -> None:
    put(tmp_path, window())
    with Store.open([tmp_path]) as store:
        store.ingest()
        assert store.reference("run") is None
        assert store.runs()[0].reference_window is None


def test_a_healthier_window_that_arrives_becomes_the_reference_of_all(tmp_path: Path) -> None:
    # given a run in which all windows so far are slow
    for number in range(4):
        put(tmp_path, window(number=number, extra=SLOW_EVERYWHERE))
    with Store.open([tmp_path]) as store:
        store.ingest()
        before = compared_with(store)
        assert before <= {1, 2, 3}
        generation = store.generation
        # when a healthy one arrives
        put(tmp_path, window(number=4))
        store.ingest()
        # then the others turn out to be slow, without their packets being read again
        assert compared_with(store) == {4}
        assert store.generation > generation
        changes = {row["window"]: row["change"] for row in store.windows().rows}
        assert all(changes[number] > 0.3 for number in range(4))
        # and when it goes, all is as it was
        (tmp_path / "run" / "00000004.parquet").unlink()
        store.ingest()
        assert compared_with(store) == before


def test_a_reference_is_measured_again_when_its_packet_changes(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        first = store.runs()[0].reference_window
        assert first is not None
        put(tmp_path, window(number=first, extra=SLOWER))
        store.ingest()
        assert compared_with(store) == {measured_reference(store)}
        assert store.runs()[0].reference_window not in {None, first}


def test_a_first_window_that_comes_late_frees_the_one_that_was_first(tmp_path: Path) -> None:
    for number in range(1, 4):
        put(tmp_path, window(number=number, extra=SLOW if number > 1 else None))
    with Store.open([tmp_path]) as store:
        store.ingest()
        assert compared_with(store) <= {2, 3}
        put(tmp_path, window(number=0))
        store.ingest()
        assert compared_with(store) == {1}


def test_a_reference_can_be_chosen_by_hand(tmp_path: Path) -> None:
    put_run(tmp_path)
    put_run(tmp_path, "other")
    with Store.open([tmp_path]) as store:
        store.ingest()
        measured = store.runs()[0].reference_window
        alone = store.diagnosis("run", 3)
        generation = store.generation
        # when the slow window is chosen
        store.set_reference("run", 2)
        # then everything in that run, and in no other, is compared with it
        assert compared_with(store) == {2}
        assert compared_with(store, "other") == {measured}
        assert store.generation > generation
        diagnosis = store.diagnosis("run", 3)
        assert diagnosis == with_reference(alone, store.reference("run"))
        assert diagnosis.change is not None
        assert diagnosis.change < 0
        (run,) = [run for run in store.runs() if run.run_id == "run"]
        assert (run.reference_window, run.reference_chosen) == (2, True)
        # a later packet does not change that
        put(tmp_path, window(number=9))
        store.ingest()
        assert compared_with(store) == {2}
    # nor does opening the store again
    with Store.open([tmp_path]) as store:
        assert store.ingest().changed is False
        assert compared_with(store) == {2}
        store.set_reference("run", None)
        assert compared_with(store) == {measured_reference(store)}


def test_no_window_is_compared_with_windows_that_are_gone(tmp_path: Path) -> None:
    # given a run of which only a window that cannot be compared with another remains
    paths = put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        assert compared_with(store) != {None}
        for path in paths[:-1]:
            path.unlink()
        store.ingest()
        assert store.runs()[0].reference_window is None
        assert compared_with(store) == {None}
        # when that goes too, and the run is recorded again under its name
        paths[-1].unlink()
        store.ingest()
        put(tmp_path, window(number=0, extra=SLOW_EVERYWHERE))
        store.ingest()
        # then its first window is compared with none of the recording before
        assert compared_with(store) == {None}
        assert store.windows().rows[0]["change"] is None


def test_a_run_recorded_again_while_no_store_is_open_is_compared_with_itself(tmp_path: Path) -> None:
    paths = put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
    for path in paths:
        path.unlink()
    put(tmp_path, window(number=0, extra=SLOW_EVERYWHERE))
    with Store.open([tmp_path]) as store:
        store.ingest()
        assert compared_with(store) == {None}
        put(tmp_path, window(number=1, extra=SLOW_EVERYWHERE))
        store.ingest()
        assert compared_with(store) == {1}


def test_a_chosen_window_that_goes_is_waited_for(tmp_path: Path) -> None:
    slow = put_run(tmp_path)[2]
    with Store.open([tmp_path]) as store:
        store.ingest()
        measured = store.runs()[0].reference_window
        store.set_reference("run", 2)
        kept = slow.read_bytes()
        slow.unlink()
        store.ingest()
        assert compared_with(store) == {measured}
        generation = store.generation
        store.ingest()
        assert store.generation == generation
        slow.write_bytes(kept)
        store.ingest()
        assert compared_with(store) == {2}


def test_windows_of_an_unchanged_store_are_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[list[str]] = []

    def look(cursor: Cursor, chosen: ReferenceChoices) -> list[str]:
        looks.append(runs_to_compare(cursor, chosen))
        return looks[-1]

    monkeypatch.setattr(ingest, "runs_to_compare", look)
    put_run(tmp_path, count=4)
    for _ in range(3):
        with Store.open([tmp_path]) as store:
            store.ingest()
            store.ingest()
        assert len(looks) == 1  # Of the first ingest.
    with Store.open([tmp_path]) as store:
        put(tmp_path, window(number=4))
        store.ingest()
    assert len(looks) == 2


def test_a_window_that_came_before_a_process_was_stopped_is_compared_by_the_next(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path, window(number=number, extra=SLOW))
    with Store.open([tmp_path]) as store:
        store.ingest()
    put(tmp_path, window(number=4))
    stopped = threading.Event()
    with Store.open([tmp_path]) as store:
        store.ingest(lambda progress: stopped.set(), stopped)
        assert len(store.windows().rows) == 5
        assert compared_with(store) != {4}
    with Store.open([tmp_path]) as store:
        store.ingest()
        assert compared_with(store) == {4}


def test_a_choice_that_was_saved_while_no_store_was_open_counts(tmp_path: Path) -> None:
    put_run(tmp_path, count=4)
    with Store.open([tmp_path]) as store:
        store.ingest()
        store.set_reference("run", 3)
        (choices,) = (tmp_path / ".sfapp").glob("*.references.json")
        kept = choices.read_bytes()
        store.set_reference("run", None)
        measured = compared_with(store)
        store.ingest()
    choices.write_bytes(kept)
    with Store.open([tmp_path]) as store:
        assert compared_with(store) == measured
        store.ingest()
        assert compared_with(store) == {3}


def test_a_window_that_is_not_there_cannot_be_chosen(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        with pytest.raises(WindowNotFoundError, match="no window 77"):
            store.set_reference("run", 77)
        with pytest.raises(WindowNotFoundError, match="no run 'absent'"):
            store.set_reference("absent", 0)


@pytest.mark.parametrize(
    "references",
    [{"run": 2**64 - 1}, {"run": 10**23}, {"run": -1}, {f"run {index}": 1 for index in range(2**16 + 1)}],
    ids=["beyond a BIGINT", "beyond a machine word", "negative", "too many runs"],
)
def test_choices_that_no_store_can_hold_are_refused_by_name(
    tmp_path: Path, references: dict[str, int]
) -> None:
    put_run(tmp_path)
    choices = tmp_path / ".sfapp" / "store.references.json"
    choices.parent.mkdir()
    choices.write_text(json.dumps({"format": 1, "references": references}))
    with pytest.raises(StoreError, match=r"store\.references\.json.*fix it"):
        Store.open([tmp_path])


def test_no_more_choices_are_saved_than_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_run(tmp_path)
    put_run(tmp_path, "other")
    monkeypatch.setattr(reference_choices, "_MOST_RUNS", 1)
    with Store.open([tmp_path]) as store:
        store.ingest()
        store.set_reference("run", 2)
        with pytest.raises(StoreError, match=r"store\.references\.json holds the references of 1 run"):
            store.set_reference("other", 2)
        store.set_reference("run", 3)
        assert compared_with(store) == {3}


def test_a_store_in_memory_follows_what_is_chosen_next_to_the_packets(tmp_path: Path) -> None:
    put_run(tmp_path)
    choices = tmp_path / ".sfapp" / "store.references.json"
    with Store.open([tmp_path]) as app:
        app.ingest()
        app.set_reference("run", 2)
        # given another process with a store in memory, such as sfapp watch
        with Store.open([tmp_path], memory=True) as store:
            store.ingest()
            assert compared_with(store) == {2}
            app.set_reference("run", 3)
            store.ingest()
            assert compared_with(store) == {3}
            # when nothing can be read there for a while, the last choices stay
            choices.rename(tmp_path / "elsewhere")
            store.ingest()
            choices.write_text("{half")
            store.ingest()
            assert compared_with(store) == {3}
            (tmp_path / "elsewhere").rename(choices)
            # when this process chooses, it changes nothing for others, nor they for it
            store.set_reference("run", 4)
            assert json.loads(choices.read_text())["references"] == {"run": 3}
            app.set_reference("run", None)
            store.ingest()
            assert compared_with(store) == {4}


def test_choices_of_another_user_that_may_not_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(path: Path, most: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    put_run(tmp_path)
    monkeypatch.setattr(reference_choices, "read_regular", refused)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        assert compared_with(store) == {measured_reference(store)}
    assert caplog.messages == [
        f"{tmp_path / '.sfapp' / 'store.references.json'} may not be read: its references do not count"
    ]
    with pytest.raises(StoreError, match=r"store\.references\.json.*fix it"):
        Store.open([tmp_path])


def test_a_folder_that_cannot_be_looked_into_has_no_choices_for_another(tmp_path: Path) -> None:
    put_run(tmp_path)
    with Store.open([tmp_path]) as store:
        store.ingest()
        store.set_reference("run", 2)
    # The system refuses the path of a file in it, as it does in a folder of another user
    below = tmp_path / "/".join(["x" * 100] * 40)
    below = Path(str(below)[:4080])
    below.mkdir(parents=True)
    choices = reference_choices.ReferenceChoices.next_to_any([below, tmp_path])
    assert choices.windows == {"run": 2}
