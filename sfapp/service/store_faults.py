"""Decide what a failure of the thread that keeps a store up to date says of the store."""

from __future__ import annotations

import logging

from sfapp.errors import DamagedStoreError, StoreError

_FOREIGN_VALUE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of using a value that another program wrote into the store."""

_LOG = logging.getLogger("sfapp")


class StoreFaults:
    """Failures of one thread."""

    def __init__(self) -> None:
        self._may_be_foreign = True

    def is_damage(self, error: Exception) -> bool:
        """Return whether the store must be built again; log unexpected errors.

        That is done at the first unexpected error of a value only: a packet, or sfapp itself, may be its
        cause as well. To check every value on opening would take as long as to read the packets.
        """
        if isinstance(error, StoreError | OSError):
            return isinstance(error, DamagedStoreError)
        _LOG.error("the store could not be kept up to date, and is tried again", exc_info=error)
        is_foreign = self._may_be_foreign and isinstance(error, _FOREIGN_VALUE)
        self._may_be_foreign &= not is_foreign
        return is_foreign
