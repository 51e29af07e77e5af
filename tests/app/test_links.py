"""What pages say about parts of a link that they do not understand, such as one edited by hand."""

from __future__ import annotations

import pytest
from nicegui.testing import User

from sfapp.service.workspace import Workspace


@pytest.mark.parametrize(
    ("address", "notice"),
    [
        ("/windows?needs_attention=maybe", "needs_attention must be true, not 'maybe'"),
        ("/windows?min_severity=nan", "min_severity must be 0 or more, not 'nan'"),
        ("/windows?min_severity=-1", "min_severity must be 0 or more, not '-1'"),
        ("/?ongoing=maybe", "ongoing must be true, not 'maybe'"),
        ("/runs/job?colour=red", "'colour' is not an option"),
        ("/fleet?colour=red", "'colour' is not an option"),
        ("/live?colour=red", "'colour' is not an option"),
        ("/glossary?colour=red", "'colour' is not an option"),
        ("/quarantine?colour=red", "'colour' is not an option"),
        ("/incidents?colour=red", "'colour' is not an option"),
        ("/incidents?sort=colour", "there is no sort 'colour'"),
    ],
)
async def test_a_part_of_a_link_that_a_page_ignores_is_named(user: User, address: str, notice: str) -> None:
    await user.open(address)
    await user.should_see(notice)


async def test_a_group_that_the_latest_window_of_a_problem_lacks_is_named(
    user: User, workspace: Workspace
) -> None:
    (problem, *_) = workspace.problems()
    await user.open(f"/problems/{problem.id}?group=node:77&colour=red")
    await user.should_see("no group 'node:77'; showing all ranks")
    await user.should_see("'colour' is not an option")
