"""Colours: distinct, stable, readable."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from sfapp.model import CATEGORIES, DEFAULT_STAGES, RECORDED_STAGES
from sfapp.views import palette


def test_the_stages_have_the_colours_of_the_design() -> None:
    assert list(palette.stage_colours(RECORDED_STAGES).values()) == [
        "#9933FF", "#E69F00", "#56B4E9", "#0072B2", "#CC79A7", "#009E73", "#595959",
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
        for colour in palette.stage_colours(RECORDED_STAGES, dark).values():
            assert palette.contrast(palette.readable_on(colour), colour) >= 4.5


# How eyes without one kind of cone see linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no long": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no middle": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no short": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, eyes: str) -> np.ndarray:
    """CIELAB of a colour as some eyes see it."""
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = XYZ @ np.clip(np.array(EYES[eyes]) @ linear, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = np.where(seen > 0.008856, np.cbrt(seen), 7.787 * seen + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("dark", [False, True])
def test_stages_are_distinguishable_by_all_eyes_and_from_the_surface(dark: bool, eyes: str) -> None:
    colours = palette.stage_colours(RECORDED_STAGES, dark)
    for one, other in combinations(colours.values(), 2):
        assert np.linalg.norm(lab(one, eyes) - lab(other, eyes)) >= 16, (one, other)
    assert palette.contrast(colours["step.between_cpu_wall"], palette.theme(dark).surface) >= 3


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("dark", [False, True])
def test_categories_of_events_are_distinguishable_by_all_eyes(dark: bool, eyes: str) -> None:
    colours = palette.category_colours(dark)
    assert set(colours) == set(CATEGORIES)
    for one, other in combinations(colours.values(), 2):
        assert np.linalg.norm(lab(one, eyes) - lab(other, eyes)) >= 14, (one, other)


def test_a_scale_runs_from_the_surface_to_the_stage() -> None:
    scale = palette.scale("#CC79A7", palette.LIGHT)
    assert palette.at(scale, 0) == scale[0][1]
    assert palette.at(scale, 2) == scale[-1][1]
    steps = [palette.contrast(palette.at(scale, part / 10), "#FFFFFF") for part in range(11)]
    assert all(a < b for a, b in pairwise(steps))


def test_severities_differ() -> None:
    marked = ((None, None), (False, 0.01), (True, 0.1), (True, 0.5))
    found = [palette.severity_colour(*mark, palette.LIGHT) for mark in marked]
    assert found[0] == found[1]
    assert all(a != b for a, b in combinations(found[1:], 2))
