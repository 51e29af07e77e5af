"""Any run id survives its place in an address."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.views.address import path_segment, run_from_segment

# What a URL can carry: any text but lone surrogates.
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(texts | st.text("~01/.a\n", min_size=1, max_size=12) | st.text("~01/.jsonc", min_size=1, max_size=12))
def test_any_run_id_survives_its_path(run_id: str) -> None:
    segment = path_segment(run_id)
    assert run_from_segment(segment) == run_id
    assert "/" not in segment


@given(texts.filter(lambda text: text not in (".", "..") and "~" not in text))
def test_a_plainly_quoted_run_id_is_understood(run_id: str) -> None:
    assert run_from_segment(quote(run_id, safe="")) == run_id


@pytest.mark.parametrize("run_id", [".", "..", "a.json", "~..", "~~a.json", "~", "a/b.csv"])
def test_run_ids_that_a_path_would_misread_are_marked(run_id: str) -> None:
    segment = path_segment(run_id)
    assert segment not in (".", "..", "%2E", "%2E%2E")
    assert run_from_segment(segment) == run_id


@pytest.mark.parametrize("run_id", ["a//b", "/a", "a/", "a/../b", "../../x", "/", "./a", "/a.csv", "~/"])
def test_a_proxy_that_decodes_and_settles_paths_leaves_a_run_id(run_id: str) -> None:
    decoded = unquote(path_segment(run_id))
    assert "/" not in decoded
    assert decoded not in (".", "..")
    # It encodes what it has decoded again.
    assert run_from_segment(quote(decoded)) == run_id


@pytest.mark.parametrize("run_id", ["~a~1~1b", "~0", "~1x", "~~0a~01", "~~1", "~~~01~1", "a//b.json~"])
def test_run_ids_that_read_as_marks_survive_their_path(run_id: str) -> None:
    assert run_from_segment(path_segment(run_id)) == run_id
