"""A store that follows packets and a dataset has what a new store reads, in random histories."""

from __future__ import annotations

from hypothesis import settings

from benchmarks.store_histories import StoreHistories

TestStoreHistories = StoreHistories.TestCase
TestStoreHistories.settings = settings(max_examples=6, stateful_step_count=25, deadline=None)
