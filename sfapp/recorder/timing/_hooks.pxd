# C types for the compiled copy of ``hooks.py`` (see ``hatch_build.py``).

cdef class WaitPage:
    cdef object _state, _queue, _queue_last
    cdef readonly object blocked, own, exchanged
    cdef long long[::1] _blocked_cells, _own_cells, _exchanged_cells


cdef class CollectionTimer:
    cdef object _state
    cdef long long _begin
