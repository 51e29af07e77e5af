"""The view of a window page and the link that holds it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.model import BASELINES, DIMENSIONS, FRONTIERS, GATE_DOCS, MODEL_FITS, Fix, Gates
from sfapp.model.view import QUANTITIES, TABS, ViewState, WindowKey, parse_query, view_parameters

# What a URL can carry: any text but lone surrogates.
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
gate_values = st.fixed_dictionaries(
    {},
    optional={
        **{
            doc.name: st.integers(int(doc.low), int(doc.high)) if doc.whole else st.floats(doc.low, doc.high)
            for doc in GATE_DOCS
        },
        "model_fit": st.sampled_from(MODEL_FITS),
    },
)
ranks_or_nodes = st.integers(0, 10**9 - 1)
# With stages whose own name reads like a place of a fix.
stages = st.none() | texts | st.sampled_from(["data@3", "@all", "a@node:1"])
fixes = (
    st.builds(Fix, stages)
    | st.builds(Fix, stages, rank=ranks_or_nodes)
    | st.builds(Fix, stages, node=ranks_or_nodes)
)
views = st.builds(
    ViewState,
    tab=st.sampled_from(TABS) | st.integers(0, 10**6).map("node:{}".format),
    step=st.none() | st.integers(-(10**15), 10**15),
    gates=gate_values.map(lambda values: Gates(**values)),
    frontier=st.sampled_from(FRONTIERS),
    baseline=st.sampled_from(BASELINES),
    group=texts,
    reference=st.none() | st.builds(WindowKey, texts, st.integers(0, 10**9)),
    ranks=st.sets(st.integers(0, 10**6), max_size=8).map(lambda ranks: tuple(sorted(ranks))),
    stage=st.none() | texts,
    quantity=st.sampled_from(QUANTITIES),
    cause=st.none() | st.integers(0, 10**6),
    operator=st.none() | texts,
    axes=st.none() | st.permutations(DIMENSIONS).map(lambda names: tuple(names[:2])),
    fix=st.none() | fixes,
)


@given(views)
def test_every_view_survives_its_link(view: ViewState) -> None:
    assert parse_query(view.query) == (view, [])


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=30)), max_size=6))
def test_no_query_is_an_error(pairs: list[tuple[str, str]]) -> None:
    view, notices = parse_query(pairs)
    assert isinstance(view, ViewState)
    assert len(notices) <= len(pairs)


def test_the_default_view_has_an_empty_query() -> None:
    assert ViewState().query == ""
    assert ViewState().href("/w/a/1") == "/w/a/1"


def test_only_what_differs_is_in_the_link() -> None:
    view = ViewState(tab="node:3").with_gate("gamma_a", 0.43)
    assert view.href("/w/a/1") == "/w/a/1?tab=node:3&gamma_a=0.43"


@pytest.mark.parametrize(
    ("query", "notice"),
    [
        ("gamma_a=two", "gamma_a must be a number, not 'two'"),
        ("gamma_a=1.5", "gamma_a must lie between 0 and 1, not 1.5"),
        ("gamma_a=nan", "gamma_a must be a number, not nan"),
        ("min_event_samples=2.5", "min_event_samples must be a whole number, not '2.5'"),
        ("model_fit=maybe", "model_fit must be one of declared, measured, on, off, not 'maybe'"),
        ("tab=causes", "tab must be one of overview"),
        ("tab=node:x", "not 'node:x'"),
        ("baseline=mean", "baseline must be one of rank_median, cohort_median, reference"),
        ("step=last", "step must be a whole number"),
        ("reference=9", "reference must be RUN/WINDOW"),
        ("ranks=1,x", "ranks must be ranks and ranges of ranks"),
        ("ranks=" + ",".join(map(str, range(65))), "ranks must name at most 64 ranks"),
        ("cause=-1", "cause must be a position in a list, 0 the first, not '-1'"),
        ("operator=", "operator must name something"),
        ("group=", "group must name something"),
        ("fix=", "fix must be STAGE, STAGE@RANK, STAGE@node:K, @RANK, @node:K or @all, not ''"),
        ("colour=red", "'colour' is not an option of this page"),
    ],
)
def test_a_bad_value_is_reported_and_the_default_used(query: str, notice: str) -> None:
    view, notices = parse_query(query)
    assert view == ViewState()
    assert len(notices) == 1
    assert notice in notices[0]


def test_good_values_next_to_a_bad_one_still_count() -> None:
    view, notices = parse_query("gamma_a=9&tau_c=0.6&frontier=carry_over")
    assert view.gates == Gates(tau_c=0.6)
    assert view.frontier == "carry_over"
    assert len(notices) == 1


def test_the_judging_part_ignores_what_is_only_looked_at() -> None:
    view = ViewState(tab="ranks", step=4, ranks=(1,)).with_gate("tau_c", 0.5)
    assert view.judging == ViewState().with_gate("tau_c", 0.5)


@pytest.mark.parametrize(
    ("fix", "text"),
    [
        (Fix("data.next_wait"), "data.next_wait"),
        (Fix("data.next_wait", rank=3), "data.next_wait@3"),
        (Fix("data.next_wait", node=1), "data.next_wait@node:1"),
        (Fix(rank=3), "@3"),
        (Fix(), "@all"),
    ],
)
def test_a_fix_is_readable_in_the_link(fix: Fix, text: str) -> None:
    assert ViewState(fix=fix).href("/w/a/1") == f"/w/a/1?fix={text}"


def test_window_specific_options_are_dropped() -> None:
    view = ViewState(tab="stragglers", step=4, cause=2, operator="aten::mm", ranks=(1,))
    assert view.for_next_window() == ViewState(tab="stragglers", operator="aten::mm", ranks=(1,))


@pytest.mark.parametrize("declared", view_parameters("fix", "step", "ranks"), ids=lambda one: one["name"])
def test_the_ends_of_a_declared_range_are_accepted_and_others_are_not(declared: dict[str, Any]) -> None:
    schema, name = declared["schema"], declared["name"]

    def is_accepted(value: Any) -> bool:
        return not parse_query([(name, str(value))])[1]

    assert {"type", "enum"} & schema.keys()
    valid = [schema[key] for key in ("minimum", "maximum", "default") if key in schema]
    assert all(map(is_accepted, [*valid, *schema.get("enum", ())]))
    invalid = [schema["minimum"] - 1, schema["maximum"] + 1] if "minimum" in schema and name != "step" else []
    assert not any(map(is_accepted, [*invalid, *(["other"] if "enum" in schema else [])]))
    if schema["type"] in ("number", "integer", "array"):
        assert not is_accepted("x")


@pytest.mark.parametrize(
    ("title", "tab"), [("operators", "stragglers"), ("analysis", "frontier"), ("nodes", "node:0")]
)
def test_an_address_may_call_a_tab_by_its_title(title: str, tab: str) -> None:
    view, notices = parse_query(f"tab={title}")
    assert (view.tab, notices) == (tab, [])
