"""Record the sections of jobs that are instrumented with Megatron's ``stimer``, and Megatron's layout."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

from sfapp.errors import RecorderError
from sfapp.model.stages import DATA, FORWARD
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.side_channels.channels import RecordedChannel
from sfapp.recorder.timing.contexts import UncountedStage
from sfapp.recorder.timing.timers import Stage

_PARALLEL_STATE = "megatron.core.parallel_state"

_RANK_IN = {
    "dp": "get_data_parallel_rank",
    "pp": "get_pipeline_model_parallel_rank",
    "tp": "get_tensor_model_parallel_rank",
    "ep": "get_expert_model_parallel_rank",
    "cp": "get_context_parallel_rank",
}
"""Megatron's function for the rank's place in each dimension; older versions lack some."""


def layout() -> dict[str, int]:
    """Return this rank's coordinates in Megatron's parallel groups, by dimension.

    >>> sfapp.Recorder("packets", layout=sfapp.recorder.integrations.megatron.layout())

    Returns:
        Nothing before ``initialize_model_parallel``, or if Megatron is not used.
    """
    state = sys.modules.get(_PARALLEL_STATE)  # Loading Megatron here would take seconds.
    is_ready = getattr(state, "model_parallel_is_initialized", None)
    if is_ready is None or not is_ready():
        return {}
    found = {}
    for name, function in _RANK_IN.items():
        with suppress(AttributeError, AssertionError, RuntimeError, ValueError):  # there is no such group
            found[name] = int(getattr(state, function)())
    return found


class StragglerDetector:
    """Replacement for ``megatron.core.utils.StragglerDetector`` that records instead of reporting.

    >>> stimer = sfapp.recorder.integrations.megatron.StragglerDetector(perf)
    >>> with stimer(bdata=True):
    ...     batch = get_batch(batches)
    >>> with stimer:
    ...     loss = model(batch)

    ``stimer`` does not identify the micro-batch, so the times of all micro-batches add up. With more than one
    per step declare ``Accumulation(factor=m, ordered=False)``. If the recorder has no layout, that of
    Megatron's parallel groups is declared.

    Args:
        perf: the recorder; the loop calls ``with perf.step()``.
        batch: stage for ``bdata=True``, or else the name of a side channel, in ms.
        work: stage or side channel for all other times.

    Raises:
        RecorderError: the recorder records micro-steps separately.
    """

    def __init__(self, perf: Recorder, batch: str = DATA, work: str = FORWARD) -> None:
        if perf.accumulation.factor > 1 and perf.accumulation.ordered:
            raise RecorderError(
                "stimer does not identify the micro-step that it times: declare ordered=False"
            )
        self._perf = perf
        if not perf.coordinates:
            perf.declare(layout=layout())
        self._batch = batch
        self._work = work
        self._open: Stage | RecordedChannel | UncountedStage | None = None
        self.bdata = False

    def configure(self, *args: Any, **options: Any) -> None:
        """Do nothing: the recorder already exists."""

    def __call__(self, bdata: bool = False) -> StragglerDetector:
        """Set whether the next timed section fetches a batch."""
        self.bdata = bdata
        return self

    def start(self) -> None:
        """Begin to time; a section that is still open ends, as in Megatron."""
        self.stop()
        name, self.bdata = (self._batch if self.bdata else self._work), False
        is_stage = name in self._perf.stages
        self._open = self._perf.stage(name) if is_stage else self._perf.side_channel(name)
        self._open.__enter__()

    def stop(self) -> None:
        """End the section that ``start`` began."""
        section, self._open = self._open, None
        if section is not None:
            section.__exit__(None, None, None)

    def __enter__(self) -> StragglerDetector:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def enabled(self) -> bool:
        """Return True: recording is always on."""
        return True

    @property
    def configured(self) -> bool:
        """Return True."""
        return True

    def reset(self) -> None:
        """Do nothing: the recorder ends windows itself."""

    def report(self, total_flops: float = 0.0, log_interval: int = 0) -> bool:
        """Return False, as nothing is reported: the packets hold the measurements."""
        return False
