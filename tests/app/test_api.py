"""Every page as data, over HTTP as a script would ask."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

import sfapp
from sfapp.model import GATE_DOCS, Gates
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.address import path_segment
from tests.app.data_client import client_of
from tests.app.recorded_job import RUN, job_window, put


@pytest.fixture
async def client(workspace: Workspace) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(workspace) as client:
        yield client


async def test_the_twin_of_the_first_page_lists_windows_by_severity(client: httpx.AsyncClient) -> None:
    document = (await client.get("/index.json")).json()
    assert document["total"] == 5
    assert [run["run_id"] for run in document["runs"]] == [RUN]
    assert document["quarantined"] == 1
    severities = [window["severity"] for window in document["windows"]]
    assert severities == sorted(severities, reverse=True)
    assert "shown" not in document["windows"][0]


async def test_a_window_in_a_folder_that_cannot_be_entered_keeps_its_verdict(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (await client.get("/w/job/2.json")).json()
    stat = os.stat

    def refusing(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("/job/00000002.parquet"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refusing)
    answer = await client.get("/w/job/2.json")
    assert (answer.status_code, answer.json()) == (200, before)


async def test_the_list_is_filtered_sorted_and_paged(client: httpx.AsyncClient) -> None:
    asked = {"min_severity": 0.05, "sort": "window:asc", "offset": 1, "limit": 1}
    document = (await client.get("/index.json", params=asked)).json()
    assert document["total"] == 3
    assert [window["window"] for window in document["windows"]] == [3]


async def test_a_stretch_of_the_timeline_is_listed(client: httpx.AsyncClient) -> None:
    asked = {"first": "job/1", "last": "job/3", "sort": "window:asc"}
    document = (await client.get("/index.json", params=asked)).json()
    assert [window["window"] for window in document["windows"]] == [1, 2, 3]


async def test_the_table_gets_its_rows_as_text(client: httpx.AsyncClient) -> None:
    document = (await client.get("/index.json", params={"as_text": 1, "text": "node-0", "limit": 1})).json()
    (window,) = document["windows"]
    assert window["shown"]["href"].startswith("/w/job/")
    assert window["shown"]["time"].endswith(" ms")
    assert abs(sum(share for _, share, _ in window["shown"]["bar"]) - 1) < 1e-9


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("sort=colour:asc", 400),
        ("sort=window:up", 400),
        ("limit=-1", 422),
        ("limit=5000", 422),
        ("offset=x", 422),
        ("first=job", 400),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(
    client: httpx.AsyncClient, query: str, status: int
) -> None:
    assert (await client.get(f"/index.json?{query}")).status_code == status


async def test_the_twin_of_a_window_is_its_diagnosis(client: httpx.AsyncClient, workspace: Workspace) -> None:
    found = (await client.get("/w/job/2.json")).json()
    stored = workspace.store.diagnosis(RUN, 2)
    assert found == msgspec.json.decode(msgspec.json.encode(stored.document()))
    assert found["aim"]["stage"] == "callbacks.cpu_wall"
    assert found["aim"]["rank"] == 3


async def test_the_twin_judges_under_the_gates_of_its_query(
    client: httpx.AsyncClient, workspace: Workspace
) -> None:
    query = "gamma_a=0.9&frontier=step&baseline=rank_median&group=node:0&reference=job/0&tab=rules"
    found = (await client.get(f"/w/job/2.json?{query}")).json()
    expected = sfapp.diagnose(
        workspace.store.window(RUN, 2),
        Gates(gamma_a=0.9),
        "rank_median",
        workspace.store.window(RUN, 0),
        frontier="step",
        group="node:0",
    )
    assert found == msgspec.json.decode(msgspec.json.encode(expected.document()))


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/w/job/77.json", 404, "it has 5, from 0 to 4"),
        ("/w/absent/0.json", 404, "no run 'absent'"),
        ("/w/job/2.json?gamma_a=two", 400, "gamma_a must be a number"),
        ("/w/job/2.json?group=role:x", 404, "no group 'role:x'"),
        ("/w/job/2.json?reference=job/99", 404, "no window 99"),
        ("/w/job/2/colours.csv", 404, "stages, ranks, steps"),
        ("/runs/absent.json", 404, "no run 'absent'"),
    ],
)
async def test_what_cannot_be_answered_is_explained(
    client: httpx.AsyncClient, path: str, status: int, message: str
) -> None:
    response = await client.get(path)
    assert response.status_code == status
    assert message in response.json()["error"]


@pytest.mark.parametrize(
    ("path", "rows", "column"),
    [
        ("/index.csv", 5, "run_id"),
        ("/runs/job.csv", 5, "window"),
        ("/quarantine.csv", 1, "reason"),
        ("/w/job/2/stages.csv", 6, "share"),
        ("/w/job/2/ranks.csv", 8, "hostname"),
        ("/w/job/2/ranks.csv?group=node:1", 4, "hostname"),
        ("/w/job/2/steps.csv?frontier=carry_over", 40, "time_ns"),
    ],
)
async def test_tables_come_as_csv(client: httpx.AsyncClient, path: str, rows: int, column: str) -> None:
    response = await client.get(path)
    assert response.headers["content-type"].startswith("text/csv")
    found = list(csv.DictReader(io.StringIO(response.text)))
    assert len(found) == rows
    assert column in found[0]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (
            "/windows.csv?runn=job",
            "'runn' is not an option of /windows.csv: its options are run",
        ),
        (
            "/problems.json?rum=1",
            "'rum' is not an option of /problems.json: its options are run",
        ),
        ("/fleet.json?x=1", "'x' is not an option of /fleet.json: its options are text, by, limit"),
        ("/runs/job.json?window=1", "'window' is not an option of /runs/{run}.json: it has none"),
        ("/windows.json?run=a&run=b", "the option 'run' is given more than once"),
        ("/w/job/2.json?tau_c=0.1&tau_c=0.9", "the option 'tau_c' is given more than once"),
    ],
)
async def test_an_option_that_a_route_does_not_have_is_refused(
    client: httpx.AsyncClient, address: str, reason: str
) -> None:
    """A misspelt filter would be answered with everything."""
    answer = await client.get(address)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(reason)


@pytest.mark.parametrize(
    "address",
    [
        "/windows.json?axis=time",
        "/problems.csv?axis=time",
        "/incidents.json?sort=title",
        "/live.json?token=x",
    ],
)
async def test_data_take_the_query_of_their_page(client: httpx.AsyncClient, address: str) -> None:
    assert (await client.get(address)).status_code == 200


async def test_monitors_may_add_options_of_their_own(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/metrics"):
        assert (await client.get(f"{path}?probe=7")).status_code == 200


async def test_a_store_that_has_failed_is_no_fault_of_the_query(workspace: Workspace) -> None:
    with Store.open(workspace.folders, memory=True) as store:
        own = Workspace(store, workspace.folders)
    async with client_of(own) as client:
        for path in ("/windows.json", "/windows.csv", "/w/job/0.json", "/problems.json", "/metrics"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (503, {"error": "the store has been closed"}), path


async def test_a_run_has_its_windows_in_order(client: httpx.AsyncClient) -> None:
    document = (await client.get("/runs/job.json")).json()
    assert [window["window"] for window in document["windows"]] == [0, 1, 2, 3, 4]
    assert document["run"]["reference_window"] == document["reference"]["window"]


async def test_refused_files_are_listed(client: httpx.AsyncClient) -> None:
    document = (await client.get("/quarantine.json")).json()
    assert len(document["quarantined"]) == 1
    assert document["conflicts"] == []


@pytest.mark.parametrize("run_id", ["a/b 100% ?#&=<script>", "..", "job.json", "~.", "über'\"\\", "x/3"])
async def test_any_run_id_can_be_asked_for(tmp_path, run_id: str) -> None:
    # Given a run whose id means something to file systems, browsers and routes
    put(tmp_path, job_window(0, {}, run_id=run_id))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with client_of(Workspace(store, [tmp_path])) as client:
            # Then its window and its history are found under the address that the pages link to
            window = (await client.get(f"/w/{path_segment(run_id)}/0.json")).json()
            history = (await client.get(f"/runs/{path_segment(run_id)}.json")).json()
    assert window["run_id"] == run_id
    assert history["run"]["run_id"] == run_id


async def test_a_plainly_quoted_run_id_will_do(tmp_path) -> None:
    put(tmp_path, job_window(0, {}, run_id="a/b%20c"))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with client_of(Workspace(store, [tmp_path])) as client:
            found = (await client.get(f"/w/{quote('a/b%20c', safe='')}/0.json")).json()
    assert found["run_id"] == "a/b%20c"


async def test_a_spreadsheet_finds_no_formula_in_a_name(tmp_path) -> None:
    put(tmp_path, job_window(0, {}, run_id="=1+1"))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with client_of(Workspace(store, [tmp_path])) as client:
            assert "'=1+1" in (await client.get("/index.csv")).text


async def test_metrics_are_prometheus_text(client: httpx.AsyncClient) -> None:
    await client.get("/index.json")
    text = (await client.get("/metrics")).text
    assert "sfapp_windows 5.0" in text
    assert "sfapp_runs 1.0" in text
    assert "sfapp_quarantined_files 1.0" in text
    assert 'sfapp_requests_total{method="GET",status="200"} 1.0' in text
    assert "sfapp_newest_packet_age_seconds" in text
    assert "sfapp_ingest_seconds" in text
    assert 'sfapp_problems{kind="standstill",status="ongoing"} 0.0' in text
    counts = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("sfapp_problems{")]
    assert sum(counts) == len((await client.get("/problems.json")).json()["problems"]) > 0


async def test_methods_of_any_name_are_counted_together(client: httpx.AsyncClient) -> None:
    for number in range(20):
        await client.request(f"METHOD{number}", "/healthz")
    text = (await client.get("/metrics")).text
    assert "METHOD" not in text
    assert 'sfapp_requests_total{method="other",status="405"} 20.0' in text


async def test_health_reports_a_store_that_is_no_longer_fed(workspace: Workspace, client) -> None:
    assert (await client.get("/healthz")).json()["status"] == "ok"


async def test_health_is_reported_while_more_requests_wait_for_the_store_than_there_are_threads(
    workspace: Workspace, client: httpx.AsyncClient
) -> None:
    with workspace.store._database._handing_out:  # every query waits for it
        asked = [asyncio.create_task(client.get("/windows.json")) for _ in range(100)]
        await asyncio.sleep(0.5)
        assert (await client.get("/healthz")).json()["status"] == "ok"
        assert not any(each.done() for each in asked)
    assert {(await each).status_code for each in asked} == {200}


async def test_the_api_documents_itself_without_the_internet(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "/windows.json" in page
    assert "/problems.json" in page
    assert "http://" not in page
    assert "https://" not in page
    schema = (await client.get("/openapi.json")).json()
    window = schema["paths"]["/w/{run}/{window}.json"]["get"]
    names = {parameter["name"] for parameter in window["parameters"]}
    assert {doc.name for doc in GATE_DOCS} <= names


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/healthz", "/windows.json", "/w/job/2.json", "/w/job/2/stages.csv"])
async def test_a_method_that_a_route_does_not_have_is_refused(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"


async def test_head_is_answered_as_get(client: httpx.AsyncClient) -> None:
    found, got = await client.head("/w/job/2.json"), await client.get("/w/job/2.json")
    assert found.status_code == 200
    assert found.headers["content-length"] == got.headers["content-length"]


async def test_every_route_declares_what_it_answers(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path, methods in paths.items():
        declared = methods["get"]["responses"]
        assert {"200", "400", "401", "404", "429"} <= set(declared), path
        assert declared["404"]["content"]["application/json"]["schema"]["required"] == ["error"]
        (kind,) = declared["200"]["content"]
        ending = path.rpartition(".")[2]
        expected = {"json": "application/json", "csv": "text/csv", "zip": "application/zip"}
        assert kind == expected.get(ending, "text/plain" if path == "/metrics" else "application/json"), path


@pytest.mark.parametrize("path", ["/w/x/{}.json", "/w/job/{}/stages.csv", "/w/job/{}/findings.json"])
async def test_a_window_number_of_any_length_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    for digits in (18, 19, 40, 5000):
        assert (await client.get(path.format("9" * digits))).status_code == 404


@pytest.mark.parametrize(
    "query",
    ["step=" + "9" * 5000, "ranks=" + "9" * 5000, "gamma_a=" + "9" * 5000, "reference=job/" + "9" * 5000,
     "group=node:" + "9" * 5000, "fix=@" + "9" * 5000, "cause=" + "9" * 5000],
)  # fmt: skip
async def test_a_number_of_any_length_in_a_query_is_refused(client: httpx.AsyncClient, query: str) -> None:
    assert (await client.get(f"/w/job/2.json?{query}")).status_code in (400, 404)


@pytest.mark.parametrize("query", ["first=job/" + "9" * 30, "last=job/" + "9" * 5000, "offset=" + "9" * 30])
async def test_a_number_of_any_length_in_a_list_is_refused(client: httpx.AsyncClient, query: str) -> None:
    assert (await client.get(f"/windows.json?{query}")).status_code in (400, 422)
