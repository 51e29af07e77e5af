"""The pages' view of the log: kept in memory, following every writer, with a notice when it is unreadable."""

from __future__ import annotations

import asyncio
import fcntl
import threading
from pathlib import Path

import pytest

from sfapp.errors import IncidentError
from sfapp.incidents import IncidentEditor, IncidentLog, IncidentState
from sfapp.service import incidents
from sfapp.service.incidents import IncidentService


@pytest.fixture
def incident_service(tmp_path: Path) -> IncidentService:
    return IncidentService(IncidentLog.for_packets(tmp_path))


async def test_a_write_is_in_the_state_at_once_and_reported_once(
    incident_service: IncidentService,
) -> None:
    states: list[IncidentState] = []
    incident_service.changed.subscribe(states.append)
    (written,) = await incident_service.write("Ada", lambda author: [author.write_note("Here.")])
    assert incident_service.state.note(written).written.by == "Ada"
    # Looked at again, nothing has changed
    assert await incident_service.current() is incident_service.state
    assert states == [incident_service.state]


async def test_what_others_write_is_read_on_and_a_deleted_log_is_empty(
    incident_service: IncidentService,
) -> None:
    IncidentEditor(IncidentLog(incident_service.log.path), "Grace").write_note("There.")
    assert [note.text for note in (await incident_service.current()).notes] == ["There."]
    incident_service.log.path.unlink()
    assert (await incident_service.current()).notes == ()


async def test_an_unreadable_log_leaves_the_state_unchanged_and_gives_the_reason(
    incident_service: IncidentService,
) -> None:
    await incident_service.write("Ada", lambda author: [author.write_note("Here.")])
    incident_service.log.path.unlink()
    incident_service.log.path.mkdir()
    state = await incident_service.current()
    assert [note.text for note in state.notes] == ["Here."]
    assert "cannot be read" in incident_service.problem
    with pytest.raises(IncidentError, match="cannot be written"):
        await incident_service.write("Ada", lambda author: [author.write_note("Lost?")])
    # And once it can be read again, nothing is in the way any more
    incident_service.log.path.rmdir()
    await incident_service.current()
    assert incident_service.problem == ""


async def test_a_page_does_not_wait_for_a_log_that_takes_long_to_read(
    incident_service: IncidentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    IncidentEditor(IncidentLog(incident_service.log.path), "Grace").write_note("There.")
    can_read, read = threading.Event(), IncidentLog.state
    monkeypatch.setattr(IncidentLog, "state", lambda log: (can_read.wait(10), read(log))[1])
    monkeypatch.setattr(incidents, "PAGE_WAIT_S", 0.01)
    states: asyncio.Queue[IncidentState] = asyncio.Queue()
    incident_service.changed.subscribe(states.put_nowait)
    # When a page opens meanwhile, then it shows what is known, and why that is nothing
    assert (await incident_service.shown()).notes == ()
    assert "is still being read" in incident_service.problem
    # And what was read follows
    can_read.set()
    assert [note.text for note in (await asyncio.wait_for(states.get(), 10)).notes] == ["There."]
    assert incident_service.problem == ""
    assert await incident_service.shown() is incident_service.state


async def test_pages_do_not_wait_for_edits_of_a_log_that_another_process_keeps_locked(
    incident_service: IncidentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await incident_service.write("Ada", lambda author: [author.write_note("Here.")])
    monkeypatch.setattr("sfapp.incidents.log._LOCK_S", 2.0)
    with incident_service.log.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        edits = [
            asyncio.create_task(incident_service.write("Ada", lambda author: [author.write_note("There.")]))
            for _ in range(40)
        ]
        async with asyncio.timeout(1.0):
            await asyncio.sleep(0.1)
            assert [note.text for note in (await incident_service.shown()).notes] == ["Here."]
        refusals = await asyncio.gather(*edits, return_exceptions=True)
    assert all("another process has locked it" in str(refusal) for refusal in refusals)


class FailingLog(IncidentLog):
    """A log whose first signature fails as no file does."""

    failures = 1

    def signature(self) -> tuple[int, ...] | None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("out of threads")
        return super().signature()


async def test_the_log_is_watched_on_after_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "WATCH_PAUSE", 0.01)
    incident_service = IncidentService(FailingLog(tmp_path / "incidents.jsonl"))
    IncidentEditor(IncidentLog(incident_service.log.path), "Grace").write_note("There.")
    changed = asyncio.Event()
    incident_service.changed.subscribe(lambda _: changed.set())
    incident_service.start()
    await asyncio.wait_for(changed.wait(), 10)
    incident_service.stop()
    assert [note.text for note in incident_service.state.notes] == ["There."]
    assert incident_service.problem == ""
