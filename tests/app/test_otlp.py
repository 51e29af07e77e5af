"""Metrics over OTLP: a receiver gets what ``/metrics`` shows, under the same names."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from prometheus_client.parser import text_string_to_metric_families

from sfapp.app import otlp
from sfapp.app.otlp import BoundedSession, OtlpExporter, endpoint_of
from sfapp.app.prometheus import Metrics
from sfapp.errors import ServeError
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.alerts.webhook_server import WebhookServer, webhook_server
from tests.app.recorded_job import job_window, put
from tests.app.served import served

VOLATILE = ("sfapp_newest_packet_age_seconds", "sfapp_ingest_seconds")
"""Gauges that differ between two readings."""

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by name and labels."""


def request_of(receiver: WebhookServer) -> ExportMetricsServiceRequest:
    for _ in range(2):  # The first may have been gathered before, and arrive only now.
        receiver.take()
        assert receiver.arrived.wait(60)
    (delivered, *_) = receiver.delivered
    assert delivered.path == "/v1/metrics"
    assert delivered.headers["content-type"] == "application/x-protobuf"
    assert delivered.headers["x-team"] == "training"
    request = ExportMetricsServiceRequest()
    request.ParseFromString(delivered.body)
    return request


def key_of(name: str, point: NumberDataPoint) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted((each.key, each.value.string_value) for each in point.attributes))


def gauges_of(metrics: dict[str, Metric]) -> Values:
    return {
        key_of(name, point): point.as_double if point.HasField("as_double") else float(point.as_int)
        for name, metric in metrics.items()
        for point in metric.gauge.data_points
    }


@pytest.fixture
def receiver() -> Iterator[WebhookServer]:
    with webhook_server([200]) as server:
        yield server


def test_a_receiver_gets_what_is_scraped(
    tmp_path: Path, receiver: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=training")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    put(tmp_path / "packets", job_window(0, {}))
    options = ("--memory", "--otlp", receiver.address, "--otlp-interval", "1")
    with served(tmp_path / "packets", *options, cwd=tmp_path) as server:
        scraped = ""
        while "sfapp_windows 1.0" not in scraped or "packet_age_seconds " not in scraped:  # until it is read
            scraped = httpx.get(f"{server.url}metrics").text
        request = request_of(receiver)
    (resource,) = request.resource_metrics
    described = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (described["service.name"], described["deployment.environment"]) == ("sfapp", "test")
    (scope,) = resource.scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    families = {family.name: family for family in text_string_to_metric_families(scraped)}
    assert set(metrics) == set(families) - {"sfapp_requests_created", "sfapp_request_seconds_created"}
    expected = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for name in metrics
        if families[name].type == "gauge" and name not in VOLATILE
        for sample in families[name].samples
    }
    sent = gauges_of(metrics)
    assert {key: sent[key] for key in expected} == expected
    assert len([key for key in expected if key[0] == "sfapp_problems"]) > 5
    assert all(metrics[name].description == families[name].documentation for name in metrics)
    counter = metrics["sfapp_requests"].sum
    assert counter.is_monotonic
    assert sum(point.as_double for point in counter.data_points) >= 1
    assert all(point.start_time_unix_nano > 0 for point in counter.data_points)
    (histogram,) = metrics["sfapp_request_seconds"].histogram.data_points
    assert histogram.count == sum(histogram.bucket_counts) >= 1
    assert len(histogram.bucket_counts) == len(histogram.explicit_bounds) + 1


def test_an_address_without_a_path_is_that_of_a_collector() -> None:
    assert endpoint_of("http://node0:4318") == "http://node0:4318/v1/metrics"
    assert (
        endpoint_of("https://otlp.example.org/team/v1/metrics") == "https://otlp.example.org/team/v1/metrics"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("collector:4318", "must be http://HOST"),
        ("grpc://collector:4317", "must be http://HOST"),
        ("http://collector:port", "must be http://HOST"),
        ("https://", "must be http://HOST"),
        ("https://me:secret@otlp.example.org", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("https://me:secret@otlp.example.org:99999", "must be http://HOST"),
        ("me:secret@otlp.example.org", "must be http://HOST"),
    ],
)
def test_other_addresses_are_refused_without_repeating_secrets(text: str, message: str) -> None:
    with pytest.raises(ServeError, match=message) as caught:
        endpoint_of(text)
    assert "secret@" not in str(caught.value)


def test_a_collector_that_is_not_there_leaves_the_app_as_it_is(tmp_path: Path) -> None:
    put(tmp_path / "packets", job_window(0, {}))
    options = ("--memory", "--otlp", "http://127.0.0.1:9", "--otlp-interval", "1")
    with served(tmp_path / "packets", *options, cwd=tmp_path) as server:
        assert httpx.get(f"{server.url}healthz").json()["status"] == "ok"


def test_a_key_in_the_address_stays_out_of_the_errors_of_exports() -> None:
    with BoundedSession() as session, pytest.raises(requests.ConnectionError, match="refused") as caught:
        session.post("http://127.0.0.1:9/v1/metrics?api-key=secret", timeout=60)
    assert "secret" not in str(caught.value)


@contextmanager
def collector(answer: bytes) -> Iterator[str]:
    """Serve a collector that reads one request, answers this, and waits; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_one() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 20)
                connection.sendall(answer)
                connection.recv(1)  # until the client has left

        thread = threading.Thread(target=answer_one, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n" + bytes(1 << 20), "longer than"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + bytes(10_000_000), "longer than"),
        (b"HTTP/1.1 307 Go\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", "redirects"),
    ],
    ids=["an answer without end", "a long answer", "a redirect"],
)
def test_an_export_without_a_short_answer_has_failed(answer: bytes, message: str) -> None:
    with (
        collector(answer) as address,
        BoundedSession() as session,
        pytest.raises(requests.RequestException, match=message),
    ):
        session.post(address, timeout=60)


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: y\r\n"],
    ids=["interim answers", "headers"],
)
def test_the_head_of_an_answer_arrives_in_time_as_a_whole(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_ANSWER_S", 0.5)
    begun = time.monotonic()
    with (
        collector(begin) as address,
        BoundedSession() as session,
        pytest.raises(requests.RequestException),
    ):
        session.post(address, timeout=10)  # of each line
    assert time.monotonic() - begun < 5


def test_exports_go_on_after_an_answer_that_opentelemetry_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    date = "Fri, 01 Jan 99999999999999999999 00:00:00 GMT"
    head = f"HTTP/1.1 503 Busy\r\nRetry-After: {date}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with (
        Store.open([tmp_path], memory=True) as store,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        listener.settimeout(10)
        exporter = OtlpExporter(f"http://127.0.0.1:{listener.getsockname()[1]}", 0.01)
        exporter.start(Metrics(Workspace(store, [tmp_path])))
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 20)
                connection.sendall(head.encode())
        exporter.stop()
    assert "metrics were not sent" in caplog.text


def test_a_compressed_answer_is_not_expanded() -> None:
    compressed = gzip.compress(bytes(32 << 20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(compressed)}\r\n\r\n"
    with collector(head.encode() + compressed) as address, BoundedSession() as session:
        assert session.post(address, timeout=60).content == b""
