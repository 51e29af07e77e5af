"""Remember that all windows are aligned and compared, so that no pass looks at each of them again."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from sfapp.store.database import SETTLED, Database
from sfapp.store.reference_choices import ReferenceChoices


class Settled:
    """Whether the last pass left nothing to align or compare, and nothing has changed since.

    The store itself remembers it as a row that the next change removes, in the same transaction. A process
    that opens a million windows would otherwise look at each of them, for seconds.
    """

    def __init__(self, database: Database, chosen: ReferenceChoices) -> None:
        self._database, self._chosen = database, chosen
        found = database.tuples("SELECT value FROM store_info WHERE key = ?", [SETTLED])
        self._generation = database.generation if found == [(self._digest(),)] else None

    def __bool__(self) -> bool:
        return self._generation == self._database.generation

    def note(self, is_settled: bool) -> None:
        """Keep how a pass has ended.

        Raises:
            StoreError: the store cannot be written.
        """
        if is_settled and not self:
            with self._database.transaction(counted=False) as cursor:
                cursor.execute("DELETE FROM store_info WHERE key = ?", [SETTLED])
                cursor.execute("INSERT INTO store_info VALUES (?, ?)", [SETTLED, self._digest()])
        self._generation = self._database.generation if is_settled else None

    def _digest(self) -> str:
        """Return what the chosen references are known by: they may change while no store is open."""
        return sha256(msgspec.json.encode(dict(self._chosen.windows), order="deterministic")).hexdigest()
