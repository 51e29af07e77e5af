"""What a mapping file may say, and what it is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.errors import TraceError
from sfapp.importers import NO_MAPPING, Mapping, read_mapping
from sfapp.model.stages import BACKWARD, DATA, FORWARD, RECORDED_STAGES, RESIDUAL


def written(folder: Path, text: str, name: str = "mapping.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_first_pattern_that_fits_names_the_stage() -> None:
    mapping = Mapping(ranges={"fwd head*": "", "fwd*": FORWARD})

    assert mapping.stage_of("fwd head 3") == ""
    assert mapping.stage_of("fwd body") == FORWARD
    assert mapping.stage_of("FWD body") is None


def test_stages_that_are_not_listed_follow_as_training_goes() -> None:
    mixed = (RESIDUAL, BACKWARD, "data.h2d", FORWARD, DATA)

    assert NO_MAPPING.ordered(mixed) == (DATA, "data.h2d", FORWARD, BACKWARD, RESIDUAL)
    assert Mapping(stages=(FORWARD, "data.h2d")).ordered(mixed)[:2] == (FORWARD, "data.h2d")
    assert NO_MAPPING.ordered(reversed(RECORDED_STAGES)) == RECORDED_STAGES


def test_a_file_contains_stages_columns_roles_and_unit(tmp_path: Path) -> None:
    text = """
        step = "train step *"
        unit = "ms"
        [ranges]
        "my forward" = "model.fwd_loss_cpu_wall"
        [columns]
        rank = "global_rank"
        [roles]
        "0-3,8" = "pp0"
        "4-7" = "pp1"
    """

    mapping = read_mapping(written(tmp_path, text))

    assert mapping.stage_of("my forward") == FORWARD
    assert mapping.is_step("train step 12")
    assert (mapping.column("rank"), mapping.column("step"), mapping.unit) == ("global_rank", "step", "ms")
    assert [mapping.role_of(rank) for rank in (3, 5, 8, 9)] == ["pp0", "pp1", "pp0", None]


def test_json_is_equivalent(tmp_path: Path) -> None:
    assert read_mapping(written(tmp_path, '{"unit": "us"}', "mapping.json")) == Mapping(unit="us")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rangs]\n", "unknown setting 'rangs'"),
        ("unit = 3", "is not a mapping"),
        ("unit = 'days'", "unit must be one of"),
        ("[roles]\n'a-b' = 'pp0'", "must be ranks and ranges of ranks"),
        ("[roles]\n'0-99999999' = 'pp0'", "must name at most 1,048,576 ranks"),
        ("= =", "is not a mapping"),
    ],
)
def test_a_file_with_other_content_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(TraceError, match=message) as caught:
        read_mapping(path)

    assert caught.value.path == str(path)
