# C types for the compiled copy of ``timers.py`` (see ``hatch_build.py``).
#
# The build replaces ``state.clock()`` by ``read_clock(state)`` and ``state.cpu_clock()`` by ``read_cpu(state)``, and
# drops the imports of ``get_ident`` and ``read_host``, which are declared here.

from libc.stdlib cimport strtoll
from posix.resource cimport getrusage, rusage
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef extern from "<unistd.h>" nogil:
    ssize_t read_at "pread"(int file, void *text, size_t size, long offset)


cdef extern from "<time.h>":
    enum: CLOCK_THREAD_CPUTIME_ID


cdef extern from *:
    """
    #define SFAPP_RUSAGE_THREAD 1  /* Linux; the header has it only with _GNU_SOURCE. */
    """
    enum: SFAPP_RUSAGE_THREAD


cdef extern from "Python.h":
    unsigned long get_ident "PyThread_get_thread_ident"() nogil


cdef class StepState:
    cdef public long long base, width, number, due, capture_due, report_due, between, ended
    cdef public long long held_ns, moved_ns, nested_ns, unused_batches, foreign_stages
    cdef public bint has_refused, strict
    cdef public unsigned long thread
    cdef public object open_stage, outside, held_column, on_step, on_due, on_fault
    cdef readonly object clock
    cdef public list refused, syncs, stages, _made
    cdef public dict side, _current
    cdef readonly object page
    cdef readonly long long[::1] cells
    cdef bint reads_perf_counter
    cdef public bint reads_cpu, reads_host, reads_usage, times_cpu
    cdef public long long evidence_ns, evidence_steps, evidence_read, steps_since
    cdef bint reads_thread_time
    cdef public long long cpu_ns, cpu_read, cpu_slack, cpu_ended, held_cpu, moved_cpu, gc_ns, schedstat, host_due
    cdef readonly object cpu_clock, cpu_page, host_page
    cdef public object on_host
    cdef readonly long long[::1] cpu_cells, host_cells


cdef class Step:
    cdef StepState _state
    cdef long long _begin, _cpu
    cdef _begin_cpu(self, long long now)
    cdef _end_host(self, long long end)


cdef class Stage:
    cdef StepState _state
    cdef public long long begin, cpu_begin, index
    cdef readonly object name


cdef inline long long read_clock(StepState state) except? -1:
    cdef timespec now
    if state.reads_perf_counter:  # On Linux that is CLOCK_MONOTONIC.
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <long long> now.tv_sec * 1_000_000_000 + now.tv_nsec
    return state.clock()


cdef inline long long read_cpu(StepState state) except? -1:
    cdef timespec now
    if state.reads_thread_time:
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
        return <long long> now.tv_sec * 1_000_000_000 + now.tv_nsec
    return state.cpu_clock()


cdef long long cpu_at(StepState state, long long now) except? -1


cdef inline int read_host(StepState state, bint reads_all) except -1:
    cdef rusage usage
    cdef char text[97]
    cdef char *rest
    cdef long long place = state.base // state.width * 6
    cdef ssize_t size
    state.host_cells[place] = state.gc_ns
    if not reads_all:
        return 0
    if state.schedstat >= 0:
        size = read_at(<int> state.schedstat, text, 96, 0)
        if size > 0:
            text[size] = 0
            strtoll(text, &rest, 10)
            state.host_cells[place + 1] = strtoll(rest, NULL, 10)
    if state.reads_usage and getrusage(SFAPP_RUSAGE_THREAD, &usage) == 0:
        state.host_cells[place + 2] = usage.ru_nvcsw
        state.host_cells[place + 3] = usage.ru_nivcsw
        state.host_cells[place + 4] = usage.ru_majflt
        state.host_cells[place + 5] = usage.ru_minflt
    return 0
