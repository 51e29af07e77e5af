# C types for the compiled copy of ``page_sizes.py`` (see ``hatch_build.py``).

cimport cython


@cython.final
cdef class PageReader:
    cdef const unsigned char[::1] _data
    cdef Py_ssize_t _size, _at, _kind, _pages, _walked, _expanded

    cpdef Py_ssize_t read_footer(self, Py_ssize_t at) except? -1

    @cython.locals(count=cython.Py_ssize_t)
    cdef int _row_group(self) except -1

    cdef int _column(self) except -1

    @cython.locals(
        compressed=cython.Py_ssize_t,
        data_page=cython.Py_ssize_t,
        dictionary_page=cython.Py_ssize_t,
        after=cython.Py_ssize_t,
        begin=cython.Py_ssize_t,
    )
    cdef int _chunk(self) except -1

    @cython.locals(begin=cython.Py_ssize_t, expanded=cython.Py_ssize_t, compressed=cython.Py_ssize_t)
    cdef int _page(self) except -1

    @cython.locals(head=cython.Py_ssize_t, number=cython.Py_ssize_t)
    cdef Py_ssize_t _field(self, Py_ssize_t before) except? -1

    @cython.locals(head=cython.Py_ssize_t)
    cdef Py_ssize_t _count(self) except? -1

    @cython.locals(count=cython.Py_ssize_t, inner=cython.Py_ssize_t)
    cdef int _skip(self, Py_ssize_t kind, int depth) except -1

    @cython.locals(value=cython.Py_ssize_t)
    cdef Py_ssize_t _integer(self) except? -1

    @cython.locals(value=cython.Py_ssize_t)
    cdef Py_ssize_t _length(self) except? -1

    @cython.locals(byte=cython.Py_ssize_t, value=cython.Py_ssize_t, shift=cython.Py_ssize_t)
    cdef Py_ssize_t _unsigned(self) except? -1

    @cython.locals(at=cython.Py_ssize_t)
    cdef Py_ssize_t _byte(self) except? -1

    cdef int _move(self, Py_ssize_t count) except -1

    cdef int _go_to(self, Py_ssize_t at) except -1
