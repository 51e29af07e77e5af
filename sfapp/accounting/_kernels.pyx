# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The array kernels of ``sfapp.accounting.kernels`` in C: the same numbers to the last bit, several times faster.

Each function works on some steps of a matrix and releases the interpreter's lock, so that threads share the
work. Shapes and units are those of the callers. Only additions, subtractions, comparisons and conversions are
made, in the order in which NumPy makes them.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    /* Each loop is compiled for several instruction sets and chosen by the processor. */
    #define SFAPP_INLINE static inline __attribute__((always_inline))
    #if defined(__x86_64__)
    #define SFAPP_AVX2 __attribute__((target("avx2")))
    #define SFAPP_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))

    static int sfapp_level(void)
    {
        if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512bw"))
            return 2;
        return __builtin_cpu_supports("avx2") ? 1 : 0;
    }

    /* WIDE is the body for the widest registers. */
    #define SFAPP_VARIANTS(TYPE, NAME, WIDE, PARAMETERS, ARGUMENTS)      \\
        SFAPP_AVX512 static TYPE NAME##_avx512 PARAMETERS { return WIDE ARGUMENTS; }        \\
        SFAPP_AVX2 static TYPE NAME##_avx2 PARAMETERS { return NAME##_body ARGUMENTS; }     \\
        static TYPE NAME PARAMETERS                                      \\
        {                                                                \\
            if (sfapp_level() == 2) return NAME##_avx512 ARGUMENTS;      \\
            return NAME##_avx2 ARGUMENTS;                                \\
        }
    #else
    static int sfapp_level(void) { return 1; }
    #define SFAPP_VARIANTS(TYPE, NAME, WIDE, PARAMETERS, ARGUMENTS) \\
        static TYPE NAME PARAMETERS { return NAME##_body ARGUMENTS; }
    #endif

    #define SFAPP_TILE 2048 /* ranks at a time: their prefixes stay in the first cache */
    #define SFAPP_LANES 4

    typedef int64_t sfapp_vector __attribute__((vector_size(32), aligned(8)));
    typedef double sfapp_doubles __attribute__((vector_size(32), aligned(8)));

    /* The larger and the smaller value of each lane. */
    #define SFAPP_MAX(a, b) (((a) & ((a) > (b))) | ((b) & ~((a) > (b))))
    #define SFAPP_MIN(a, b) (((b) & ((a) > (b))) | ((a) & ~((a) > (b))))

    /* Prefixes, and what is known at each boundary, of one step. `largest`, `sums` and `totals` may be NULL. */
    SFAPP_INLINE void sfapp_walk_step(
        const int counts_all,
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *start, ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *second,
        int64_t *largest, int64_t *sums, int64_t *totals)
    {
        int64_t prefix[SFAPP_TILE];
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_TILE) {
            const ptrdiff_t count = ranks - begin < SFAPP_TILE ? ranks - begin : SFAPP_TILE;
            if (start) memcpy(prefix, start + begin, count * sizeof(int64_t));
            else memset(prefix, 0, count * sizeof(int64_t));
            for (ptrdiff_t stage = 0; stage < stages; stage++) {
                const int64_t *spent = duration + stage * stage_stride + begin;
                sfapp_vector first[2], next[2], most[2], sum[2] = {{0}};
                for (int half = 0; half < 2; half++)
                    for (int lane = 0; lane < SFAPP_LANES; lane++)
                        first[half][lane] = next[half][lane] = most[half][lane] = INT64_MIN;
                ptrdiff_t rank = 0;
                for (; rank + 2 * SFAPP_LANES <= count; rank += 2 * SFAPP_LANES)
                    for (int half = 0; half < 2; half++) { /* two at a time, which do not wait for each other */
                        const ptrdiff_t at = rank + half * SFAPP_LANES;
                        const sfapp_vector d = *(const sfapp_vector *)(spent + at);
                        const sfapp_vector p = *(sfapp_vector *)(prefix + at) + d;
                        *(sfapp_vector *)(prefix + at) = p;
                        const sfapp_vector lower = SFAPP_MIN(first[half], p);
                        first[half] = SFAPP_MAX(first[half], p);
                        next[half] = SFAPP_MAX(next[half], lower);
                        if (counts_all) {
                            most[half] = SFAPP_MAX(most[half], d);
                            sum[half] += d;
                        }
                    }
                int64_t best = INT64_MIN, other = INT64_MIN, widest = INT64_MIN, whole = 0;
                for (int place = 0; place < 2 * SFAPP_LANES; place++) {
                    const int half = place / SFAPP_LANES, lane = place % SFAPP_LANES;
                    if (first[half][lane] > best) {
                        if (best > other) other = best;
                        best = first[half][lane];
                    } else if (first[half][lane] > other) other = first[half][lane];
                    if (next[half][lane] > other) other = next[half][lane];
                    if (most[half][lane] > widest) widest = most[half][lane];
                    whole += sum[half][lane];
                }
                for (; rank < count; rank++) {
                    const int64_t p = prefix[rank] += spent[rank];
                    if (p > best) { other = best > other ? best : other; best = p; }
                    else if (p > other) other = p;
                    if (spent[rank] > widest) widest = spent[rank];
                    whole += spent[rank];
                }
                const ptrdiff_t cell = stage * out_stride;
                if (begin == 0 || best > top[cell]) {
                    ptrdiff_t place = 0;
                    while (prefix[place] != best) place++;
                    second[cell] = begin > 0 && top[cell] > other ? top[cell] : other;
                    top[cell] = best;
                    leader[cell] = begin + place;
                } else if (best > second[cell]) second[cell] = best;
                if (counts_all) {
                    if (begin == 0 || widest > largest[cell]) largest[cell] = widest;
                    sums[cell] = (begin ? sums[cell] : 0) + whole;
                }
            }
            if (totals) memcpy(totals + begin, prefix, count * sizeof(int64_t));
        }
        if (ranks == 1)
            for (ptrdiff_t stage = 0; stage < stages; stage++) second[stage * out_stride] = top[stage * out_stride];
    }

    SFAPP_INLINE int sfapp_step_boundaries_body(
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *start, ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *second,
        int64_t *largest, int64_t *sums, int64_t *totals)
    {
        if (largest)
            sfapp_walk_step(1, duration, stage_stride, stages, ranks, start, out_stride, top, leader, second,
                            largest, sums, totals);
        else
            sfapp_walk_step(0, duration, stage_stride, stages, ranks, start, out_stride, top, leader, second,
                            largest, sums, totals);
        return 0;
    }

    SFAPP_VARIANTS(
        int, sfapp_step_boundaries, sfapp_step_boundaries_body,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         const int64_t *start, ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *second,
         int64_t *largest, int64_t *sums, int64_t *totals),
        (duration, stage_stride, stages, ranks, start, out_stride, top, leader, second, largest, sums, totals))

    #define SFAPP_SEARCH 512 /* ranks among which a leader is looked for once its stretch is known */

    typedef int64_t sfapp_wide __attribute__((vector_size(64), aligned(8)));

    /* The frontier and its leaders of one step, and nothing else. Four vectors of ranks keep their prefixes in
       registers through all stages, so `VECTOR` has the width of a register. `room` holds one vector a stage. */
    #define SFAPP_STEP_FRONTIER(NAME, VECTOR)                                                              \\
    SFAPP_INLINE int NAME(                                                                                 \\
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,                \\
        ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *room)                                \\
    {                                                                                                      \\
        enum { lanes = sizeof(VECTOR) / sizeof(int64_t) };                                             \\
        VECTOR *const most = (VECTOR *)room;                                                           \\
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_SEARCH) {                              \\
            const ptrdiff_t end = ranks - begin < SFAPP_SEARCH ? ranks : begin + SFAPP_SEARCH;         \\
            for (ptrdiff_t i = 0; i < lanes * stages; i++) room[i] = INT64_MIN;                        \\
            ptrdiff_t rank = begin;                                                                    \\
            for (; rank + 4 * lanes <= end; rank += 4 * lanes) {                                       \\
                VECTOR a = {0}, b = {0}, c = {0}, d = {0};                                             \\
                for (ptrdiff_t stage = 0; stage < stages; stage++) {                                   \\
                    const VECTOR *spent = (const VECTOR *)(duration + stage * stage_stride + rank);    \\
                    a += spent[0];                                                                     \\
                    b += spent[1];                                                                     \\
                    c += spent[2];                                                                     \\
                    d += spent[3];                                                                     \\
                    const VECTOR one = SFAPP_MAX(a, b), other = SFAPP_MAX(c, d), both = SFAPP_MAX(one, other);\\
                    most[stage] = SFAPP_MAX(most[stage], both);                                        \\
                }                                                                                      \\
            }                                                                                          \\
            for (; rank < end; rank++) {                                                               \\
                int64_t prefix = 0;                                                                    \\
                for (ptrdiff_t stage = 0; stage < stages; stage++) {                                   \\
                    prefix += duration[stage * stage_stride + rank];                                   \\
                    if (prefix > room[lanes * stage]) room[lanes * stage] = prefix;                    \\
                }                                                                                      \\
            }                                                                                          \\
            for (ptrdiff_t stage = 0; stage < stages; stage++) {                                       \\
                const ptrdiff_t cell = stage * out_stride;                                             \\
                int64_t best = INT64_MIN;                                                              \\
                for (int i = 0; i < lanes; i++)                                                        \\
                    if (room[lanes * stage + i] > best) best = room[lanes * stage + i];                \\
                if (begin == 0 || best > top[cell]) {                                                  \\
                    top[cell] = best;                                                                  \\
                    leader[cell] = begin;                                                              \\
                }                                                                                      \\
            }                                                                                          \\
        }                                                                                              \\
        for (ptrdiff_t stage = 0; stage < stages; stage++) {                                           \\
            const ptrdiff_t cell = stage * out_stride, begin = leader[cell];                           \\
            const ptrdiff_t count = ranks - begin < SFAPP_SEARCH ? ranks - begin : SFAPP_SEARCH;       \\
            int64_t prefix[SFAPP_SEARCH] = {0};                                                        \\
            for (ptrdiff_t earlier = 0; earlier <= stage; earlier++) {                                 \\
                const int64_t *spent = duration + earlier * stage_stride + begin;                      \\
                for (ptrdiff_t place = 0; place < count; place++) prefix[place] += spent[place];       \\
            }                                                                                          \\
            ptrdiff_t place = 0;                                                                       \\
            while (prefix[place] != top[cell]) place++;                                                \\
            leader[cell] = begin + place;                                                              \\
        }                                                                                              \\
        return 0;                                                                                      \\
    }

    SFAPP_STEP_FRONTIER(sfapp_step_frontier_wide, sfapp_wide)
    SFAPP_STEP_FRONTIER(sfapp_step_frontier_body, sfapp_vector)

    SFAPP_VARIANTS(
        int, sfapp_step_frontier, sfapp_step_frontier_wide,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         ptrdiff_t out_stride, int64_t *top, int64_t *leader, int64_t *room),
        (duration, stage_stride, stages, ranks, out_stride, top, leader, room))

    /* The largest of some values; lanes by hand, since a compiler may not reorder comparisons of floats. */
    SFAPP_INLINE double sfapp_largest(const double *x, ptrdiff_t count)
    {
        double most = x[0];
        ptrdiff_t place = 0;
        if (count >= 16) {
            sfapp_doubles lanes[4];
            for (int i = 0; i < 4; i++) lanes[i] = *(const sfapp_doubles *)(x + 4 * i);
            for (place = 16; place + 16 <= count; place += 16)
                for (int i = 0; i < 4; i++) {
                    const sfapp_doubles value = *(const sfapp_doubles *)(x + place + 4 * i);
                    const sfapp_vector above = value > lanes[i];
                    lanes[i] = (sfapp_doubles)(((sfapp_vector)value & above) | ((sfapp_vector)lanes[i] & ~above));
                }
            for (int i = 0; i < 16; i++) most = lanes[i / 4][i % 4] > most ? lanes[i / 4][i % 4] : most;
        }
        for (; place < count; place++) most = x[place] > most ? x[place] : most;
        return most;
    }

    /* The makespan of one step with one broad stage's recorded stages clipped to their baselines. */
    SFAPP_INLINE double sfapp_clipped_makespan_body(
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *owner, int64_t broad, const int64_t *total,
        const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank)
    {
        double left[SFAPP_TILE], most = 0;
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_TILE) {
            const ptrdiff_t count = ranks - begin < SFAPP_TILE ? ranks - begin : SFAPP_TILE;
            for (ptrdiff_t rank = 0; rank < count; rank++) left[rank] = (double)total[begin + rank];
            for (ptrdiff_t stage = 0; stage < stages; stage++) {
                if (owner[stage] != broad) continue;
                const int64_t *spent = duration + stage * stage_stride + begin;
                const double *b = level + stage * level_stage;
                if (level_rank) {
                    b += begin;
                    for (ptrdiff_t rank = 0; rank < count; rank++) {
                        const double over = (double)spent[rank] - b[rank];
                        left[rank] -= over > 0 ? over : 0;
                    }
                } else {
                    const double same = *b;
                    for (ptrdiff_t rank = 0; rank < count; rank++) {
                        const double over = (double)spent[rank] - same;
                        left[rank] -= over > 0 ? over : 0;
                    }
                }
            }
            const double here = sfapp_largest(left, count);
            most = begin == 0 || here > most ? here : most;
        }
        return most;
    }

    SFAPP_VARIANTS(
        double, sfapp_clipped_makespan, sfapp_clipped_makespan_body,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         const int64_t *owner, int64_t broad, const int64_t *total,
         const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank),
        (duration, stage_stride, stages, ranks, owner, broad, total, level, level_stage, level_rank))

    /* The frontier of one step with some stages clipped to their baselines. */
    SFAPP_INLINE int sfapp_clipped_frontier_body(
        const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
        const int64_t *is_clipped, const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank,
        ptrdiff_t out_stride, double *top)
    {
        double prefix[SFAPP_TILE];
        for (ptrdiff_t begin = 0; begin < ranks; begin += SFAPP_TILE) {
            const ptrdiff_t count = ranks - begin < SFAPP_TILE ? ranks - begin : SFAPP_TILE;
            memset(prefix, 0, sizeof(prefix));
            for (ptrdiff_t stage = 0; stage < stages; stage++) {
                const int64_t *spent = duration + stage * stage_stride + begin;
                const double *b = level + stage * level_stage + (level_rank ? begin : 0);
                const double same = *b;
                if (!is_clipped[stage])
                    for (ptrdiff_t rank = 0; rank < count; rank++) prefix[rank] += (double)spent[rank];
                else if (level_rank)
                    for (ptrdiff_t rank = 0; rank < count; rank++) {
                        const double d = (double)spent[rank], over = d - b[rank];
                        prefix[rank] = prefix[rank] + d - (over > 0 ? over : 0);
                    }
                else
                    for (ptrdiff_t rank = 0; rank < count; rank++) {
                        const double d = (double)spent[rank], over = d - same;
                        prefix[rank] = prefix[rank] + d - (over > 0 ? over : 0);
                    }
                const double most = sfapp_largest(prefix, count);
                double *cell = top + stage * out_stride;
                if (begin == 0 || most > *cell) *cell = most;
            }
        }
        return 0;
    }

    SFAPP_VARIANTS(
        int, sfapp_clipped_frontier, sfapp_clipped_frontier_body,
        (const int64_t *duration, ptrdiff_t stage_stride, ptrdiff_t stages, ptrdiff_t ranks,
         const int64_t *is_clipped, const double *level, ptrdiff_t level_stage, ptrdiff_t level_rank,
         ptrdiff_t out_stride, double *top),
        (duration, stage_stride, stages, ranks, is_clipped, level, level_stage, level_rank, out_stride, top))

    /* Exact selection. `SFAPP_SELECT` makes one function for each type of values. */
    #define SFAPP_SMALL 48
    #define SFAPP_SAMPLE 127

    #define SFAPP_SELECT(NAME, T)                                                                          \\
    static void NAME##_sort(T *x, ptrdiff_t n) {                                                           \\
        for (ptrdiff_t i = 1; i < n; i++) {                                                                \\
            const T value = x[i];                                                                          \\
            ptrdiff_t place = i;                                                                           \\
            for (; place > 0 && x[place - 1] > value; place--) x[place] = x[place - 1];                    \\
            x[place] = value;                                                                              \\
        }                                                                                                  \\
    }                                                                                                      \\
    static int NAME##_order(const void *a, const void *b) {                                                \\
        const T one = *(const T *)a, other = *(const T *)b;                                                \\
        return (one > other) - (one < other);                                                              \\
    }                                                                                                      \\
    /* The values at the sorted positions k and `last`, k or k + 1; `room` holds 2 n values. */            \\
    static void NAME(const T *x, ptrdiff_t n, ptrdiff_t k, ptrdiff_t last, T *room, T *low, T *high) {     \\
        T *const rooms[2] = {room, room + n};                                                              \\
        ptrdiff_t wider = 1;                                                                               \\
        for (int round = 0; n > SFAPP_SMALL && round < 32; round++) {                                      \\
            T sample[SFAPP_SAMPLE];                                                                        \\
            const ptrdiff_t taken = n > 4096 ? SFAPP_SAMPLE : 47;                                          \\
            for (ptrdiff_t i = 0; i < taken; i++) sample[i] = x[i * n / taken];                            \\
            NAME##_sort(sample, taken);                                                                    \\
            const ptrdiff_t middle = k * taken / n, spread = wider * (taken > 47 ? 14 : 9);                \\
            const T from = sample[middle > spread ? middle - spread : 0];                                  \\
            const T to = sample[middle + spread < taken ? middle + spread : taken - 1];                    \\
            T *const target = rooms[x == rooms[0]];                                                        \\
            ptrdiff_t below = 0, inside = 0;                                                               \\
            for (ptrdiff_t i = 0; i < n; i++) {                                                            \\
                const T value = x[i];                                                                      \\
                target[inside] = value;                                                                    \\
                inside += (value >= from) & (value <= to);                                                 \\
                below += value < from;                                                                     \\
            }                                                                                              \\
            if (k < below || last >= below + inside) { wider *= 2; continue; } /* the sample missed */     \\
            if (from == to) { *low = *high = from; return; }                                               \\
            if (inside == n) break;                                                                        \\
            x = target; n = inside; k -= below; last -= below; wider = 1;                                  \\
        }                                                                                                  \\
        T *const rest = rooms[x == rooms[0]];                                                              \\
        memcpy(rest, x, n * sizeof(T));                                                                    \\
        if (n > SFAPP_SMALL) qsort(rest, n, sizeof(T), NAME##_order);                                      \\
        else NAME##_sort(rest, n);                                                                         \\
        *low = rest[k];                                                                                    \\
        *high = rest[last];                                                                                \\
    }

    SFAPP_SELECT(sfapp_select_integers, int64_t)
    SFAPP_SELECT(sfapp_select_floats, double)
    """
    int sfapp_level() noexcept nogil
    int sfapp_step_frontier(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, int64_t *, int64_t *,
        int64_t *) noexcept nogil
    int sfapp_step_boundaries(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, const int64_t *, Py_ssize_t, int64_t *, int64_t *,
        int64_t *, int64_t *, int64_t *, int64_t *) noexcept nogil
    double sfapp_clipped_makespan(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, const int64_t *, int64_t, const int64_t *,
        const double *, Py_ssize_t, Py_ssize_t) noexcept nogil
    int sfapp_clipped_frontier(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, const int64_t *, const double *, Py_ssize_t,
        Py_ssize_t, Py_ssize_t, double *) noexcept nogil
    void sfapp_select_integers(
        const int64_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, int64_t *, int64_t *, int64_t *) noexcept nogil
    void sfapp_select_floats(
        const double *, Py_ssize_t, Py_ssize_t, Py_ssize_t, double *, double *, double *) noexcept nogil


IS_SUPPORTED = sfapp_level() > 0
"""Whether this processor has the vectors that the kernels are worth using with."""


def frontier(
    const int64_t[:, :, ::1] duration_SNR,
    int64_t[:, ::1] frontier_SN,
    int64_t[:, ::1] leader_SN,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in frontier and leaders of the steps from ``begin`` until ``end``."""
    cdef Py_ssize_t stages = duration_SNR.shape[0], steps = duration_SNR.shape[1], ranks = duration_SNR.shape[2]
    cdef Py_ssize_t stride = steps * ranks, step
    cdef int64_t *room = <int64_t *>malloc(8 * stages * sizeof(int64_t))
    if room == NULL:
        raise MemoryError()
    with nogil:
        for step in range(begin, end):
            sfapp_step_frontier(
                &duration_SNR[0, step, 0],
                stride,
                stages,
                ranks,
                steps,
                &frontier_SN[0, step],
                &leader_SN[0, step],
                room,
            )
    free(room)


def boundaries(
    const int64_t[:, :, ::1] duration_SNR,
    const int64_t[:, ::1] start_NR,
    int64_t[:, ::1] frontier_SN,
    int64_t[:, ::1] leader_SN,
    int64_t[:, ::1] second_SN,
    int64_t[:, ::1] largest_SN,
    int64_t[:, ::1] sum_SN,
    int64_t[:, ::1] total_NR,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in frontier, leaders and runners-up of the steps from ``begin`` until ``end``.

    ``start_NR`` may be None, and so may ``total_NR``, and ``largest_SN`` together with ``sum_SN``.
    """
    cdef Py_ssize_t stages = duration_SNR.shape[0], steps = duration_SNR.shape[1], ranks = duration_SNR.shape[2]
    cdef Py_ssize_t stride = steps * ranks, step
    cdef const int64_t *start = NULL
    cdef int64_t *largest = NULL
    cdef int64_t *sums = NULL
    cdef int64_t *totals = NULL
    if start_NR is not None:
        start = &start_NR[0, 0]
    if largest_SN is not None:
        largest, sums = &largest_SN[0, 0], &sum_SN[0, 0]
    if total_NR is not None:
        totals = &total_NR[0, 0]
    with nogil:
        for step in range(begin, end):
            sfapp_step_boundaries(
                &duration_SNR[0, step, 0],
                stride,
                stages,
                ranks,
                start + step * ranks if start != NULL else NULL,
                steps,
                &frontier_SN[0, step],
                &leader_SN[0, step],
                &second_SN[0, step],
                largest + step if largest != NULL else NULL,
                sums + step if sums != NULL else NULL,
                totals + step * ranks if totals != NULL else NULL,
            )


def clipped_makespan(
    const int64_t[:, :, ::1] duration_SNR,
    const int64_t[:, ::1] total_NR,
    const double[:, :, ::1] level,
    const int64_t[::1] broad_of_S,
    double[:, ::1] clipped_BN,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in F[S,t] with each broad stage clipped to its baseline, of the steps from ``begin`` until ``end``.

    ``level`` is broadcast over steps and ranks where it has only one of them.
    """
    cdef Py_ssize_t stages = duration_SNR.shape[0], ranks = duration_SNR.shape[2], step, broad
    cdef Py_ssize_t stride = duration_SNR.shape[1] * ranks
    cdef Py_ssize_t by_step = level.shape[2] if level.shape[1] > 1 else 0
    cdef Py_ssize_t by_rank = level.shape[2] > 1
    with nogil:
        for step in range(begin, end):
            for broad in range(clipped_BN.shape[0]):
                clipped_BN[broad, step] = sfapp_clipped_makespan(
                    &duration_SNR[0, step, 0],
                    stride,
                    stages,
                    ranks,
                    &broad_of_S[0],
                    broad,
                    &total_NR[step, 0],
                    &level[0, 0, 0] + step * by_step,
                    level.shape[1] * level.shape[2],
                    by_rank,
                )


def clipped_frontier(
    const int64_t[:, :, ::1] duration_SNR,
    const double[:, :, ::1] level,
    const int64_t[::1] is_clipped_S,
    double[:, ::1] frontier_SN,
    Py_ssize_t begin,
    Py_ssize_t end,
):
    """Fill in the frontier with some stages clipped to the baseline, of the steps from ``begin`` until ``end``."""
    cdef Py_ssize_t stages = duration_SNR.shape[0], ranks = duration_SNR.shape[2], step
    cdef Py_ssize_t stride = duration_SNR.shape[1] * ranks
    cdef Py_ssize_t by_step = level.shape[2] if level.shape[1] > 1 else 0
    cdef Py_ssize_t by_rank = level.shape[2] > 1
    with nogil:
        for step in range(begin, end):
            sfapp_clipped_frontier(
                &duration_SNR[0, step, 0],
                stride,
                stages,
                ranks,
                &is_clipped_S[0],
                &level[0, 0, 0] + step * by_step,
                level.shape[1] * level.shape[2],
                by_rank,
                frontier_SN.shape[1],
                &frontier_SN[0, step],
            )


ctypedef fused number:
    int64_t
    double


def middle_rows(const number[:, ::1] x_MR, double[::1] lower_M, double[::1] median_M, Py_ssize_t begin, Py_ssize_t end):
    """Fill in the lower middle value and the median of the rows from ``begin`` until ``end``."""
    cdef Py_ssize_t ranks = x_MR.shape[1], row
    cdef number low, high
    cdef number *room = <number *> malloc(2 * ranks * sizeof(number))
    if room == NULL:
        raise MemoryError
    with nogil:
        for row in range(begin, end):
            if number is int64_t:
                sfapp_select_integers(&x_MR[row, 0], ranks, (ranks - 1) // 2, ranks // 2, room, &low, &high)
            else:
                sfapp_select_floats(&x_MR[row, 0], ranks, (ranks - 1) // 2, ranks // 2, room, &low, &high)
            lower_M[row] = <double> low
            median_M[row] = (<double> low + <double> high) / 2
    free(room)
