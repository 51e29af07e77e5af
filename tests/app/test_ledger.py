"""The pages' view of the log: kept in memory, followed whoever wrote, told when it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.app.ledger import Ledger
from sfapp.errors import IncidentError
from sfapp.incidents import Author, Book, IncidentLog


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(IncidentLog.beside(tmp_path))


async def test_what_is_written_is_in_the_book_at_once_and_told_once(ledger: Ledger) -> None:
    heard: list[Book] = []
    ledger.changed.subscribe(heard.append, unsubscribe_on_delete=False)
    (written,) = await ledger.write("Ada", lambda author: [author.write_note("Here.")])
    assert ledger.book.note(written).written.by == "Ada"
    # Looked at again, nothing has changed
    assert await ledger.current() is ledger.book
    assert heard == [ledger.book]


async def test_what_others_write_is_read_on_and_a_deleted_log_is_empty(ledger: Ledger) -> None:
    Author(IncidentLog(ledger.log.path), "Grace").write_note("There.")
    assert [note.text for note in (await ledger.current()).notes] == ["There."]
    ledger.log.path.unlink()
    assert (await ledger.current()).notes == ()


async def test_a_log_that_cannot_be_read_leaves_the_book_as_it_was_and_says_why(ledger: Ledger) -> None:
    await ledger.write("Ada", lambda author: [author.write_note("Here.")])
    ledger.log.path.unlink()
    ledger.log.path.mkdir()
    book = await ledger.current()
    assert [note.text for note in book.notes] == ["Here."]
    assert "cannot be read" in ledger.problem
    with pytest.raises(IncidentError, match="cannot be written"):
        await ledger.write("Ada", lambda author: [author.write_note("Lost?")])
    # And once it can be read again, nothing is in the way any more
    ledger.log.path.rmdir()
    await ledger.current()
    assert ledger.problem == ""
