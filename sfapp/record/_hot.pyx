# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The usual of ``contexts.py`` in C: a step and its stages as nearly all of them are. What is not usual, a step
inside another, side channels, a step that failed, is done there, on the same state.

Between a model's kernels Python's own code and integers have left the processor's caches, and cost several
times what they do in a loop: this costs about half.
"""

import time

from cpython.array cimport array
from cpython.dict cimport PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from array import array as new_array

from sfapp.record import contexts

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    Py_ssize_t Py_SIZE(object)

cdef object enter_step = contexts.Step.__enter__
cdef object exit_step = contexts.Step.__exit__


cdef class Kept:
    """What ``contexts.StepState`` keeps, its numbers in C. ``cells`` are 64-bit integers."""

    cdef public array cells
    cdef public long long base, width, number, due, capture_due, held_ns, moved_ns, nested_ns, stock, strangers
    cdef public bint tells_all, odd, strict
    cdef public unsigned long thread
    cdef public object open_stage, outside, held_column, by_name, on_step, on_due, on_fault, _chosen
    cdef public list refused, syncs, stages
    cdef public dict side
    cdef object _clock
    cdef bint _reads_monotonic

    @property
    def clock(self):
        return self._clock

    @clock.setter
    def clock(self, clock):
        self._clock = clock
        self._reads_monotonic = clock is time.perf_counter_ns  # which on Linux is that


cdef inline long long now(Kept state) except? -1:
    cdef timespec at
    if state._reads_monotonic:
        clock_gettime(CLOCK_MONOTONIC, &at)
        return <long long> at.tv_sec * 1_000_000_000 + at.tv_nsec
    return state._clock()


cdef inline bint has_room(Kept state, long long place) noexcept:
    """Whether the page has this cell: Python would raise, C would write where something else is."""
    return place < Py_SIZE(state.cells)


class InC(Kept, contexts.StepState):
    """The step under way, kept in C."""

    __slots__ = ()

    def new_cells(self, count):
        return new_array("q", bytes(8 * count))

    def new_step(self):
        return Step(self)

    def new_stage(self, name, index):
        return Stage(self, name, index)


cdef class Step:
    """``contexts.Step``."""

    cdef readonly Kept _state
    cdef public long long _begin

    def __init__(self, Kept state):
        self._state = state

    def __enter__(self):
        cdef Kept state = self._state
        if (
            state.open_stage is not state.outside
            or state.odd
            or PyDict_Size(state.side)
            or PyList_GET_SIZE(state.syncs)
            or state._chosen is not state.stages[0]
        ):
            enter_step(self)
            return
        state.open_stage = None
        state.thread = PyThread_get_thread_ident()
        self._begin = now(state)
        if state.held_ns or state.moved_ns:
            self._begin -= state.take_held()

    def __exit__(self, kind, value, trace):
        cdef Kept state = self._state
        cdef long long wall, end
        if (
            kind is not None
            or state.tells_all
            or state.open_stage is state.outside
            or PyDict_Size(state.side)
            or PyList_GET_SIZE(state.syncs)
            or not has_room(state, state.base + 1)
        ):
            exit_step(self, kind, value, trace)
            return
        end = now(state)
        state.open_stage = state.outside
        if state.stock:
            state.stock = max(0, state.stock - PyList_GET_SIZE(state.stages) + 1)
        wall = end - self._begin - state.moved_ns
        if wall < 0:
            state.on_step(self._begin + state.moved_ns, end, True)
        else:
            state.cells.data.as_longlongs[state.base] = state.number
            state.cells.data.as_longlongs[state.base + 1] = wall
            state.base += state.width
            state.number += 1
        if state.number >= state.due or state.number >= state.capture_due:
            state.on_due()


cdef class Stage:
    """``contexts.Stage``."""

    cdef readonly Kept _state
    cdef public long long begin, index
    cdef readonly object name

    def __init__(self, Kept state, name, long long index):
        self._state = state
        self.name = name
        self.index = index

    def __enter__(self):
        cdef Kept state = self._state
        if state.open_stage is None and state.thread == PyThread_get_thread_ident():
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
            elif has_room(state, state.base + self.index):
                state.cells.data.as_longlongs[state.base + self.index] += end - self.begin
