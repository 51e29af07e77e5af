"""A bucket that cannot be reached for a while gets every window in the end."""

from __future__ import annotations

from benchmarks import bucket_outage


def test_nothing_is_lost_while_a_bucket_refuses_connections_and_does_not_answer() -> None:
    found = bucket_outage.outage(minutes=0.2, around_s=8)
    assert found.waiting > 0
    assert found.windows == found.objects
    assert found.is_delivered
    assert any("packets wait in" in failure for failure in found.failures)
