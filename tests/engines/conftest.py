"""A cluster of Ray and one of Dask, each in real processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sfapp.engines import ENGINES

WORKERS = 2


@pytest.fixture(scope="module", params=[name for name in ENGINES if name != "local"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the name of an engine whose cluster of two worker processes runs on this machine."""
    if request.param == "ray":
        ray = pytest.importorskip("ray", reason="Ray is not installed", exc_type=ImportError)
        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
        yield "ray"
        ray.shutdown()
    else:
        distributed = pytest.importorskip("distributed", reason="Dask is not installed", exc_type=ImportError)
        with (
            distributed.LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster),
        ):
            yield "dask"
