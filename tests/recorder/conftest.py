"""What the recorder's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sfapp.recorder.timing import timer_backend

HOT_PATHS = {"C": "on", "Python": "off"}


@pytest.fixture(scope="module", params=list(HOT_PATHS))
def hot_path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Steps are timed by the compiled hot path, then by that in Python."""
    if request.param == "C" and not timer_backend.IS_COMPILED:
        pytest.skip("this installation has no compiled hot path")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(timer_backend.COMPILED_VARIABLE, HOT_PATHS[request.param])
        yield request.param
