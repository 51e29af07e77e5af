"""A store of packets and datasets says of a window the same, whichever of them holds it and came first."""

from __future__ import annotations

from pathlib import Path

from sfapp.store import Store, ingest_to_dataset
from tests.store.jobs import SLOW, put, put_run, window


def compared(store: Store) -> dict[int, tuple[int | None, float | None]]:
    """What each window of the only run is compared with, and its change."""
    return {row["window"]: (row["reference_window"], row["change"]) for row in store.windows().rows}


def compared_anew(*roots: Path) -> dict[int, tuple[int | None, float | None]]:
    with Store.open(roots, memory=True) as store:
        store.ingest()
        return compared(store)


def test_a_window_taken_from_a_dataset_without_reference_is_compared_with_its_run(tmp_path: Path) -> None:
    # given a dataset that was written when its run had one window, and a run that went on
    packets, target = tmp_path / "packets", tmp_path / "verdicts"
    first = put(packets, window(number=0))
    ingest_to_dataset([packets], target)
    put_run(packets)
    with Store.open([packets, target], memory=True) as store:
        store.ingest()
        reference = store.runs()[0].reference_window
        # when the packet goes whose verdict is in the dataset
        first.unlink()
        store.ingest()
        # then its window is compared with the same as the others, as in a new store
        assert reference is not None
        assert {found for found, _ in compared(store).values()} == {reference}
        assert compared(store) == compared_anew(packets, target)


def test_datasets_of_a_run_with_and_without_reference_are_read_together(tmp_path: Path) -> None:
    # given a window with a missing rank that was put into a dataset alone, and the other ones in another
    packets, alone, others = tmp_path / "packets", tmp_path / "alone", tmp_path / "others"
    put_run(packets)
    partial = put(packets, window(number=2, extra=SLOW, world_size=5, missing_ranks=(4,)))
    ingest_to_dataset([partial], alone)
    partial.unlink()
    ingest_to_dataset([packets], others)
    # when both are read
    found = compared_anew(alone, others)
    # then it is compared, too
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert len({reference for reference, _ in found.values()}) == 1
    assert found[2][1] is not None
    assert found[2][1] > 0.5
