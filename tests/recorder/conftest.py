"""Fixtures of the recorder's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sfapp.recorder.timing import timer_backend
from tests.recorder.clocked_recorder import Clock

HOT_PATHS = {"C": "on", "Python": "off"}


@pytest.fixture(scope="module", params=list(HOT_PATHS))
def hot_path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Time steps with the compiled timers, then with those in Python."""
    if request.param == "C" and not timer_backend.IS_COMPILED:
        pytest.skip("this installation has no compiled timers")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(timer_backend.COMPILED_VARIABLE, HOT_PATHS[request.param])
        yield request.param


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still until a test moves it."""
    return Clock()
