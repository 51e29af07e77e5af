# cython: language_level=3, boundscheck=False, wraparound=False
"""``Step`` and ``Stage`` of ``timers.py`` once more, in C, and the state that they share, its numbers in C.

Between a model's kernels Python's own code and integers have left the processor's caches, and cost several
times what they do in a loop. Whatever else is done with the state is inherited.
"""

import time
from array import array as new_array

from cpython.array cimport array
from cpython.dict cimport PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from sfapp.recorder.timing import timers

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    Py_ssize_t Py_SIZE(object)

if timers.VERSION != 1:  # one that was compiled before timers.py was changed
    raise ImportError("the compiled hot path is another version's: install sfapp again")

cdef object MONOTONIC = time.perf_counter_ns  # which on Linux is CLOCK_MONOTONIC


cdef class Kept:
    """What ``timers.StepState`` keeps."""

    cdef array _cells
    cdef public long long base, width, number, due, capture_due, held_ns, moved_ns, nested_ns, stock, strangers
    cdef public bint tells_all, odd, strict
    cdef public unsigned long thread
    cdef public object open_stage, outside, held_column, by_name, on_step, on_due, on_fault, _chosen
    cdef public list refused, syncs, stages, _made
    cdef public dict side
    cdef object _clock
    cdef bint _reads_monotonic

    def __cinit__(self, *_, **__):
        self._cells = new_array("q")
        self.refused, self.syncs, self.stages, self._made, self.side = [], [], [], [], {}

    @property
    def clock(self):
        return self._clock

    @clock.setter
    def clock(self, clock):
        self._clock = clock
        self._reads_monotonic = clock is MONOTONIC

    @property
    def cells(self):
        return self._cells

    @cells.setter
    def cells(self, array cells not None):
        if cells.typecode != "q":
            raise TypeError("cells hold 64-bit integers")
        self._cells = cells


cdef inline long long now(Kept state) except? -1:
    cdef timespec at
    if state._reads_monotonic:
        clock_gettime(CLOCK_MONOTONIC, &at)
        return <long long> at.tv_sec * 1_000_000_000 + at.tv_nsec
    return state._clock()


cdef inline bint has(Kept state, long long place) noexcept:
    """Whether the page has this cell: C would write all the same."""
    return 0 <= place < Py_SIZE(state._cells)


class InC(Kept, timers.StepState):
    """The step under way, kept in C."""

    __slots__ = ()

    def new_cells(self, count):
        return new_array("q", bytes(8 * count))

    def new_step(self):
        return Step(self)

    def new_stage(self, name, index):
        return Stage(self, name, index)


cdef class Step:
    """``timers.Step``."""

    cdef Kept _state
    cdef long long _begin

    def __cinit__(self, Kept state not None):
        self._state = state

    def __enter__(self):
        cdef Kept state = self._state
        if state.open_stage is not state.outside:
            state.on_fault("nested_steps", "")
            state.leave_out()
        state.open_stage = None
        if state.odd or PyDict_Size(state.side) or PyList_GET_SIZE(state.syncs):
            state.forget()
        state.thread = PyThread_get_thread_ident()
        if state._chosen is not state.stages[0]:
            state.turn_to(0)
        self._begin = now(state)
        if state.held_ns or state.moved_ns:
            self._begin -= state.take_held()

    def __exit__(self, kind, value, trace):
        cdef Kept state = self._state
        cdef long long wall, end = now(state)
        if state.open_stage is state.outside:
            return
        state.open_stage = state.outside
        if state.stock:
            state.stock = max(0, state.stock - PyList_GET_SIZE(state.stages) + 1)
        wall = end - self._begin - state.moved_ns
        if (
            kind is not None
            or wall < 0
            or PyDict_Size(state.side)
            or PyList_GET_SIZE(state.syncs)
            or state.tells_all
            or not has(state, state.base)
            or not has(state, state.base + 1)
        ):
            state.on_step(self._begin + state.moved_ns, end, kind is None)
        else:
            state._cells.data.as_longlongs[state.base] = state.number
            state._cells.data.as_longlongs[state.base + 1] = wall
            state.base += state.width
            state.number += 1
        if state.number >= state.due or state.number >= state.capture_due:
            state.on_due()


cdef class Stage:
    """``timers.Stage``."""

    cdef Kept _state
    cdef public long long begin, index
    cdef readonly object name

    def __cinit__(self, Kept state not None, name, long long index):
        self._state = state
        self.name = name
        self.index = index

    def __enter__(self):
        cdef Kept state = self._state
        if state.open_stage is None and PyThread_get_thread_ident() == state.thread:
            state.open_stage = self
            self.begin = now(state)
        else:
            state.refuse(self.name)

    def __exit__(self, kind, value, trace):
        cdef Kept state = self._state
        cdef long long end = now(state)
        if state.odd and state.leave_refused(end):
            return
        if state.open_stage is self:
            state.open_stage = None
            if end < self.begin:
                state.on_fault("nonmonotonic_clock", self.name)
            elif has(state, state.base + self.index):
                state._cells.data.as_longlongs[state.base + self.index] += end - self.begin
