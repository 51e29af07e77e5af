"""The state of the server for a monitoring system, read from the store on request: ``/metrics``, and OTLP."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterator
from itertools import product
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfapp.model.problems import ProblemKind, ProblemStatus
from sfapp.service.problems import listed
from sfapp.service.workspace import Workspace

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
"""Methods that are counted by name: a client may send any word, and each costs memory for good."""


class Metrics(Collector):
    """Collector that counts requests, and reads everything else from the workspace when it is scraped."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._requests = Counter(
            "sfapp_requests", "HTTP requests answered", ("method", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "sfapp_request_seconds", "Time to answer an HTTP request", registry=self._registry
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def families(self) -> Iterator[Metric]:
        """Return all metrics with their values now."""
        return iter(self._registry.collect())

    def collect(self) -> Iterator[Metric]:
        store, status = self._workspace.store, self._workspace.status()
        runs = store.runs()
        yield GaugeMetricFamily("sfapp_runs", "Runs in the store", len(runs))
        yield GaugeMetricFamily("sfapp_windows", "Windows in the store", sum(run.windows for run in runs))
        yield GaugeMetricFamily("sfapp_quarantined_files", "Files refused", len(store.quarantine()))
        yield GaugeMetricFamily("sfapp_conflicts", "Windows with differing files", len(store.conflicts()))
        yield GaugeMetricFamily(
            "sfapp_ingest_seconds", "Duration of the latest ingest", self._workspace.ingest_seconds
        )
        yield GaugeMetricFamily(
            "sfapp_store_up",
            "Whether all folders are watched",
            float(status.kind == "live" and not status.message),
        )
        if status.age_seconds is not None:
            yield GaugeMetricFamily(
                "sfapp_newest_packet_age_seconds", "Age of the newest packet", status.age_seconds
            )
        yield from self._problems()

    def _problems(self) -> Iterator[Metric]:
        """Yield the number of problems by kind and status, zeros included, and the time that they cost."""
        workspace = self._workspace
        # Of a log that cannot be read, this is the last one that could; at first none is muted, as on pages.
        marks = workspace.incident_service.state
        found = listed(workspace.problems(locates=False), marks)
        counts = Counts((one.problem.kind, one.status) for one in found)
        problems = GaugeMetricFamily(
            "sfapp_problems", "Problems of the stored runs", labels=("kind", "status")
        )
        for kind, status in product(get_args(ProblemKind), get_args(ProblemStatus)):
            problems.add_metric((kind, status), counts[kind, status])
        yield problems
        costs = (one.problem.cost for one in found)
        lost = sum(cost.rank_hours for cost in costs if cost is not None)
        yield GaugeMetricFamily("sfapp_lost_rank_hours", "Time that all problems have cost so far", lost)

    def counting(self, app: ASGIApp) -> ASGIApp:
        """Middleware that counts and times HTTP requests."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began = time.perf_counter()

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    method = scope["method"] if scope["method"] in _METHODS else "other"
                    self._requests.labels(method, str(message["status"])).inc()
                    self._seconds.observe(time.perf_counter() - began)
                await send(message)

            await app(scope, receive, noting)

        return counted
