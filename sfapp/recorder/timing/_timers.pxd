# C types for the compiled copy of ``timers.py`` (see ``hatch_build.py``).
#
# The build replaces ``state.clock()`` by ``read_clock(state)`` and drops the import of ``get_ident``, which is declared here.

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef extern from "Python.h":
    unsigned long get_ident "PyThread_get_thread_ident"() nogil


cdef class StepState:
    cdef public long long base, width, number, due, capture_due, between, ended
    cdef public long long held_ns, moved_ns, nested_ns, unused_batches, foreign_stages
    cdef public bint reports_every_step, has_refused, strict
    cdef public unsigned long thread
    cdef public object open_stage, outside, held_column, on_step, on_due, on_fault
    cdef readonly object clock
    cdef public list refused, syncs, stages, _made
    cdef public dict side, _current
    cdef readonly object page
    cdef readonly long long[::1] cells
    cdef bint reads_perf_counter


cdef class Step:
    cdef StepState _state
    cdef long long _begin


cdef class Stage:
    cdef StepState _state
    cdef public long long begin, index
    cdef readonly object name


cdef inline long long read_clock(StepState state) except? -1:
    cdef timespec now
    if state.reads_perf_counter:  # On Linux that is CLOCK_MONOTONIC.
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <long long> now.tv_sec * 1_000_000_000 + now.tv_nsec
    return state.clock()
