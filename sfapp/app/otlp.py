"""Send the metrics of ``/metrics`` to a collector over OTLP, so that nothing needs to scrape the app."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as MetricFamily
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

import sfapp
from sfapp.app.prometheus import Metrics
from sfapp.errors import ServeError, SfappError
from sfapp.service.http_client import cut_off

_LOG = logging.getLogger("sfapp")

PATH = "/v1/metrics"
"""Path at which collectors receive metrics."""

_STOP_S = 1.0
"""Seconds for which stopping waits for an export that is under way."""

_MAX_ANSWER = 64 << 10
"""Bytes read of a collector's answer, which nothing uses."""

_ANSWER_S = 30.0
"""Seconds for which the head of an answer, and then its body, is read; a timeout of ``requests`` is that of
each line."""

_QUERY = re.compile(r"\?\S*")
"""Query of an address in the text of an error: some collectors take a key there."""

_UNKNOWN: Any = None
"""Value of a field that may be left out, although the class of the SDK requires it."""


class _Connection(HTTPConnection):
    def getresponse(self) -> Any:
        with cut_off(self.sock, _ANSWER_S):
            return super().getresponse()


class _SecureConnection(HTTPSConnection):
    def getresponse(self) -> Any:
        with cut_off(self.sock, _ANSWER_S):
            return super().getresponse()


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _BoundedAdapter(HTTPAdapter):
    """Adapter that waits a bounded time for the head of an answer."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Make the pools of connections as ``HTTPAdapter`` does."""
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class BoundedSession(requests.Session):
    """HTTP session that reads a bounded part of each answer in a bounded time, and follows no redirect."""

    def __init__(self) -> None:
        super().__init__()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _BoundedAdapter())

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request as ``requests.Session`` does.

        Raises:
            requests.RequestException: there is no answer, none that ends within bounds, or a redirect.
        """
        try:
            answer = super().request(*arguments, **{**options, "stream": True, "allow_redirects": False})
        except requests.RequestException as error:
            # OpenTelemetry logs it, and tells by its type whether to repeat the request.
            raise type(error)(_QUERY.sub("?…", str(error))) from None
        try:
            if answer.status_code // 100 == 3:  # OpenTelemetry would count it as delivered.
                raise requests.TooManyRedirects(
                    f"the collector redirects ({answer.status_code}): give --otlp the address itself"
                )
            _skip_body(answer)
        finally:
            answer.close()
        return answer


def _skip_body(answer: requests.Response) -> None:
    """Read the body and discard it, without expanding it, so that the connection can be used again.

    Raises:
        requests.RequestException: it is too long, too slow or incomplete.
    """
    deadline, size = time.monotonic() + _ANSWER_S, 0
    try:
        while part := answer.raw.read1(_MAX_ANSWER, decode_content=False):
            size += len(part)
            if size > _MAX_ANSWER or time.monotonic() > deadline:
                raise requests.RequestException(
                    f"the collector's answer is longer than {_MAX_ANSWER >> 10} KiB, or took more than "
                    f"{_ANSWER_S:g} s"
                )
    except (OSError, urllib3.exceptions.HTTPError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.RequestException(f"the collector's answer is incomplete: {error}") from error
    answer._content = b""


class OtlpExporter:
    """Thread that sends all metrics at intervals.

    Requests have the headers, certificates and timeout of OpenTelemetry's environment variables
    (``OTEL_EXPORTER_OTLP_…``). A request that fails is repeated for a while by OpenTelemetry's exporter and
    logged; the next export has all values again.

    Args:
        endpoint: address of a collector, for OTLP over HTTP; without a path, ``/v1/metrics`` is added.
        interval: seconds from one export to the next.

    Raises:
        ServeError: the endpoint is no such address.
    """

    def __init__(self, endpoint: str, interval: float) -> None:
        self._exporter = OTLPMetricExporter(endpoint=endpoint_of(endpoint), session=BoundedSession())
        self._interval = interval
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, metrics: Metrics) -> None:
        """Send these metrics from now on."""
        self._thread = threading.Thread(target=self._run, args=(metrics,), name="sfapp-otlp", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sending."""
        self._stopped.set()
        self._exporter.shutdown()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def _run(self, metrics: Metrics) -> None:
        while not self._stopped.is_set():
            try:
                self._exporter.export(as_otlp(metrics.families(), time.time_ns()))
            except SfappError as error:
                _LOG.warning("metrics could not be read, and were not sent: %s", error)
            except Exception as error:  # noqa: BLE001  # such as OpenTelemetry's of a Retry-After in the year 10^20
                _LOG.error("metrics were not sent, and are sent again at the next time", exc_info=error)
            self._stopped.wait(self._interval)


def endpoint_of(text: str) -> str:
    """Return the address to which metrics are sent.

    Raises:
        ServeError: it is not ``http://HOST`` or ``https://HOST``, or holds a secret. It is not repeated.
    """
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ServeError("--otlp: must be http://HOST:PORT or https://HOST:PORT, of a collector")
    if parts.username is not None or parts.password is not None:
        raise ServeError("--otlp: put secrets into OTEL_EXPORTER_OTLP_HEADERS instead of the address")
    return text if parts.path not in ("", "/") else parts._replace(path=PATH).geturl()


def as_otlp(families: Iterable[MetricFamily], now_ns: int) -> MetricsData:
    """Return the families of a Prometheus registry as OTLP metrics of the same names."""
    metrics = [
        Metric(family.name, family.documentation, unit="", data=_data(family, now_ns)) for family in families
    ]
    scope = InstrumentationScope("sfapp", sfapp.__version__)
    resource = _resource()
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _resource() -> Resource:
    """Return what describes this server; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win."""
    own = Resource({"service.name": "sfapp", "service.version": sfapp.__version__})
    return own.merge(OTELResourceDetector().detect())


def _data(family: MetricFamily, now_ns: int) -> Gauge | Sum | Histogram:
    if family.type == "histogram":
        points = [_histogram_point(series, now_ns) for series in _histogram_series(family)]
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    begins = {_key(sample.labels): sample.value for sample in family.samples if _is_begin(sample.name)}
    values = [
        NumberDataPoint(sample.labels, _begin_ns(begins.get(_key(sample.labels))), now_ns, sample.value)
        for sample in family.samples
        if not _is_begin(sample.name)
    ]
    if family.type == "counter":
        return Sum(values, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(values)


@dataclass(slots=True)
class _HistogramSeries:
    """Samples of a histogram with the same labels; ``cumulative`` holds the count up to each bound."""

    labels: Mapping[str, str]
    cumulative: list[tuple[float, float]] = field(default_factory=list)
    total: float = 0.0
    begin: float | None = None


def _histogram_series(family: MetricFamily) -> Iterator[_HistogramSeries]:
    found: dict[tuple[tuple[str, str], ...], _HistogramSeries] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        series = found.setdefault(_key(labels), _HistogramSeries(labels))
        if sample.name.endswith("_bucket"):
            series.cumulative.append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            series.total = sample.value
        elif _is_begin(sample.name):
            series.begin = sample.value
    yield from found.values()


def _histogram_point(series: _HistogramSeries, now_ns: int) -> HistogramDataPoint:
    bounds, counts = zip(*sorted(series.cumulative), strict=True)
    before = (0.0, *counts)
    return HistogramDataPoint(
        series.labels,
        _begin_ns(series.begin),
        now_ns,
        count=int(counts[-1]),
        sum=series.total,
        bucket_counts=[int(count - less) for count, less in zip(counts, before, strict=False)],
        explicit_bounds=list(bounds[:-1]),  # the last one is infinite
        min=_UNKNOWN,
        max=_UNKNOWN,
    )


def _key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _is_begin(name: str) -> bool:
    return name.endswith("_created")


def _begin_ns(seconds: float | None) -> int:
    return 0 if seconds is None else int(seconds * 1e9)
