"""Findings and the Perfetto archive over HTTP, as a script would ask."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sfapp.importers.perfetto_export import MANIFEST
from sfapp.packets import operators_path
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.profiled import PROFILED, WINDOW, put_profiled
from tests.app.recorded_job import job_window, put
from tests.app.test_api import client_of
from tests.builders import reduced


@pytest.fixture
async def client(packets: Path, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    put_profiled(packets, tmp_path)
    with Store.open([packets], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [packets])
        async with client_of(workspace) as client:
            yield client
        workspace.close()


async def test_findings_name_rank_and_operator_and_whether_the_verdict_agrees(
    client: httpx.AsyncClient,
) -> None:
    found = (await client.get(f"{WINDOW}/findings.json", params={"limit": 3, "gamma_a": 0.3})).json()
    assert (found["run_id"], found["window"], found["source"]) == (PROFILED, 0, "operators")
    assert found["version"] == 2  # 1 had other keys
    assert not {"told", "rhythm"} & set(found)
    assert (found["agreement"], found["first_rank"], found["rank"]) == ("agree", 5, 5)
    first = found["causes"][0]
    assert first["rank"] == 5
    assert first["nature"] == "input"
    assert first["delay_ns"] / 6 == pytest.approx(60e6, rel=0.02)
    assert first["path"][0]["name"] == first["name"]
    assert len(found["outliers"]["rows"]) == 3 < found["outliers"]["total"]
    assert len(found["collectives"]) == 3
    assert len(found["similarity"]["score"]) == 8


async def test_findings_of_a_window_without_operators_are_those_of_its_stages(
    client: httpx.AsyncClient,
) -> None:
    found = (await client.get("/w/job/2/findings.json")).json()
    assert found["source"] == "stages"
    assert found["causes"][0]["rank"] == 3
    group = (await client.get("/w/job/2/findings.json?group=node:1")).json()
    assert group["ranks"] == [4, 5, 6, 7]


async def test_a_window_without_events_gives_the_reason(tmp_path: Path) -> None:
    put(tmp_path, reduced(job_window(0, {})))
    operators_path(tmp_path, "job", 0).write_bytes(b"nothing of the kind")
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        async with client_of(workspace) as client:
            found = (await client.get("/w/job/0/findings.json")).json()
            archive = await client.get("/w/job/0/perfetto.zip")
        workspace.close()
    assert found["source"] is None
    assert "cannot be read" in found["notices"][0]
    assert "a reduced window has the rows of a few ranks only" in found["notices"][1]
    assert archive.status_code == 400
    assert "00000000.ops.parquet" in archive.json()["error"]


async def test_the_slice_that_is_shown_opens_in_perfetto(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{WINDOW}/perfetto.zip?step=7&ranks=5,6&tab=stragglers")
    assert answer.headers["content-type"] == "application/zip"
    assert 'filename="window-0-perfetto.zip"' in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == [MANIFEST, "rank00005.json", "rank00006.json"]
        events = json.loads(archive.read("rank00005.json"))["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "step"] == ["step 7"]


async def test_the_archive_of_stages_is_labelled_as_stages(client: httpx.AsyncClient) -> None:
    answer = await client.get("/w/job/2/perfetto.zip?group=node:1")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert len(archive.namelist()) == 5
        assert "laid end to end" in json.loads(archive.read("rank00004.json"))["note"]


@pytest.mark.parametrize("table", ["causes", "outliers", "collectives"])
async def test_findings_are_tables_too(client: httpx.AsyncClient, table: str) -> None:
    rows = list(csv.DictReader(io.StringIO((await client.get(f"{WINDOW}/{table}.csv")).text)))
    found = (await client.get(f"{WINDOW}/findings.json")).json()[table]
    assert len(rows) == (found["total"] if table == "outliers" else len(found))
    assert {row["rank"] for row in rows} == {"5", "2"} if table == "causes" else rows


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/w/job/77/findings.json", 404, "it has 5, from 0 to 4"),
        (f"{WINDOW}/findings.json?colour=red", 400, "not an option"),
        (f"{WINDOW}/findings.json?limit=0", 422, ""),
        (f"{WINDOW}/perfetto.zip?step=99", 404, "no step 99"),
        (f"{WINDOW}/perfetto.zip?ranks=1,99", 404, "no rank 99"),
        (f"{WINDOW}/perfetto.zip?ranks=1&group=node:1", 400, "no events of these steps and ranks"),
    ],
)
async def test_what_cannot_be_given_is_explained(
    client: httpx.AsyncClient, path: str, status: int, message: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code == status
    assert message in answer.text


async def test_both_are_documented(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    names = {each["name"] for each in paths["/w/{run}/{window}/findings.json"]["get"]["parameters"]}
    assert {"limit", "group", "gamma_a"} <= names
    names = {each["name"] for each in paths["/w/{run}/{window}/perfetto.zip"]["get"]["parameters"]}
    assert {"step", "ranks", "group"} <= names
