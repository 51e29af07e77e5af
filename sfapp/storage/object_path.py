"""Path of an object, or of a prefix of objects, with the operations of ``pathlib`` that packets need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from sfapp.storage.object_storage import ObjectStorage


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """Object, or prefix of objects, of one bucket. Its text has no credentials.

    Attributes:
        key: without a slash at its ends; empty for the whole bucket.
    """

    storage: ObjectStorage
    key: str

    @property
    def name(self) -> str:
        """Return the last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """Return the prefix that holds it."""
        return ObjectPath(self.storage, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> ObjectPath:
        """Return the path of another name under the same prefix."""
        return self.parent / name

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.storage, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        key = quote(self.key) if self.storage.quotes_keys else self.key
        return f"{self.storage.url}/{key}" if key else self.storage.url

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    # Local paths come first where paths of both kinds are sorted.

    def __lt__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and self._order < other._order

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, ObjectPath) or self._order > other._order

    @property
    def _order(self) -> tuple[str, str]:
        return self.storage.url, self.key
