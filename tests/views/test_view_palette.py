"""Colours: distinct, stable, readable."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from sfapp.model import DEFAULT_STAGES
from sfapp.views import palette


def test_the_six_stages_have_the_colours_of_the_design() -> None:
    assert list(palette.stage_colours(DEFAULT_STAGES).values()) == [
        "#E69F00", "#56B4E9", "#0072B2", "#CC79A7", "#009E73", "#595959",
    ]  # fmt: skip
    assert palette.stage_colours(DEFAULT_STAGES, dark=True)["step.other_cpu_wall"] == "#CCCCCC"


def test_refined_and_unknown_stages_are_distinct_and_stable() -> None:
    stages = (
        "data.fetch", "data.decode", "data.copy", "model.forward.embed", "model.forward.blocks",
        "tokenise", "communicate", "evaluate", "step.other_cpu_wall",
    )  # fmt: skip
    colours = palette.stage_colours(stages)
    assert len(set(colours.values())) == len(stages)
    assert (
        palette.stage_colours(("tokenise",))["tokenise"] == palette.stage_colours(("tokenise",))["tokenise"]
    )
    assert colours["data.fetch"] == "#E69F00"


def test_micro_steps_share_the_colour_of_their_stage() -> None:
    colours = palette.stage_colours(("data.next_wait[0]", "model.backward_cpu_wall[0]", "data.next_wait[1]"))
    assert colours["data.next_wait[0]"] == colours["data.next_wait[1]"] == "#E69F00"


@pytest.mark.parametrize("colours", [palette.LIGHT, palette.DARK])
def test_text_stands_out_from_the_surface(colours: palette.Theme) -> None:
    for name in ("ink", "muted", "accent", "alarm", "warn", "good"):
        assert palette.contrast(getattr(colours, name), colours.surface) >= 4.5, name


def test_text_on_a_stage_colour_is_readable() -> None:
    for dark in (False, True):
        for colour in palette.stage_colours(DEFAULT_STAGES, dark).values():
            assert palette.contrast(palette.readable_on(colour), colour) >= 4.5


def test_a_scale_runs_from_the_surface_to_the_stage() -> None:
    scale = palette.scale("#CC79A7", palette.LIGHT)
    assert palette.at(scale, 0) == scale[0][1]
    assert palette.at(scale, 2) == scale[-1][1]
    steps = [palette.contrast(palette.at(scale, part / 10), "#FFFFFF") for part in range(11)]
    assert all(a < b for a, b in pairwise(steps))


def test_severities_differ() -> None:
    found = [palette.severity_colour(severity, palette.LIGHT) for severity in (None, 0.01, 0.1, 0.5)]
    assert found[0] == found[1]
    assert all(a != b for a, b in combinations(found[1:], 2))
